package reference

import (
	"fmt"
	"math"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// Embedding returns row token of a [vocab, hidden] table. A token outside the table panics.
func Embedding(table []half.BF16, hidden, token int) []float64 {
	return FromBF16s(table[token*hidden : (token+1)*hidden])
}

// Normalise returns x / sqrt(mean(x²) + eps). (Zhang and Sennrich, 2019.)
func Normalise(x []float64, eps float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+eps)
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v * scale
	}
	return out
}

// RMSNorm returns Normalise(x, eps) times gain, element by element. gain has x's length.
func RMSNorm(x []float64, gain []half.BF16, eps float64) []float64 {
	return Multiply(Normalise(x, eps), FromBF16s(gain))
}

// Multiply returns a times b, element by element; both have the same length.
func Multiply(a, b []float64) []float64 {
	mustEqual("Multiply's second factor", len(b), len(a))
	out := make([]float64, len(a))
	for i, x := range a {
		out[i] = x * b[i]
	}
	return out
}

// MatVec returns W·x for W of shape [len(w)/len(x), len(x)], each row's products added in their order. A len(w) that is
// no multiple of len(x) panics.
func MatVec(w []half.BF16, x []float64) []float64 {
	n := len(x)
	mustEqual("MatVec's weights modulo its input", len(w)%n, 0)
	out := make([]float64, len(w)/n)
	r := 0
	for ; r+4 <= len(out); r += 4 { // an addition waits for the one before it: four rows wait together
		w0, w1, w2, w3 := w[r*n:][:n], w[(r+1)*n:][:n], w[(r+2)*n:][:n], w[(r+3)*n:][:n]
		s0, s1, s2, s3 := 0.0, 0.0, 0.0, 0.0
		for i, v := range x {
			s0 += FromBF16(w0[i]) * v
			s1 += FromBF16(w1[i]) * v
			s2 += FromBF16(w2[i]) * v
			s3 += FromBF16(w3[i]) * v
		}
		out[r], out[r+1], out[r+2], out[r+3] = s0, s1, s2, s3
	}
	for ; r < len(out); r++ {
		sum := 0.0
		for i, b := range w[r*n:][:n] {
			sum += FromBF16(b) * x[i]
		}
		out[r] = sum
	}
	return out
}

// SiLU returns x / (1 + exp(-x)), element by element; far below zero it tends to -0, and at -inf itself it is NaN, as
// the formula is.
func SiLU(v []float64) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = x / (1 + math.Exp(-x))
	}
	return out
}

// Activate returns the activation of v, element by element.
func Activate(a models.Act, v []float64) []float64 {
	switch a {
	case models.SiLU:
		return SiLU(v)
	case models.GELUTanh:
		return GELUTanh(v)
	}
	panic("BUG: reference: " + a.String())
}

// GELUTanh returns x/2·(1 + tanh(sqrt(2/π)·(x + 0.044715·x³))), element by element. (Hendrycks and Gimpel, 2016.)
func GELUTanh(v []float64) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	return out
}

// SwiGLU returns SiLU(gate) * up, element by element; both have the same length. (Shazeer, 2020.)
func SwiGLU(gate, up []float64) []float64 { return Multiply(SiLU(gate), up) }

// Argmax returns the index of the greatest value, the lowest of them when several are equal, and -1 for no values. NaN
// is never the greatest; all NaN gives 0.
func Argmax(v []float64) int {
	best := -1
	for i, x := range v {
		if best < 0 || x > v[best] || (v[best] != v[best] && x == x) {
			best = i
		}
	}
	return best
}

// mustEqual panics when a caller's lengths do not fit together.
func mustEqual(what string, got, want int) {
	if got != want {
		panic(fmt.Sprintf("BUG: reference: %s: %d, want %d", what, got, want))
	}
}
