package i4_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/stretchr/testify/require"
)

// toBF16 rounds to nearest, ties to even.
func toBF16(x float32) float32 {
	u := math.Float32bits(x)
	return math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff)
}

// inputs are groups as products meet them; each is a table row of docs/numerics.md.
var inputs = []struct {
	name  string
	least float64 // how many times bf16's error is fixed point's at least
	group func(rng *rand.Rand) []float32
}{
	{"normal, as behind a norm", 40, func(rng *rand.Rand) []float32 { return many(rng.NormFloat64) }},
	{"silu(a)·b, as before down", 15, func(rng *rand.Rand) []float32 {
		return many(func() float64 {
			a := 2 * rng.NormFloat64()
			return a / (1 + math.Exp(-a)) * rng.NormFloat64()
		})
	}},
	{"Student's t of two degrees", 10, func(rng *rand.Rand) []float32 {
		return many(func() float64 {
			return rng.NormFloat64() / math.Sqrt(rng.ExpFloat64())
		})
	}},
	{"normal, one element 30 times as large", 10, func(rng *rand.Rand) []float32 { return outlier(rng, 30) }},
	{"normal, one element 1000 times as large", 8, func(rng *rand.Rand) []float32 { return outlier(rng, 1000) }},
	{"all of one size", 60, func(rng *rand.Rand) []float32 {
		return many(func() float64 { return math.Copysign(1+rng.Float64(), rng.Float64()-0.5) })
	}},
}

func many(f func() float64) (x []float32) {
	for range i4.Columns {
		x = append(x, float32(f()))
	}
	return x
}

func outlier(rng *rand.Rand, times float32) []float32 {
	x := many(rng.NormFloat64)
	x[rng.IntN(len(x))] *= times
	return x
}

// What the input's fixed point costs a dot product of a group must be less than what bf16 would. Both are the root mean
// square of the error over that of the dot product in float64.
func TestFixedPointCostsLessThanBF16(t *testing.T) {
	for _, in := range inputs {
		rng := rand.New(rand.NewPCG(8, 128))
		var fixed, bf16, whole float64
		for range 2000 {
			x := in.group(rng)
			q, unit := i4.Fixed(x)
			var y, ofFixed, ofBF16 float64
			for i, v := range x {
				w := float64(rng.IntN(16) - 8)
				y += w * float64(v)
				ofFixed += w * (float64(q[i])*float64(unit) - float64(v))
				ofBF16 += w * (float64(toBF16(v)) - float64(v))
			}
			fixed, bf16, whole = fixed+ofFixed*ofFixed, bf16+ofBF16*ofBF16, whole+y*y
		}
		t.Logf("%-42s fixed point %.1e, bf16 %.1e, ratio %.1f", in.name, math.Sqrt(fixed/whole), math.Sqrt(bf16/whole),
			math.Sqrt(bf16/fixed))
		require.Greater(t, math.Sqrt(bf16/fixed), in.least, in.name)
	}
}
