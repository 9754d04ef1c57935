package kernels

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

func integers(r *rows) {
	u, v, i, j := r.u, r.v, r.i, r.j
	r.put(ir.OpAdd, "u32", u.Add(v))
	r.putI(ir.OpAdd, "i32, wrapping", i.Add(j).Add(r.k.I32(math.MaxInt32)))
	r.put(ir.OpSub, "u32", u.Sub(v))
	r.putI(ir.OpSub, "i32", i.Sub(j))
	r.put(ir.OpMul, "u32", u.Mul(v))
	r.putI(ir.OpMul, "i32", i.Mul(j))
	r.put(ir.OpMulHi, "u32", dsl.MulHi(u, v))
	r.put(ir.OpDiv, "u32", u.Div(v.Or(r.k.U32(1))))
	r.putI(ir.OpDiv, "i32", i.Div(j.AndC(0x7fffff).Max(r.k.I32(2)).Neg()))
	r.put(ir.OpRem, "u32", u.Rem(v.Or(r.k.U32(1))))
	r.putI(ir.OpRem, "i32", i.Rem(j.AndC(0x7fffff).Max(r.k.I32(2)).Neg()))
	r.put(ir.OpMin, "u32", u.Min(v))
	r.putI(ir.OpMin, "i32", i.Min(j))
	r.put(ir.OpMax, "u32", u.Max(v))
	r.putI(ir.OpMax, "i32", i.Max(j))
	r.putI(ir.OpNeg, "i32", i.Neg())
	r.putI(ir.OpAbs, "i32", i.Abs())
	r.put(ir.OpAnd, "u32", u.And(v))
	r.put(ir.OpOr, "u32", u.Or(v))
	r.put(ir.OpXor, "u32", u.Xor(v))
	r.put(ir.OpNot, "u32", u.Not())
	r.put(ir.OpShl, "u32 by 0 to 79", u.Shl(r.amount))
	r.putI(ir.OpShl, "i32 by 0 to 79", i.Shl(r.amount))
	r.put(ir.OpShl, "u32 by 7", u.ShlC(7))
	r.put(ir.OpShr, "u32 by 0 to 79", u.Shr(r.amount))
	r.putI(ir.OpShr, "i32 by 0 to 79", i.Shr(r.amount))
	r.putI(ir.OpShr, "i32 by 7", i.ShrC(7))
	r.put(ir.OpPrmt, "0x5410", dsl.Permute(u, v, 0x5410))
	r.put(ir.OpPrmt, "0x3675 with sign copies", dsl.Permute(u, v, 0xb6fd))
	r.put(ir.OpLop3, "(a ^ b) & c", dsl.XorAnd(u, v, u.Add(v)))
	r.put(ir.OpDot2, "by −3 and 127", dsl.Dot2(u, -3, 127, v))
	r.put(ir.OpPrmtBy, "by u32", dsl.PermuteBy(u, v, u.Xor(v)))
}

func wideIntegers(r *rows) {
	l, m := r.l, r.m
	r.putL(ir.OpAdd, "u64", l.Add(m))
	r.putL(ir.OpSub, "u64", l.Sub(m))
	r.putL(ir.OpMul, "u64", l.Mul(m))
	r.putL(ir.OpDiv, "u64", l.Div(m))
	r.putL(ir.OpRem, "u64", l.Rem(m))
	r.putL(ir.OpMin, "u64", l.Min(m))
	r.putL(ir.OpMax, "u64", l.Max(m))
	r.putL(ir.OpAnd, "u64", l.And(m))
	r.putL(ir.OpOr, "u64", l.Or(m))
	r.putL(ir.OpXor, "u64", l.Xor(m))
	r.putL(ir.OpNot, "u64", l.Not())
	r.putL(ir.OpShl, "u64 by 0 to 79", l.Shl(r.amount))
	r.putL(ir.OpShr, "u64 by 0 to 79", l.Shr(r.amount))
}

