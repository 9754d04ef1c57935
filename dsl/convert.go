package dsl

import "github.com/mkgen/mkgen/dsl/ir"

// Cast converts a value: to floats rounding to nearest even, from floats to
// integers toward zero (NaN gives 0, out of range the nearest bound), between
// integers by width. E4M3x2 to F16x2 is exact, element by element: e4m3 has 4
// exponent bits of bias 7, 3 bits of mantissa, subnormals, and NaN (0x7f, 0xff)
// but no infinities. Which pairs exist is ir's row of cvt.
func Cast[To, From Elem](a Val[From]) Val[To] {
	k := kern(a.k)
	if a.v != nil && a.v.Const && typeOf[From]().IsInt() && typeOf[To]().IsInt() {
		return lit[To](k, int64(a.v.Bits))
	}
	return op1[To](k, &ir.Instr{Op: ir.OpCvt, T: typeOf[To](), Args: []*ir.Value{a.v}})
}

// Bits sees the same bits as another type of the same size.
func Bits[To, From Elem](a Val[From]) Val[To] {
	return op1[To](kern(a.k), &ir.Instr{Op: ir.OpBits, T: typeOf[To](), Args: []*ir.Value{a.v}})
}

// Pack rounds two f32 to nearest even and packs them, lo in the low half. In
// E4M3x2 what is beyond ±448, infinities too, becomes ±448; NaN stays NaN.
func Pack[P Packed](lo, hi Val[F32]) Val[P] {
	var p P
	return op1[P](kern(lo.k, hi.k), &ir.Instr{Op: ir.OpPack, T: p.irType(), Args: []*ir.Value{lo.v, hi.v}})
}

// Unpack gives the two halves of a pair, exactly.
func Unpack[P Pair](a Val[P]) (lo, hi Val[F32]) {
	var p P
	vs := vals[F32](kern(a.k), &ir.Instr{Op: ir.OpUnpack, T: p.irType(), Args: []*ir.Value{a.v}}, 2)
	return vs[0], vs[1]
}

// Halves gives the two halves of a word.
func Halves(a Val[U32]) (lo, hi Val[U16]) {
	vs := vals[U16](kern(a.k), &ir.Instr{Op: ir.OpUnpack, T: ir.U32, Args: []*ir.Value{a.v}}, 2)
	return vs[0], vs[1]
}

// Split gives the four words of 128 bits, lowest first.
func Split(a Val[B128]) []Val[U32] {
	return vals[U32](kern(a.k), &ir.Instr{Op: ir.OpSplit, T: ir.B128, Args: []*ir.Value{a.v}}, 4)
}

// Join makes 128 bits of four words, lowest first.
func Join(a, b, c, d Val[U32]) Val[B128] {
	return op1[B128](kern(a.k, b.k, c.k, d.k), &ir.Instr{Op: ir.OpJoin, T: ir.B128, Args: []*ir.Value{a.v, b.v, c.v, d.v}})
}

// Permute picks four bytes out of the eight of a (bytes 0–3) and b (4–7);
// nibble i of selector says which byte becomes byte i (PTX prmt.b32, default mode).
func Permute(a, b Val[U32], selector uint16) Val[U32] {
	return op1[U32](kern(a.k, b.k), &ir.Instr{Op: ir.OpPrmt, T: ir.U32, Args: []*ir.Value{a.v, b.v},
		Attr: ir.Attr{Imm: int64(selector)}})
}

// XorAnd is (a ^ b) & mask, one instruction that the compiler does not take apart (PTX lop3.b32). Of a b that is
// constant it would make a ^ b once for several masks.
func XorAnd(a, b, mask Val[U32]) Val[U32] {
	const table = (0xf0 ^ 0xcc) & 0xaa
	return op1[U32](kern(a.k, b.k, mask.k),
		&ir.Instr{Op: ir.OpLop3, T: ir.U32, Args: []*ir.Value{a.v, b.v, mask.v}, Attr: ir.Attr{Imm: table}})
}

// Dot2 is c plus the low half of a times l plus its high half times h, modulo 2³² (PTX dp2a.lo.u32.s32): an instruction
// of the pipe that multiplies, where shifts and masks are of another.
func Dot2(a Val[U32], l, h int8, c Val[U32]) Val[U32] {
	k := kern(a.k, c.k)
	by := k.U32(int(uint8(l)) | int(uint8(h))<<8)
	return op1[U32](k, &ir.Instr{Op: ir.OpDot2, T: ir.U32, Args: []*ir.Value{a.v, by.v, c.v}})
}

// PermuteBy is Permute with the low 16 bits of a word as selector. A nibble from 8 on asks for the sign of
// the byte that it names without its top bit, in all eight bits.
func PermuteBy(a, b, selector Val[U32]) Val[U32] {
	return op1[U32](kern(a.k, b.k, selector.k),
		&ir.Instr{Op: ir.OpPrmtBy, T: ir.U32, Args: []*ir.Value{a.v, b.v, selector.v}})
}
