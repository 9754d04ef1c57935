package reference

import (
	"math"

	"github.com/mkgen/mkgen/models/half"
)

// FromBF16 returns the value of a bf16 bit pattern.
func FromBF16(b half.BF16) float64 { return float64(b.Float32()) }

// FromBF16s returns the values of bf16 bit patterns.
func FromBF16s(bits []half.BF16) []float64 {
	out := make([]float64, len(bits))
	for i, b := range bits {
		out[i] = FromBF16(b)
	}
	return out
}

// ToBF16 returns the bit pattern of the bf16 nearest to x, ties to even, in one rounding from float64. What is beyond
// the largest finite bf16 by half a unit becomes an infinity; a NaN becomes a quiet NaN; subnormals are kept.
func ToBF16(x float64) half.BF16 {
	sign := half.BF16(0)
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
	r := 0.0
	if a >= 0x1p-126 {
		const drop = 52 - 7 // mantissa bits of float64 beyond bf16's
		u := math.Float64bits(a)
		u += 1<<(drop-1) - 1 + u>>drop&1
		r = math.Float64frombits(u >> drop << drop)
	} else { // subnormal: whole multiples of 2^-133
		r = math.RoundToEven(a*0x1p133) * 0x1p-133
	}
	if r > 0x1.fep127 {
		return sign | 0x7f80
	}
	return sign | half.ExactBF16(float32(r))
}

// RoundBF16 returns the bf16 nearest to x, ties to even; see ToBF16.
func RoundBF16(x float64) float64 { return FromBF16(ToBF16(x)) }

// roundBF16 rounds every element of v in place.
func roundBF16(v []float64) {
	for i, x := range v {
		v[i] = RoundBF16(x)
	}
}