func floats(r *rows) {
	f, g, h := r.f, r.g, r.h
	r.putF(ir.OpAdd, "f32", f.Add(g))
	r.putF(ir.OpSub, "f32", f.Sub(g))
	r.putF(ir.OpMul, "f32", f.Mul(g))
	r.putF(ir.OpMul, "f32 product and sum round twice", h.Mul(h).Add(h.Mul(r.k.F32(0.3)).Neg()))
	r.putF(ir.OpDiv, "f32", f.Div(g))
	r.putF(ir.OpFma, "f32", dsl.FMA(f, g, h))
	r.putF(ir.OpMin, "f32", f.Min(g)).Check = Zero
	r.putF(ir.OpMax, "f32", f.Max(g)).Check = Zero
	r.putF(ir.OpNeg, "f32", f.Neg())
	r.putF(ir.OpAbs, "f32", f.Abs())
	r.putF(ir.OpSqrt, "f32", dsl.Sqrt(f))
	r.putF(ir.OpRint, "f32", dsl.Rint(f))
	r.putF(ir.OpRint, "f32 halves", dsl.Rint(dsl.Cast[dsl.F32](r.at).Mul(r.k.F32(0.5))))
	r.putF(ir.OpFloor, "f32", dsl.Floor(f))
	r.put(ir.OpOpaque, "u32", dsl.Opaque(r.u))
	eps := math.Ldexp(1, -21)
	r.near(ir.OpExp2, "edge cases", dsl.Exp2(f), 1.2e-38, eps)
	r.near(ir.OpExp2, "plain", dsl.Exp2(h.Mul(r.k.F32(20))), 0, eps)
	r.near(ir.OpLog2, "edge cases", dsl.Log2(f), eps, eps)
	r.near(ir.OpRcp, "edge cases", dsl.Rcp(f), 1.2e-38, eps)
	r.near(ir.OpRsqrt, "edge cases", dsl.Rsqrt(f), 0, eps)
	r.near(ir.OpSin, "[-pi, pi]", dsl.Sin(h), math.Ldexp(1, -19), 0)
	r.near(ir.OpCos, "[-pi, pi]", dsl.Cos(h), math.Ldexp(1, -19), 0)
	r.near(ir.OpTanh, "edge cases", dsl.Tanh(f), 1.2e-38, math.Ldexp(1, -10))
	r.near(ir.OpTanh, "[-pi, pi]", dsl.Tanh(h), 0, math.Ldexp(1, -10))
}

func comparisons(r *rows) {
	f, g, u, v, i, j, l, m := r.f, r.g, r.u, r.v, r.i, r.j, r.l, r.m
	mask := func(op ir.Op, a, b, c, d dsl.Pred) {
		bit := func(p dsl.Pred, n int) dsl.Val[dsl.U32] { return dsl.Select(p, r.k.U32(n), r.k.U32(0)) }
		r.put(op, "f32, u32, i32 and u64 as bits", bit(a, 1).Or(bit(b, 2)).Or(bit(c, 4)).Or(bit(d, 8)))
	}
	mask(ir.OpEq, f.Eq(g), u.Eq(v), i.Eq(j), l.Eq(m))
	mask(ir.OpNe, f.Ne(g), u.Ne(v), i.Ne(j), l.Ne(m))
	mask(ir.OpLt, f.Lt(g), u.Lt(v), i.Lt(j), l.Lt(m))
	mask(ir.OpLe, f.Le(g), u.Le(v), i.Le(j), l.Le(m))
	mask(ir.OpGt, f.Gt(g), u.Gt(v), i.Gt(j), l.Gt(m))
	mask(ir.OpGe, f.Ge(g), u.Ge(v), i.Ge(j), l.Ge(m))
	r.put(ir.OpSelect, "u32", dsl.Select(u.Lt(v), u, v))
	r.putF(ir.OpSelect, "f32", dsl.Select(f.Lt(g), f, g))
	p, q := u.Lt(v), i.Lt(j)
	r.putP(ir.OpAnd, "pred", p.And(q))
	r.putP(ir.OpOr, "pred", p.Or(q))
	r.putP(ir.OpXor, "pred", p.Xor(q))
	r.putP(ir.OpNot, "pred", p.Not())
}

