package quant

import (
	"encoding/binary"
	"math"

	"github.com/mkgen/mkgen/models"
)

// e2m1 holds the numbers that four bits stand for.
var e2m1 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}

// e4m3 holds the numbers that a byte of float8_e4m3fn stands for.
var e4m3 = func() (table [256]float32) {
	for i := range table {
		table[i] = fromE4M3(byte(i))
	}
	return table
}()

// FromE4M3 returns the number that a byte of float8_e4m3fn stands for.
func FromE4M3(code byte) float32 { return e4m3[code] }

// fromE4M3 decodes a sign, 4 bits of exponent with bias 7 and 3 of fraction. There are no infinities; 0x7f and
// 0xff are NaN.
func fromE4M3(b byte) float32 {
	sign := float32(1 - 2*int(b>>7))
	exponent, fraction := int(b>>3&15), float64(b&7)
	switch {
	case b&0x7f == 0x7f:
		return float32(math.NaN())
	case b&0x7f == 0:
		return float32(math.Copysign(0, float64(sign)))
	case exponent == 0:
		return sign * float32(fraction*0x1p-9)
	}
	return sign * float32(math.Ldexp(1+fraction/8, exponent-7))
}

// fromE8M0 decodes an exponent.
func fromE8M0(b byte) float32 {
	if b == 255 {
		return float32(math.NaN())
	}
	return float32(math.Ldexp(1, int(b)-127))
}

// FromF16 decodes an IEEE binary16.
func FromF16(bits uint16) float32 {
	sign := float64(1 - 2*int(bits>>15))
	exponent, fraction := int(bits>>10&31), float64(bits&0x3ff)
	switch {
	case exponent == 31 && fraction != 0:
		return float32(math.NaN())
	case exponent == 31:
		return float32(math.Inf(int(sign)))
	case exponent == 0:
		return float32(math.Copysign(fraction*0x1p-24, sign))
	}
	return float32(sign * math.Ldexp(1+fraction/1024, exponent-15))
}

// fromBF16 decodes a bfloat16.
func fromBF16(bits uint16) float32 { return math.Float32frombits(uint32(bits) << 16) }

// number returns the i-th element of little-endian data of a scale's type.
func (s Scale) number(data []byte, i int) float32 {
	switch s {
	case ScaleBF16:
		return fromBF16(binary.LittleEndian.Uint16(data[2*i:]))
	case ScaleF16:
		return FromF16(binary.LittleEndian.Uint16(data[2*i:]))
	case ScaleF32:
		return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	case ScaleE4M3:
		return e4m3[data[i]]
	case ScaleE8M0:
		return fromE8M0(data[i])
	}
	panic("BUG: quant: number of type " + s.String())
}

// Round returns x rounded to nearest, ties to even, in type t; x itself where t is unstated.
func Round(x float32, t models.DType) float32 {
	switch t {
	case models.BF16:
		return roundBF16(x)
	case models.F16:
		return roundF16(x)
	}
	return x
}

func roundBF16(x float32) float32 {
	if x != x {
		return x
	}
	bits := math.Float32bits(x)
	return math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff)
}

// roundF16 drops 13 bits of the fraction, or in the range of subnormals all below 2^-24. From 65520 on it is infinite.
func roundF16(x float32) float32 {
	switch magnitude := math.Abs(float64(x)); {
	case magnitude >= 65520:
		return float32(math.Copysign(math.Inf(1), float64(x)))
	case magnitude >= 0x1p-14:
		bits := math.Float32bits(x)
		return math.Float32frombits((bits + 0xfff + bits>>13&1) &^ 0x1fff)
	default: // a NaN too
		return float32(math.Copysign(math.RoundToEven(magnitude*0x1p24)*0x1p-24, float64(x)))
	}
}

// F16Bits returns the bits of an IEEE binary16 that x is exactly.
func F16Bits(x float32) uint16 {
	sign := uint16(math.Float32bits(x) >> 16 & 0x8000)
	magnitude := math.Abs(float64(x))
	switch {
	case magnitude < 0x1p-14:
		return sign | uint16(magnitude*0x1p24)
	case math.IsInf(magnitude, 0):
		return sign | 0x7c00
	}
	fraction, exponent := math.Frexp(magnitude)
	return sign | uint16(exponent+13)<<10 + uint16(fraction*2048) // fraction's first bit is the exponent's last
}
