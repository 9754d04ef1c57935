package reference

import (
	"math"
	"slices"

	"github.com/mkgen/mkgen/models"
)

// Scaling is Llama 3.1's rule for rotary frequencies (rope_type "llama3" in a Hugging Face configuration).
type Scaling struct {
	Factor, LowFreqFactor, HighFreqFactor float64
	OriginalPositions                     int
}

// InvFreq returns the headDim/2 inverse frequencies theta^(-2i/headDim), scaled when s is not nil: those with a wavelength above
// OriginalPositions/LowFreqFactor are divided by Factor, those below OriginalPositions/HighFreqFactor stay, between them the two
// are blended linearly in OriginalPositions/wavelength. Computed in float64 and rounded once: Hugging Face computes in float32
// and can differ in the last places, so pass Rope the values of the side you compare with.
func InvFreq(theta float64, headDim int, s *Scaling) []float32 {
	out := make([]float32, headDim/2)
	for i := range out {
		f := math.Pow(theta, -2*float64(i)/float64(headDim))
		if s != nil {
			f *= s.multiplier(2 * math.Pi / f)
		}
		out[i] = float32(f)
	}
	return out
}

func (s *Scaling) multiplier(wavelength float64) float64 {
	turns := float64(s.OriginalPositions) / wavelength
	switch {
	case turns < s.LowFreqFactor:
		return 1 / s.Factor
	case turns > s.HighFreqFactor:
		return 1
	}
	smooth := (turns - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
	return (1-smooth)/s.Factor + smooth
}

// Rope returns x, which is heads of 2*len(invFreq) elements one after the other, rotated for position pos: in each head, elements
// i and i+half turn together by the angle pos*invFreq[i] (Hugging Face's half-split layout). The angle is rounded to float32 as
// there; sine and cosine are float64. A length that is no whole number of heads panics.
func Rope(x []float64, pos int, invFreq []float32) []float64 {
	return RotateHeads(x, pos, 2*len(invFreq), models.Rope{}, invFreq)
}

// RotateHeads returns x, heads of dim elements one after the other, with the first r.Dims elements of each rotated for position
// pos and multiplied by r.Factor; the others stay. Pairs are as in Rope, or neighbours where r.Interleaved says so. No frequencies
// return x.
func RotateHeads(x []float64, pos, dim int, r models.Rope, invFreq []float32) []float64 {
	mustEqual("RotateHeads' input modulo the head dimension", len(x)%dim, 0)
	out := slices.Clone(x)
	half, factor := len(invFreq), r.Factor()
	for i, f := range invFreq {
		sin, cos := math.Sincos(float64(float32(pos) * f))
		sin, cos = factor*sin, factor*cos
		first, second := i, i+half
		if r.Interleaved {
			first, second = 2*i, 2*i+1
		}
		for h := 0; h < len(x); h += dim {
			a, b := x[h+first], x[h+second]
			out[h+first], out[h+second] = a*cos-b*sin, b*cos+a*sin
		}
	}
	return out
}