func conversions(r *rows) {
	half := func(b dsl.Val[dsl.U16]) dsl.Val[dsl.U32] { return dsl.Cast[dsl.U32](b) }
	r.put(ir.OpCvt, "f32 to bf16", half(dsl.Bits[dsl.U16](dsl.Cast[dsl.BF16](r.f))))
	r.put(ir.OpCvt, "f32 to f16", half(dsl.Bits[dsl.U16](dsl.Cast[dsl.F16](r.f))))
	r.put(ir.OpCvt, "f32 to f16, plain", half(dsl.Bits[dsl.U16](dsl.Cast[dsl.F16](r.h))))
	raw := dsl.Cast[dsl.U16](r.u)
	r.put(ir.OpCvt, "u32 to u16", half(raw))
	r.putF(ir.OpCvt, "bf16 to f32", dsl.Cast[dsl.F32](dsl.Bits[dsl.BF16](raw)))
	r.putF(ir.OpCvt, "f16 to f32", dsl.Cast[dsl.F32](dsl.Bits[dsl.F16](raw)))
	r.putI(ir.OpCvt, "f32 to i32", dsl.Cast[dsl.I32](r.f))
	r.put(ir.OpCvt, "f32 to u32", dsl.Cast[dsl.U32](r.f))
	r.putF(ir.OpCvt, "i32 to f32", dsl.Cast[dsl.F32](r.i))
	r.putF(ir.OpCvt, "u32 to f32", dsl.Cast[dsl.F32](r.u))
	r.putL(ir.OpCvt, "i32 to u64", dsl.Cast[dsl.U64](r.i))
	r.putI(ir.OpCvt, "u64 to i32", dsl.Cast[dsl.I32](r.l))
	r.put(ir.OpCvt, "i32 to u32", dsl.Cast[dsl.U32](r.i.Add(r.j)))
	r.putI(ir.OpCvt, "u32 to i32", dsl.Cast[dsl.I32](r.u.Add(r.v)))
	r.put(ir.OpBits, "f32 to u32", dsl.Bits[dsl.U32](r.h))
	r.putF(ir.OpBits, "u32 to f32", dsl.Bits[dsl.F32](r.u.AndC(0x7f7fffff)))
	r.put(ir.OpPack, "bf16x2", dsl.Bits[dsl.U32](dsl.Pack[dsl.BF16x2](r.f, r.h)))
	r.put(ir.OpPack, "f16x2", dsl.Bits[dsl.U32](dsl.Pack[dsl.F16x2](r.h, r.f)))
	lo, hi := dsl.Unpack(dsl.Bits[dsl.BF16x2](r.u))
	r.putF(ir.OpUnpack, "bf16x2, low", lo)
	r.putF(ir.OpUnpack, "bf16x2, high", hi)
	lo, hi = dsl.Unpack(dsl.Bits[dsl.F16x2](r.v))
	r.putF(ir.OpUnpack, "f16x2, low", lo)
	r.putF(ir.OpUnpack, "f16x2, high", hi)
	low, high := dsl.Halves(r.u)
	r.put(ir.OpUnpack, "u32, low", half(low))
	r.put(ir.OpUnpack, "u32, high", half(high))
	eightBits(r)
	for n, w := range dsl.Split(dsl.Join(r.u, r.v, r.at, r.amount)) {
		r.put([...]ir.Op{ir.OpSplit, ir.OpJoin, ir.OpSplit, ir.OpJoin}[n], "word", w)
	}
}

func highHalf(w dsl.Val[dsl.U32]) dsl.Val[dsl.U16] {
	_, hi := dsl.Halves(w)
	return hi
}

