package reference

import (
	"math"
	"slices"
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

// FrameworkRounding returns Hooks that round to bf16 as Hugging Face transformers does when the model runs in bf16: every
// point, the residual stream included, sines and cosines and the products with them, and the softmax's weights.
func FrameworkRounding(s Shape) Hooks {
	return Hooks{
		At:     func(_ int, _ Point, v []float64) { roundBF16(v) },
		Rotate: func(x []float64, pos int) []float64 { return rotateRounded(x, pos, s.InvFreq) },
		Attend: func(_ int, q []float64, keys, values [][]float64) []float64 {
			return attendRounded(q, keys, values, s.Heads, s.KVHeads)
		},
	}
}

// rotateRounded is Rope as apply_rotary_pos_emb computes it in bf16.
func rotateRounded(x []float64, pos int, invFreq []float32) []float64 {
	x = slices.Clone(x)
	roundBF16(x)
	half := len(invFreq)
	out := make([]float64, len(x))
	for i, f := range invFreq {
		sin, cos := math.Sincos(float64(float32(pos) * f))
		sin, cos = RoundBF16(sin), RoundBF16(cos)
		for h := 0; h < len(x); h += 2 * half {
			a, b := x[h+i], x[h+i+half]
			out[h+i] = RoundBF16(a*cos) - RoundBF16(b*sin)
			out[h+i+half] = RoundBF16(b*cos) + RoundBF16(a*sin)
		}
	}
	return out
}

// attendRounded is Attention with the softmax's weights, relative to the greatest, rounded before they meet the values.
func attendRounded(q []float64, keys, values [][]float64, heads, kvHeads int) []float64 {
	exact := Attention(q, keys, values, heads, kvHeads)
	dim := len(q) / heads
	out := make([]float64, len(q))
	for h, s := range exact {
		at := h / (heads / kvHeads) * dim
		for t, k := range keys {
			score := 0.0
			for i := range dim {
				score += q[h*dim+i] * k[at+i]
			}
			w := RoundBF16(math.Exp(score/math.Sqrt(float64(dim)) - s.LSE))
			for i := range dim {
				out[h*dim+i] += w * values[t][at+i]
			}
		}
	}
	return out
}
