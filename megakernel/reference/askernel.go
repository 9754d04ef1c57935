package reference

import (
	"math"

	"github.com/mkgen/mkgen/models"
)

// AsKernel rounds to bf16 where the generated kernel does, which differs from
// KernelRounding in two places: a norm's output is rounded before the norm's
// scale, which the kernel applies after the matrix product, and a query after
// the factor log2(e)·Attn.Scale that makes scores powers of two. What is left
// between the kernel and a Model with these hooks is the rounding of attention's
// weights, float32 accumulation, and roundings that fall the other way for that.
// The hooks belong to one Model.
func AsKernel(c models.Config) Hooks {
	return AsKernelWith(c, func(_ string, v []float64) { roundBF16(v) }, roundBF16)
}

// AsKernelByToken is AsKernel of a prefill kernel whose layers' products have inputs in e4m3 with a scale a token:
// prefill.Quantise.
func AsKernelByToken(c models.Config) Hooks {
	return AsKernelWith(c, func(_ string, v []float64) { RoundByToken(v) }, roundBF16)
}

// RoundByToken rounds the elements of a token in place: to bf16, and then to e4m3 times the largest magnitude over 448.
// Zeros stay.
func RoundByToken(v []float64) {
	roundBF16(v)
	most := 0.0
	for _, x := range v {
		most = max(most, math.Abs(x))
	}
	for i, x := range v {
		if x != 0 {
			v[i] = RoundE4M3(x*E4M3Max/most) * most / E4M3Max
		}
	}
}

// behind is which matrix is multiplied with what a point is of.
var behind = map[Point]string{AttnNorm: "qkv", AttnOut: "o", MLPNorm: "gate_up", Activated: "down"}

// AsKernelWith is AsKernel of a kernel whose weights have formats: input rounds the input of a matrix of the layers, of
// that name, in place; head rounds the LM head's.
func AsKernelWith(c models.Config, input func(matrix string, v []float64), head func(v []float64)) Hooks {
	scale := 1.0 // of the norm to come
	arch := c.Arch()
	query := arch.Kinds[0].Attn.Scale * math.Log2E
	return Hooks{At: func(l int, p Point, v []float64) {
		switch p {
		case Embedded, AttnResidual, MLPResidual:
			sum := 0.0
			for _, x := range v {
				sum += x * x
			}
			scale = 1 / math.Sqrt(sum/float64(len(v))+c.NormEps)
		case AttnNorm, MLPNorm:
			if arch.Layers() > 0 && arch.Layer(l).PreAttn.Kind == models.NoNorm { // of the MLP alike
				input(behind[p], v)
				return
			}
			roundScaled(v, scale, func(v []float64) { input(behind[p], v) })
		case FinalNorm:
			roundScaled(v, scale, head)
		case Query:
			roundScaled(v, 1/query, roundBF16)
		case Key, Value:
			roundBF16(v)
		case AttnOut, Activated:
			input(behind[p], v)
		}
	}}
}

// roundScaled rounds v/scale and multiplies by scale again. By way of float32, where the kernel has
// the quotient, so that ties are ties here too.
func roundScaled(v []float64, scale float64, round func(v []float64)) {
	for i, x := range v {
		v[i] = float64(float32(x / scale))
	}
	round(v)
	for i := range v {
		v[i] *= scale
	}
}
