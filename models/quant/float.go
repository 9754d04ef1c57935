package quant

import (
	"encoding/binary"
	"math"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
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

// number returns the i-th element of little-endian data of a scale's type.
func (s Scale) number(data []byte, i int) float32 {
	switch s {
	case ScaleBF16:
		return half.BF16At(data[2*i:]).Float32()
	case ScaleF16:
		return half.F16At(data[2*i:]).Float32()
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
		return half.BF16Of(x).Float32()
	case models.F16:
		return half.F16Of(float64(x)).Float32()
	}
	return x
}
