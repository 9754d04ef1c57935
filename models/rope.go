package models

import "math"

// RopeInvFreq returns the inverse frequencies of c's rotary embedding for contexts up to MaxPositions: at position p,
// elements i and i+len/2 of a head are rotated by p*f[i] radians. c must be valid.
func RopeInvFreq(c Config) []float32 { return c.Rope.over(c.HeadDim).InvFreq(c.MaxPositions) }

// ShortPositions returns up to how many tokens a sequence has another rotary embedding than longer ones, that of
// longrope's short factors; 0 where length does not matter. transformers decides so in every step, and computes a cache
// anew when its sequence grows beyond.
func (c *Config) ShortPositions() int {
	n := 0
	for _, k := range c.Traits.kinds() {
		s := c.kindRope(k).Scaling
		if s != nil && s.Type == ScalingLongRoPE && s.OriginalPositions < c.MaxPositions {
			n = s.OriginalPositions
		}
	}
	return n
}

// Factor is what multiplies sines and cosines: 1 but for yarn and longrope.
func (r Rope) Factor() float64 {
	if r.Scaling == nil {
		return 1
	}
	return orOne(r.Scaling.AttentionFactor)
}

// InvFreq returns the Dims/2 inverse frequencies for a context of n positions, on which only dynamic and longrope
// depend; Dims must be resolved, as Arch has it. Keys are rotated once and kept, so with dynamic a context's length is
// what may come, not what is there: vLLM does the same, transformers goes on with other frequencies when a context
// grows. With longrope there are two sets of frequencies; see Config.ShortPositions.
//
// Formulas and order of the float32 operations follow Hugging Face transformers: compute_default_rope_parameters and
// modeling_rope_utils.py (5.23). There a Python number over a tensor is the tensor's reciprocal times the number.
// Powers are taken in float64 and rounded once; torch's float32 pow may differ from that in the last place, though it
// does not in any golden of the tests.
func (r Rope) InvFreq(positions int) []float32 {
	freqs := make([]float32, r.Dims/2)
	theta := float64(float32(r.theta(positions)))
	for i := range freqs {
		exponent := float32(2*i) / float32(r.Dims)
		power := float32(math.Pow(theta, float64(exponent)))
		freqs[i] = r.scaled(i, power, positions)
	}
	return freqs
}

// theta is the base: dynamic NTK stretches it with the context (reddit's u/bloc97 and u/emozilla; transformers).
func (r Rope) theta(positions int) float64 {
	s := r.Scaling
	if s == nil || s.Type != ScalingDynamic {
		return r.Theta
	}
	stretch := s.Factor*float64(max(positions, s.OriginalPositions))/float64(s.OriginalPositions) - (s.Factor - 1)
	return r.Theta * math.Pow(stretch, float64(r.Dims)/float64(r.Dims-2))
}

// scaled is inverse frequency i of power theta^(2i/Dims).
func (r Rope) scaled(i int, power float32, positions int) float32 {
	f, s := 1/power, r.Scaling
	if s == nil {
		return f
	}
	switch s.Type {
	case ScalingLlama3:
		return s.llama3(f)
	case ScalingLinear:
		return f / float32(s.Factor)
	case ScalingYaRN:
		low, high := s.ramp(r.Dims, r.Theta)
		ramp := float32(min(max((float64(i)-low)/(high-low), 0), 1))
		keep := 1 - ramp
		return float32(1/float32(float32(s.Factor)*power)*(1-keep)) + float32(f*keep)
	case ScalingLongRoPE:
		factors := s.ShortFactors
		if positions > s.OriginalPositions {
			factors = s.LongFactors
		}
		return 1 / float32(float32(factors[i])*power)
	}
	return f
}

// ramp returns the dimensions where yarn's ramp begins and ends: those that turn BetaFast and BetaSlow times within
// OriginalPositions (Peng et al., 2023, section 3.2).
func (s *Scaling) ramp(dims int, theta float64) (low, high float64) {
	dim := func(turns float64) float64 {
		return float64(dims) * math.Log(float64(s.OriginalPositions)/(turns*2*math.Pi)) / (2 * math.Log(theta))
	}
	low, high = dim(s.BetaFast), dim(s.BetaSlow)
	if s.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(dims-1))
	if low == high {
		high += 0.001
	}
	return low, high
}

// yarnFactor is yarn's factor of sines and cosines where none is stated: 0.1·mscale·ln(factor) + 1.
func yarnFactor(factor, mscale float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*mscale*math.Log(factor) + 1
}

// longRoPEFactor is longrope's, for a context stretched by factor from that of the first training.
func longRoPEFactor(factor float64, original int) float64 {
	if factor <= 1 {
		return 1
	}
	return math.Sqrt(1 + math.Log(factor)/math.Log(float64(original)))
}

// llama3 applies the llama3 rule to one inverse frequency. The explicit float32
// conversions forbid the compiler to fuse a product with a sum.
func (s *Scaling) llama3(f float32) float32 {
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
