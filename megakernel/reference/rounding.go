package reference

import (
	"math"
	"slices"

	"github.com/mkgen/mkgen/models"
)

// KernelRounding returns Hooks that round to bf16 what a kernel with float32 arithmetic stores so: the inputs of matrix
// products, queries, and KV.
func KernelRounding() Hooks {
	stored := []Point{AttnNorm, Query, Key, Value, AttnOut, MLPNorm, Activated, FinalNorm}
	return Hooks{At: func(_ int, p Point, v []float64) {
		if slices.Contains(stored, p) {
			roundBF16(v)
		}
	}}
}

// FrameworkRounding returns Hooks that round to bf16 as Hugging Face transformers does when the model runs in bf16:
// every point, the residual stream included, sines and cosines and the products with them, and the softmax's weights.
func FrameworkRounding(c models.Config) Hooks {
	arch := c.Arch()
	return Hooks{
		At: func(_ int, _ Point, v []float64) { roundBF16(v) },
		Rotate: func(l int, x []float64, pos int) []float64 {
			a := &arch.Layer(l).Attn
			return rotateRounded(x, pos, a.HeadDim, a.Rope, a.Rope.InvFreq(c.MaxPositions))
		},
		Attend: func(l int, q []float64, keys, values [][]float64) []float64 {
			return attendRounded(&arch.Layer(l).Attn, q, keys, values)
		},
	}
}

// rotateRounded is RotateHeads as apply_rotary_pos_emb computes it in bf16.
func rotateRounded(x []float64, pos, dim int, r models.Rope, invFreq []float32) []float64 {
	x = slices.Clone(x)
	roundBF16(x)
	half := len(invFreq)
	out := slices.Clone(x)
	for i, f := range invFreq {
		sin, cos := math.Sincos(float64(float32(pos) * f))
		sin, cos = RoundBF16(r.Factor()*sin), RoundBF16(r.Factor()*cos)
		first, second := i, i+half
		if r.Interleaved {
			first, second = 2*i, 2*i+1
		}
		for h := 0; h < len(x); h += dim {
			a, b := x[h+first], x[h+second]
			out[h+first] = RoundBF16(a*cos) - RoundBF16(b*sin)
			out[h+second] = RoundBF16(b*cos) + RoundBF16(a*sin)
		}
	}
	return out
}

// attendRounded is AttentionOf with the softmax's weights, relative to the greatest, rounded before they meet the
// values.
func attendRounded(a *models.Attn, q []float64, keys, values [][]float64) []float64 {
	exact := AttentionOf(a, q, keys, values)
	first := 0
	if a.Window > 0 {
		first = max(0, len(keys)-a.Window)
	}
	out := make([]float64, len(q))
	for h, s := range exact {
		at := h / (a.Heads / a.KVHeads) * a.HeadDim
		for t := first; t < len(keys); t++ {
			score := 0.0
			for i := range a.HeadDim {
				score += q[h*a.HeadDim+i] * keys[t][at+i]
			}
			w := RoundBF16(math.Exp(SoftCap([]float64{score * a.Scale}, a.SoftCap)[0] - s.LSE))
			for i := range a.HeadDim {
				out[h*a.HeadDim+i] += w * values[t][at+i]
			}
		}
	}
	return out
}
