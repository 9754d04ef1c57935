package dsl

import "github.com/mkgen/mkgen/dsl/ir"

// kern finds the kernel of the first usable operand; it panics when none was
// built by a kernel, since then there is nowhere to record the mistake.
func kern(ks ...*Kernel) *Kernel {
	for _, k := range ks {
		if k != nil {
			return k
		}
	}
	panic("dsl: a zero Val is used: it belongs to no kernel")
}

func bin[T, R Elem](op ir.Op, a, b Val[T]) Val[R] {
	k := kern(a.k, b.k)
	if v := k.fold(op, a.v, b.v); v != nil {
		return Val[R]{k: k, v: v}
	}
	x, y := k.regroup(op, a.v, b.v)
	return op1[R](k, &ir.Instr{Op: op, T: typeOf[R](), Args: []*ir.Value{x, y}})
}

func un[T Elem](op ir.Op, a Val[T]) Val[T] {
	return op1[T](kern(a.k), &ir.Instr{Op: op, T: typeOf[T](), Args: []*ir.Value{a.v}})
}

// Add is a + b; integers wrap.
func (a Val[T]) Add(b Val[T]) Val[T] { return bin[T, T](ir.OpAdd, a, b) }

// Sub is a − b; integers wrap.
func (a Val[T]) Sub(b Val[T]) Val[T] { return bin[T, T](ir.OpSub, a, b) }

// Mul is a · b; integers keep the low half.
func (a Val[T]) Mul(b Val[T]) Val[T] { return bin[T, T](ir.OpMul, a, b) }

// Div is a / b: truncated for integers (b = 0 stops the executor), IEEE for f32.
func (a Val[T]) Div(b Val[T]) Val[T] { return bin[T, T](ir.OpDiv, a, b) }

// Rem is a mod b for integers, with the sign of a; b = 0 stops the executor.
func (a Val[T]) Rem(b Val[T]) Val[T] { return bin[T, T](ir.OpRem, a, b) }

// Min is the smaller; for f32 the other operand where one is NaN.
func (a Val[T]) Min(b Val[T]) Val[T] { return bin[T, T](ir.OpMin, a, b) }

// Max is the larger; for f32 the other operand where one is NaN.
func (a Val[T]) Max(b Val[T]) Val[T] { return bin[T, T](ir.OpMax, a, b) }

// And is the bitwise and of integers.
func (a Val[T]) And(b Val[T]) Val[T] { return bin[T, T](ir.OpAnd, a, b) }

// Or is the bitwise or of integers.
func (a Val[T]) Or(b Val[T]) Val[T] { return bin[T, T](ir.OpOr, a, b) }

// Xor is the bitwise exclusive or of integers.
func (a Val[T]) Xor(b Val[T]) Val[T] { return bin[T, T](ir.OpXor, a, b) }

// Not is the bitwise complement of an integer.
func (a Val[T]) Not() Val[T] { return un(ir.OpNot, a) }

// Neg is −a for i32 and f32.
func (a Val[T]) Neg() Val[T] { return un(ir.OpNeg, a) }

// Abs is |a| for i32 and f32.
func (a Val[T]) Abs() Val[T] { return un(ir.OpAbs, a) }

// AddC is a + c for a Go constant.
func (a Val[T]) AddC(c int) Val[T] { return a.Add(Lit[T](kern(a.k), int64(c))) }

// SubC is a − c for a Go constant.
func (a Val[T]) SubC(c int) Val[T] { return a.Sub(Lit[T](kern(a.k), int64(c))) }

// MulC is a · c for a Go constant.
func (a Val[T]) MulC(c int) Val[T] { return a.Mul(Lit[T](kern(a.k), int64(c))) }

// DivC is a / c for a Go constant other than 0.
func (a Val[T]) DivC(c int) Val[T] {
	k := kern(a.k)
	if c == 0 {
		k.errorf("div: divides by the constant 0")
		return a
	}
	return a.Div(Lit[T](k, int64(c)))
}

// RemC is a mod c for a Go constant other than 0.
func (a Val[T]) RemC(c int) Val[T] {
	k := kern(a.k)
	if c == 0 {
		k.errorf("rem: divides by the constant 0")
		return a
	}
	return a.Rem(Lit[T](k, int64(c)))
}

