package probe

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/models/half"
	"github.com/stretchr/testify/require"
)

// An output of a query whose ties the kernel rounded the other way is that of one of its roundings. An output of values
// 2 % too large, or without the first page, is of none.
func TestAQuerysTiesMayBeRoundedEitherWay(t *testing.T) {
	const d, n, page = 128, 400, 16
	r := rand.New(rand.NewPCG(1, 3))
	normal := func(size float64, count int) []float32 {
		out := make([]float32, count)
		for i := range out {
			out[i] = half.BF16Of(float32(size * r.NormFloat64())).Float32()
		}
		return out
	}
	rows := &Rows{Tokens: n, Heads: 1, D: d, Of: [2][]float32{normal(1, n*d), normal(1, n*d)}}
	w := &view{rows: rows, before: n, page: page, key: floats(normal(1, d)), value: floats(normal(1, d))}
	exact := floats(normal(1, d))
	tied := []int{17, 90} // the largest, whose roundings are seen
	for _, i := range tied {
		exact[i] = math.Copysign(16+0x1p-4, exact[i]) // in the middle of 16 and 16.125
	}
	rounded := make([]float64, d)
	for i, x := range exact {
		rounded[i] = float64(half.BF16Of(float32(x)).Float32())
	}
	found := ties(exact, rounded, 1)
	require.Len(t, found, len(tied))

	kernel := slices.Clone(rounded)
	for n, i := range tied {
		require.Equal(t, i, found[n].at)
		require.InDelta(t, 0.125, math.Abs(found[n].other-rounded[i]), 1e-9)
		kernel[i] = found[n].other
	}
	right := w.plain(kernel, 0, make([]float64, d)).out
	require.Greater(t, relative(right, w.plain(rounded, 0, right).out), limits[Attention])
	require.Zero(t, relative(right, w.rounding(slices.Clone(rounded), 0, right, found).out))

	rest := &view{rows: &Rows{Tokens: n - page, Heads: 1, D: d,
		Of: [2][]float32{rows.Of[0][page*d:], rows.Of[1][page*d:]}}, before: n - page, page: page, key: w.key, value: w.value}
	for what, wrong := range map[string][]float64{
		"values": scaled(right, 1.02),
		"page":   rest.plain(kernel, 0, right).out,
	} {
		with := w.rounding(slices.Clone(rounded), 0, wrong, found)
		require.Greater(t, relative(wrong, with.out), 1.5*limits[Attention], what)
	}
}

func scaled(x []float64, by float64) (out []float64) {
	for _, y := range x {
		out = append(out, y*by)
	}
	return out
}
