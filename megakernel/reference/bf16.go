package reference

import "math"

// FromBF16 returns the value of a bf16 bit pattern.
func FromBF16(b uint16) float64 { return float64(math.Float32frombits(uint32(b) << 16)) }

// FromBF16s returns the values of bf16 bit patterns.
func FromBF16s(bits []uint16) []float64 {
	out := make([]float64, len(bits))
	for i, b := range bits {
		out[i] = FromBF16(b)
	}
	return out
}

// ToBF16 returns the bit pattern of the bf16 nearest to x, ties to even, in one rounding from float64. What is beyond the
// largest finite bf16 by half a unit becomes an infinity; a NaN becomes a quiet NaN; subnormals are kept.
func ToBF16(x float64) uint16 {
	sign := uint16(0)
	if math.Signbit(x) {
		sign = 0x8000
	}
	a := math.Abs(x)
	switch {
	case a != a:
		return sign | 0x7fc0
	case math.IsInf(a, 0):
		return sign | 0x7f80
	case a == 0:
		return sign
	}
	_, exp := math.Frexp(a) // a = f * 2^exp, f in [0.5, 1)
	unit := max(exp-8, -133)
	r := math.Ldexp(math.RoundToEven(math.Ldexp(a, -unit)), unit) // 8 significant bits; exact powers of two around the rounding
	if r > 0x1.fep127 {
		return sign | 0x7f80
	}
	return sign | uint16(math.Float32bits(float32(r))>>16)
}

// RoundBF16 returns the bf16 nearest to x, ties to even; see ToBF16.
func RoundBF16(x float64) float64 { return FromBF16(ToBF16(x)) }

// roundBF16 rounds every element of v in place.
func roundBF16(v []float64) {
	for i, x := range v {
		v[i] = RoundBF16(x)
	}
}