// AndC is a & c for a Go constant.
func (a Val[T]) AndC(c int) Val[T] { return a.And(Lit[T](kern(a.k), int64(c))) }

// XorC is a ^ c for a Go constant.
func (a Val[T]) XorC(c int) Val[T] { return a.Xor(Lit[T](kern(a.k), int64(c))) }

// MinC is the smaller of a and a Go constant.
func (a Val[T]) MinC(c int) Val[T] { return a.Min(Lit[T](kern(a.k), int64(c))) }

// MaxC is the larger of a and a Go constant.
func (a Val[T]) MaxC(c int) Val[T] { return a.Max(Lit[T](kern(a.k), int64(c))) }

// Shl shifts an integer left by n bits; 0 when n is the width or more.
func (a Val[T]) Shl(n Val[U32]) Val[T] { return shift(ir.OpShl, a, n) }

// Shr shifts an integer right by n bits; i32 keeps its sign.
func (a Val[T]) Shr(n Val[U32]) Val[T] { return shift(ir.OpShr, a, n) }

// ShlC shifts left by a Go constant.
func (a Val[T]) ShlC(n int) Val[T] { return a.Shl(kern(a.k).U32(n)) }

// ShrC shifts right by a Go constant.
func (a Val[T]) ShrC(n int) Val[T] { return a.Shr(kern(a.k).U32(n)) }

func shift[T Elem](op ir.Op, a Val[T], n Val[U32]) Val[T] {
	k := kern(a.k, n.k)
	if v := k.fold(op, a.v, n.v); v != nil {
		return Val[T]{k: k, v: v}
	}
	return op1[T](k, &ir.Instr{Op: op, T: typeOf[T](), Args: []*ir.Value{a.v, n.v}})
}

// MulHi is the high half of the 64-bit product.
func MulHi(a, b Val[U32]) Val[U32] { return bin[U32, U32](ir.OpMulHi, a, b) }

// FMA is a·b + c with one rounding.
func FMA(a, b, c Val[F32]) Val[F32] {
	return op1[F32](kern(a.k, b.k, c.k), &ir.Instr{Op: ir.OpFma, T: ir.F32, Args: []*ir.Value{a.v, b.v, c.v}})
}

// Exp2 is 2^a, approximate (2 ulp); −inf gives 0.
func Exp2(a Val[F32]) Val[F32] { return un(ir.OpExp2, a) }

// Log2 is the binary logarithm, approximate; 0 gives −inf, negative NaN.
func Log2(a Val[F32]) Val[F32] { return un(ir.OpLog2, a) }

// Rcp is 1/a, approximate (1 ulp); 0 gives infinity.
func Rcp(a Val[F32]) Val[F32] { return un(ir.OpRcp, a) }

// Rsqrt is 1/√a, approximate; 0 gives infinity.
func Rsqrt(a Val[F32]) Val[F32] { return un(ir.OpRsqrt, a) }

// Sqrt is the IEEE square root.
func Sqrt(a Val[F32]) Val[F32] { return un(ir.OpSqrt, a) }

// Sin is approximate, absolute error about 5e-7 for a in [−π, π]; reduce first
// (the executor stops at angles beyond 3.25).
func Sin(a Val[F32]) Val[F32] { return un(ir.OpSin, a) }

// Cos is approximate, absolute error about 5e-7 for a in [−π, π]; reduce first
// (the executor stops at angles beyond 3.25).
func Cos(a Val[F32]) Val[F32] { return un(ir.OpCos, a) }

// Tanh is approximate (relative error about 2^-11).
func Tanh(a Val[F32]) Val[F32] { return un(ir.OpTanh, a) }

// Rint rounds to the nearest integer, ties to even.
func Rint(a Val[F32]) Val[F32] { return un(ir.OpRint, a) }

// Opaque is a, but the compiler does not know that: whatever is computed of it is computed behind this place, and not
// once before the loop around it and kept in a register, which may have to be spilled.
func Opaque(a Val[U32]) Val[U32] { return un(ir.OpOpaque, a) }

// Floor rounds toward −inf.
func Floor(a Val[F32]) Val[F32] { return un(ir.OpFloor, a) }
