package draw

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/stretchr/testify/require"
)

// A GPU's log2 is off by at most 2⁻²² between ½ and 2, elsewhere by that share of itself (PTX ISA, lg2.approx).
func log2Error(x float64) float64 { return math.Ldexp(max(1, math.Abs(math.Log2(x))), -22) }

// scoreError bounds what a GPU's logarithms change of a score: log2(E), and E itself where it is not a series.
func scoreError(bits uint32) float64 {
	e := float64(exponential(bits))
	all := log2Error(e)
	if v := (float64(bits) + 0.5) / (1 << 32); v >= Series {
		all += log2Error(1-v) / e // of ln(1−v) the share, which is log2(e) times that of log2(E)
	}
	return all
}

// The executor's draw is the GPU's unless the second score is so near the first that the logarithms' errors may bring
// it before it. Of a million draws that were 2 to 4 at each spread.
func TestAGPUsLogarithmSeldomChangesADraw(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, spread := range []float64{0, 1, 4} {
		logits := make([]float32, 64)
		for i := range logits {
			logits[i] = float32(rng.NormFloat64() * spread)
		}
		r := Row{RowFlags: FlagDraws, RowScale: math.Float32bits(math.Log2E), RowSeedLo: 7}
		n, near := deep.Count(100_000, 20_000), 0
		for position := range n {
			first, second := math.Inf(-1), math.Inf(-1) // the least the winner may have, the most another may
			at := r.Choose(logits, uint32(position))
			for i, x := range logits {
				bits := Philox([2]uint32{7, 0}, [4]uint32{uint32(position), uint32(i / 4)})[i%4]
				score, off := float64(r.score(x, bits)), scoreError(bits)
				if i == at {
					first = score - off
				} else {
					second = max(second, score+off)
				}
			}
			if first <= second {
				near++
			}
		}
		require.LessOrEqual(t, near, 2+n/50_000, "spread %v", spread)
	}
}
