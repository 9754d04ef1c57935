package models

import "math"

// RopeInvFreq returns the HeadDim/2 inverse frequencies of c's rotary embedding:
// at position p, elements i and i+HeadDim/2 of a head are rotated by p*f[i]
// radians. c must be valid.
//
// Formulas and order of the float32 operations follow Hugging Face transformers:
// LlamaRotaryEmbedding.compute_default_rope_parameters and, with Scaling,
// _compute_llama3_parameters in modeling_rope_utils.py (5.23). There a Python
// number over a tensor is the tensor's reciprocal times the number. Powers are
// taken in float64 and rounded once; torch's float32 pow may differ from that in
// the last place, though it does not in any golden of the tests.
func RopeInvFreq(c Config) []float32 {
	freqs := make([]float32, c.HeadDim/2)
	theta := float64(float32(c.Rope.Theta))
	for i := range freqs {
		exponent := float32(2*i) / float32(c.HeadDim)
		freqs[i] = 1 / float32(math.Pow(theta, float64(exponent)))
	}
	if c.Rope.Scaling == nil {
		return freqs
	}
	for i, f := range freqs {
		freqs[i] = c.Rope.Scaling.scale(f)
	}
	return freqs
}

// scale applies the llama3 rule to one inverse frequency. The explicit float32
// conversions forbid the compiler to fuse a product with a sum.
func (s *Scaling) scale(f float32) float32 {
	factor, low := float32(s.Factor), float32(s.LowFreqFactor)
	original := float64(s.OriginalPositions)
	longest := float32(original / s.LowFreqFactor)
	shortest := float32(original / s.HighFreqFactor)
	wavelength := float32(1/f) * float32(2*math.Pi)
	switch {
	case wavelength > longest:
		return f / factor
	case wavelength < shortest:
		return f
	}
	ratio := float32(float32(1/wavelength) * float32(original))
	smooth := float32(ratio-low) / float32(s.HighFreqFactor-s.LowFreqFactor)
	scaled := float32(float32(1-smooth)*f) / factor
	return scaled + float32(smooth*f)
}
