package quant

import (
	"fmt"
	"strings"
)

// Code is the type of a weight's codes.
type Code uint8

// The types of codes. Integers are signed; zero points are in the same range.
const (
	BF16 Code = iota // a number, not a code: the matrix is not quantised
	F16              // the same
	F32              // the same
	I4               // -8 … 7
	I8               // -128 … 127
	E4M3             // float8_e4m3fn, a byte
	E2M1             // 4 bits: a sign and 0, 0.5, 1, 1.5, 2, 3, 4, 6
)

// String returns the type's name in lower case.
func (c Code) String() string {
	return [...]string{"bf16", "f16", "f32", "i4", "i8", "e4m3", "e2m1"}[c]
}

// bits is the size of a code.
func (c Code) bits() int {
	if c == I4 || c == E2M1 {
		return 4
	}
	return 8
}

// Scale is the type of a scale as stored.
type Scale uint8

// The types of scales.
const (
	NoScale Scale = iota // the matrix is not quantised
	ScaleBF16
	ScaleF16
	ScaleF32
	ScaleE4M3 // float8_e4m3fn
	ScaleE8M0 // an exponent: 2^(byte-127), NaN for 255
)

// String returns the type's name in lower case.
func (s Scale) String() string {
	return [...]string{"none", "bf16", "f16", "f32", "e4m3", "e8m0"}[s]
}

// Global says how the one factor of a whole matrix enters the weights.
type Global uint8

// The uses of a global factor.
const (
	NoGlobal   Global = iota
	Multiplies        // weight = code * scale * factor, ModelOpt's convention
	Divides           // weight = code * scale / factor, that of compressed-tensors
)

// Format says how a matrix is quantised: weight = (code - zero point) * scale, with a scale a block.
type Format struct {
	Code   Code
	Scale  Scale
	Rows   int  // rows of a block; 0 for all
	Cols   int  // columns of a block; 0 for all
	Zeros  bool // there are zero points, else they are 0
	Global Global
}

// Quantised reports whether there are codes and scales.
func (f Format) Quantised() bool { return f.Code > F32 }

// String returns a short name: "bf16", "i4g128", "i4g32 with zero points", "e4m3 a block of 128x128".
func (f Format) String() string {
	if !f.Quantised() {
		return f.Code.String()
	}
	s := f.Code.String()
	switch {
	case f.Rows == 0 && f.Cols == 0:
		s += " a tensor"
	case f.Rows == 1 && f.Cols == 0:
		s += " a row"
	case f.Rows == 1:
		s += fmt.Sprintf("g%d", f.Cols)
	default:
		s += fmt.Sprintf(" a block of %dx%d", f.Rows, f.Cols)
	}
	with := []string{f.Scale.String() + " scales"}
	if f.Zeros {
		with = append(with, "zero points")
	}
	if f.Global != NoGlobal {
		with = append(with, "a global factor")
	}
	return s + " with " + strings.Join(with, ", ")
}
