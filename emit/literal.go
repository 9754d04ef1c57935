package emit

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// literal is a constant's text. Integers are decimal, packed and raw bits hex.
func literal(v *ir.Value) expr {
	switch v.Type {
	case ir.Pred:
		return atom(strconv.FormatBool(v.Bits != 0))
	case ir.F32:
		return float(math.Float32frombits(uint32(v.Bits)))
	case ir.I32:
		return intLiteral(int32(v.Bits))
	case ir.U32:
		return atom(strconv.FormatUint(uint64(uint32(v.Bits)), 10) + "u")
	case ir.U64:
		return atom(strconv.FormatUint(v.Bits, 10) + "ull")
	case ir.BF16x2, ir.F16x2:
		if v.Bits == 0 {
			return atom("0u")
		}
		return atom(fmt.Sprintf("0x%08xu", uint32(v.Bits)))
	case ir.BF16, ir.F16, ir.U16, ir.E4M3x2:
		return expr{text: fmt.Sprintf("(%s)0x%04x", ctype(v.Type), uint16(v.Bits)), prec: precUnary}
	case ir.B128:
		return call("make_uint4", fmt.Sprintf("%du", uint32(v.Bits)), fmt.Sprintf("%du", uint32(v.Bits>>32)), "0u", "0u")
	}
	panic(fmt.Sprintf("BUG: emit: constant of type %s", v.Type))
}

func intLiteral(x int32) expr {
	e := atom(strconv.Itoa(int(x)))
	switch {
	case x == math.MinInt32:
		e = expr{text: "-2147483647 - 1", prec: precAdd}
	case x < 0:
		e.prec = precUnary
	}
	return withBits(e, strconv.FormatUint(uint64(uint32(x)), 10)+"u")
}

// hexLiteral is an integer constant as bits, for operands of bitwise ops.
func hexLiteral(v *ir.Value) expr {
	switch {
	case v.Bits < 10 || !v.Type.IsInt():
		return literal(v)
	case v.Type == ir.U64:
		return atom(fmt.Sprintf("0x%xull", v.Bits))
	case v.Type == ir.U32:
		return atom(fmt.Sprintf("0x%xu", uint32(v.Bits)))
	}
	e := expr{text: fmt.Sprintf("(i32)0x%xu", uint32(v.Bits)), prec: precUnary}
	return withBits(e, fmt.Sprintf("0x%xu", uint32(v.Bits)))
}

// withBits is the i32 constant e whose bits as a u32 are spelled u.
func withBits(e expr, u string) expr {
	bits := atom(u)
	e.wrap = &bits
	return e
}

// float is an f32 constant that every compiler reads back to the same bits;
// NaN, the infinities and what decimal digits cannot carry through a double
// are given as bits.
func float(x float32) expr {
	text := strconv.FormatFloat(float64(x), 'g', -1, 32)
	viaDouble, err := strconv.ParseFloat(text, 64)
	same := err == nil && math.Float32bits(float32(viaDouble)) == math.Float32bits(x)
	if !same || x != x || math.IsInf(float64(x), 0) {
		e := call("__uint_as_float", fmt.Sprintf("0x%08xu", math.Float32bits(x)))
		if math.IsInf(float64(x), 0) {
			e.text += " /* " + strings.ToLower(text) + " */"
		}
		return e
	}
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	e := atom(text + "f")
	if math.Signbit(float64(x)) {
		e.prec = precUnary
	}
	return e
}
