// Package half has the two floats of 16 bits that checkpoints and kernels hold, as types of their own. A bf16, a
// binary16 and the code or scale of a quantised weight all fill 16 bits: with one uint16 for all of them, a mistake
// compiles and gives wrong numbers.
package half

import (
	"encoding/binary"
	"math"
)

// BF16 is the bits of a bfloat16: sign, 8 bits of exponent, 7 of fraction; the upper half of a float32.
type BF16 uint16

// Float32 returns the number, exactly.
func (b BF16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// IsFinite reports whether b is neither an infinity nor a NaN.
func (b BF16) IsFinite() bool { return b&0x7f80 != 0x7f80 }

// BF16Of returns the bf16 nearest to x, ties to even. What is beyond the largest by half a unit becomes an infinity; a
// NaN becomes a quiet one of the same sign.
func BF16Of(x float32) BF16 {
	b := math.Float32bits(x)
	if x != x {
		return BF16(b>>16) | 0x40
	}
	return BF16((b + 0x7fff + b>>16&1) >> 16)
}

// ExactBF16 returns x, which has to be a bf16: of another it drops the lower bits.
func ExactBF16(x float32) BF16 { return BF16(math.Float32bits(x) >> 16) }

// BF16At returns the first element of little-endian data.
func BF16At(data []byte) BF16 { return BF16(binary.LittleEndian.Uint16(data)) }

// Put writes the bits at the start of data, little-endian.
func (b BF16) Put(data []byte) { binary.LittleEndian.PutUint16(data, uint16(b)) }

// Append appends the bits to data, little-endian.
func (b BF16) Append(data []byte) []byte { return binary.LittleEndian.AppendUint16(data, uint16(b)) }

// F16 is the bits of an IEEE binary16: sign, 5 bits of exponent, 10 of fraction.
type F16 uint16

// MaxF16 is the largest finite binary16.
const MaxF16 = 65504

// Float32 returns the number, exactly.
func (b F16) Float32() float32 {
	sign, exponent, fraction := 1-2*float64(b>>15), int(b>>10&31), float64(b&0x3ff)
	switch {
	case exponent == 0:
		return float32(sign * fraction * 0x1p-24)
	case exponent < 31:
		return float32(sign * math.Ldexp(1024+fraction, exponent-25))
	case fraction == 0:
		return float32(math.Inf(int(sign)))
	}
	return float32(math.NaN())
}

// F16Of returns the binary16 nearest to x, ties to even, in one rounding from float64. From 65520 on it is infinite; a
// NaN becomes a quiet one.
func F16Of(x float64) F16 {
	sign := F16(0)
	if math.Signbit(x) {
		sign, x = 0x8000, -x
	}
	switch {
	case x != x:
		return sign | 0x7e00
	case x >= MaxF16+16:
		return sign | 0x7c00
	case x < 0x1p-14: // subnormal: whole multiples of 2^-24, up to the least normal
		return sign | F16(math.RoundToEven(x*0x1p24))
	}
	fraction, exponent := math.Frexp(x) // of 0.5 to 1
	return sign | F16(exponent+13)<<10 + F16(math.RoundToEven(fraction*2048))
}

// F16At returns the first element of little-endian data.
func F16At(data []byte) F16 { return F16(binary.LittleEndian.Uint16(data)) }

// Put writes the bits at the start of data, little-endian.
func (b F16) Put(data []byte) { binary.LittleEndian.PutUint16(data, uint16(b)) }

// Append appends the bits to data, little-endian.
func (b F16) Append(data []byte) []byte { return binary.LittleEndian.AppendUint16(data, uint16(b)) }