// eightBits packs to e4m3 and back. What a NaN's bits become is left open by the
// check, that it stays NaN is not.
func eightBits(r *rows) {
	wide := func(op ir.Op, name string, p dsl.Val[dsl.E4M3x2]) {
		lo, hi := dsl.Unpack(dsl.Cast[dsl.F16x2](p))
		r.putF(op, name+", low", lo)
		r.putF(op, name+", high", hi)
	}
	wide(ir.OpCvt, "every e4m3x2 to f16x2", dsl.Bits[dsl.E4M3x2](dsl.Cast[dsl.U16](r.at.MulC(0x0101).XorC(0x5a00))))
	wide(ir.OpCvt, "high half of a word to f16x2", dsl.Bits[dsl.E4M3x2](highHalf(r.u)))
	wide(ir.OpPack, "e4m3x2, edge cases", dsl.Pack[dsl.E4M3x2](r.f, r.g))
	bits := func(name string, lo, hi dsl.Val[dsl.F32]) {
		r.put(ir.OpPack, "e4m3x2, "+name, dsl.Cast[dsl.U32](dsl.Bits[dsl.U16](dsl.Pack[dsl.E4M3x2](lo, hi))))
	}
	bits("plain", r.h, r.h.Mul(r.k.F32(150)))
	small := dsl.Cast[dsl.F32](r.at).Mul(r.k.F32(0x1p-12)) // eighths of the least subnormal, ties between all
	bits("subnormals and zeros of both signs", small, small.Neg())
	code := r.at.AndC(0x7f).Min(r.k.U32(0x7e))
	tie := func(up float64) dsl.Val[dsl.F32] { // between code and the next, times up
		lo, hi := dsl.Unpack(dsl.Cast[dsl.F16x2](
			dsl.Bits[dsl.E4M3x2](dsl.Cast[dsl.U16](code.Add(code.AddC(1).Min(r.k.U32(0x7e)).ShlC(8))))))
		return lo.Add(hi).Mul(r.k.F32(0.5 * up))
	}
	bits("ties", tie(1), tie(-1))
	bits("next to ties", tie(1-0x1p-23), tie(1+0x1p-23))
	beyond := dsl.Cast[dsl.F32](r.at.AddC(320)) // 320 to 575
	bits("at most 448", beyond, beyond.Neg().Mul(r.k.F32(1e30)))
}

func registersAndVars(r *rows) {
	k := r.k
	r.put(ir.OpLane, "", k.Lane())
	r.put(ir.OpWarp, "", k.Warp())
	r.put(ir.OpTid, "", k.Tid())
	r.put(ir.OpCTA, "", k.CTA())
	r.put(ir.OpGrid, "", k.Grid())
	r.putP(ir.OpSMID, "below 1024", k.SMID().LtC(1024))
	start, begin := k.Clock().Named("start"), k.GlobalTimer().Named("begin")
	k.Nanosleep(k.U32(200))
	r.putP(ir.OpClock, "does not run backwards", k.Clock().Ge(start))
	r.putP(ir.OpGlobalTimer, "does not run backwards", k.GlobalTimer().Ge(begin))
	r.put(ir.OpNanosleep, "done", k.U32(1))
	r.put(ir.OpParam, "u32", scalar[dsl.U32](r, "a_word", 0x89abcdef))
	r.putI(ir.OpParam, "i32", scalar[dsl.I32](r, "a_signed", 0xfffffff6))
	r.putL(ir.OpParam, "u64", scalar[dsl.U64](r, "a_wide", 0x0123456789abcdef))
	r.putF(ir.OpParam, "f32", scalar[dsl.F32](r, "a_float", uint64(math.Float32bits(-0.1))))
	sum := dsl.NewVar(r.u, "sum")
	k.For(k.U32(0), k.Lane().AddC(3), func(n dsl.Val[dsl.U32]) {
		before := sum.Get()
		sum.Set(before.MulC(3).Add(n))
		k.IfElse(before.AndC(1).EqC(0), func() { sum.Set(sum.Get().Xor(r.v)) }, func() { sum.Set(sum.Get().Add(before)) })
	})
	r.put(ir.OpGet, "after a loop", sum.Get())
	sum.Set(k.U32(0))
	k.ForStep(k.Lane(), k.U32(200), 32, func(n dsl.Val[dsl.U32]) { sum.Set(sum.Get().MulC(5).Add(n)) }, dsl.Unroll(4))
	r.put(ir.OpSet, "in an unrolled loop", sum.Get())
	r.put(ir.OpVar, "its first value", dsl.NewVar(r.v, "first").Get())
	n := dsl.Uniform(k.CTA().AddC(3), dsl.CTAScope)
	r.put(ir.OpUniform, "", n)
	k.Assert(n.LtC(100), "there are few CTAs")
	r.put(ir.OpAssert, "passed", k.U32(1))
}
