package reference

import "math"

// Scaling is Llama 3.1's rule for rotary frequencies (rope_type "llama3" in a Hugging Face configuration).
type Scaling struct {
	Factor, LowFreqFactor, HighFreqFactor float64
	OriginalPositions                     int
}

// InvFreq returns the headDim/2 inverse frequencies theta^(-2i/headDim), scaled when s is not nil: those with a
// wavelength above OriginalPositions/LowFreqFactor are divided by Factor, those below OriginalPositions/HighFreqFactor
// stay, between them the two are blended linearly in OriginalPositions/wavelength. Computed in float64 and rounded
// once: Hugging Face computes in float32 and can differ in the last places, so pass Rope the values of the side you
// compare with.
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
