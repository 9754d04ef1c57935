package emit_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/stretchr/testify/require"
)

// group is a small kernel that spells some rows of the op table in all forms.
type group struct {
	name  string
	build func(k *dsl.Kernel)
}

func groups() []group {
	return []group{
		{"arith_int", arithInt}, {"arith_float", arithFloat}, {"compare", compare}, {"convert", convert},
		{"registers", registers}, {"variables", variables}, {"memory_weak", memoryWeak}, {"memory_ordered", memoryOrdered},
		{"atomics", atomics}, {"copies", copies}, {"bulk", bulk},
		{"barriers", barriers}, {"waits", waits}, {"packets", polling{}.packets},
		{"collectives", collectives},
		{"tensor", tensor}, {"tensor_bytes", tensorBytes},
		{"warpgroup", warpgroup}, {"cluster", cluster},
	}
}

// kernel builds and verifies one kernel of 2 CTAs of 4 warps.
func kernel(t testing.TB, name string, build func(k *dsl.Kernel)) *ir.Kernel {
	t.Helper()
	k := dsl.New(name, dsl.Options{Warps: 4, Grid: 2, Cluster: map[string]int{"cluster": 2}[name], SharedLimit: 227 << 10})
	build(k)
	out, err := k.Finish()
	require.NoError(t, err)
	return out
}

func arithInt(k *dsl.Kernel) {
	outI, outU, outL := dsl.Global[dsl.I32](k, "outi", 0), dsl.Global[dsl.U32](k, "outu", 0),
		dsl.Global[dsl.U64](k, "outl", 0)
	ia, ib := dsl.Scalar[dsl.I32](k, "ia", "a"), dsl.Scalar[dsl.I32](k, "ib", "")
	ua, ub := dsl.Scalar[dsl.U32](k, "ua", ""), dsl.Scalar[dsl.U32](k, "ub", "")
	la, lb := dsl.Scalar[dsl.U64](k, "la", ""), dsl.Scalar[dsl.U64](k, "lb", "")
	n := 0
	i := func(v dsl.Val[dsl.I32]) { outI.Store(dsl.At(n), v); n++ }
	i(ia.Add(ib).Add(k.I32(-3)))
	i(ia.Sub(ib.Mul(ia)))
	i(ia.Div(ib))
	i(ia.Rem(ib))
	i(ia.Min(ib))
	i(ia.Max(k.I32(-2147483648)))
	i(ia.Neg())
	i(ia.Abs())
	i(ia.And(ib).Or(k.I32(255)))
	i(ia.Xor(ib).Not())
	i(ia.Shl(ub))
	i(ia.ShlC(3))
	i(ia.Shr(ub))
	i(ia.ShrC(31))
	n = 0
	u := func(v dsl.Val[dsl.U32]) { outU.Store(dsl.At(n), v); n++ }
	u(ua.Add(ub).MulC(7))
	u(ua.Sub(ub.Sub(ua)))
	u(dsl.MulHi(ua, ub))
	u(ua.Div(ub).Rem(k.U32(10)))
	u(ua.Min(ub))
	u(ua.Max(k.U32(9)))
	u(ua.And(k.U32(0xff00)).Or(ub).Xor(ua.Not()))
	u(ua.Shl(ub))
	u(ua.Shl(ub.AndC(31)))
	u(ua.Shr(ub))
	u(ua.ShrC(4).AndC(15))
	again := dsl.Opaque(ua).Named("again")
	u(again.Mul(again))
	n = 0
	l := func(v dsl.Val[dsl.U64]) { outL.Store(dsl.At(n), v); n++ }
	l(la.Add(lb).Mul(k.U64(1 << 40)))
	l(la.Sub(lb))
	l(la.Div(lb))
	l(la.Rem(lb))
	l(la.Min(lb))
	l(la.Max(lb))
	l(la.And(lb).Or(k.U64(0xffff0000ffff)))
	l(la.Xor(lb).Not())
	l(la.Shl(ub))
	l(la.Shr(ub).ShrC(33))
}

func arithFloat(k *dsl.Kernel) {
	out := dsl.Global[dsl.F32](k, "out", 0)
	a, b, c := dsl.Scalar[dsl.F32](k, "a", ""), dsl.Scalar[dsl.F32](k, "b", ""), dsl.Scalar[dsl.F32](k, "c", "")
	n := 0
	f := func(v dsl.Val[dsl.F32]) { out.Store(dsl.At(n), v); n++ }
	f(a.Add(b).Add(c))
	f(a.Add(b.Add(c)))
	f(a.Sub(b.Sub(c)))
	f(a.Mul(b).Add(c))
	f(a.Mul(b).Mul(c).Max(a))
	f(a.Div(b))
	f(a.Min(b).Max(c))
	f(a.Neg().Neg())
	f(a.Abs().Neg())
	f(dsl.FMA(a, b, c))
	f(dsl.Exp2(a))
	f(dsl.Log2(a))
	f(dsl.Rcp(a))
	f(dsl.Rsqrt(a))
	f(dsl.Sqrt(a))
	f(dsl.Sin(a))
	f(dsl.Cos(a))
	f(dsl.Tanh(a))
	f(dsl.Rint(a))
	f(dsl.Floor(a))
}

func compare(k *dsl.Kernel) {
	out := dsl.Global[dsl.U32](k, "out", 0)
	a, b := dsl.Scalar[dsl.F32](k, "a", ""), dsl.Scalar[dsl.F32](k, "b", "")
	u, v := dsl.Scalar[dsl.U32](k, "u", ""), dsl.Scalar[dsl.U32](k, "v", "")
	n := 0
	p := func(p dsl.Pred) { out.Store(dsl.At(n), dsl.Select(p, k.U32(1), k.U32(0))); n++ }
	p(a.Eq(b))
	p(a.Ne(b))
	p(a.Lt(b).And(a.Le(b)))
	p(a.Gt(b).Or(a.Ge(b).And(u.Eq(v))))
	p(u.Lt(v).Xor(u.Ne(v)))
	p(u.GeC(5).Not())
	out.Store(dsl.At(n), dsl.Select(u.Lt(v), u.Add(v), dsl.Select(u.EqC(3), v, u)))
}

func convert(k *dsl.Kernel) {
	u := dsl.Global[dsl.U32](k, "u", 0)
	f := dsl.Global[dsl.F32](k, "f", 0)
	h, b := dsl.Global[dsl.F16](k, "h", 0), dsl.Global[dsl.BF16](k, "b", 0)
	s, l := dsl.Global[dsl.U16](k, "s", 0), dsl.Global[dsl.U64](k, "l", 0)
	i := dsl.Global[dsl.I32](k, "i", 0)
	q := dsl.Global[dsl.B128](k, "q", 0)
	x, y := f.Load(dsl.At(0)).Named("x"), f.Load(dsl.At(1)).Named("y")
	b.Store(dsl.At(0), dsl.Cast[dsl.BF16](x))
	h.Store(dsl.At(0), dsl.Cast[dsl.F16](x))
	f.Store(dsl.At(2), dsl.Cast[dsl.F32](b.Load(dsl.At(1))))
	f.Store(dsl.At(3), dsl.Cast[dsl.F32](h.Load(dsl.At(1))))
	i.Store(dsl.At(0), dsl.Cast[dsl.I32](x))
	u.Store(dsl.At(0), dsl.Cast[dsl.U32](x))
	n := u.Load(dsl.At(1)).Named("n")
	m := i.Load(dsl.At(1)).Named("m")
	f.Store(dsl.At(4), dsl.Cast[dsl.F32](n).Add(dsl.Cast[dsl.F32](m)))
	l.Store(dsl.At(0), dsl.Cast[dsl.U64](n).Add(dsl.Cast[dsl.U64](m)))
	w := l.Load(dsl.At(1)).Named("w")
	u.Store(dsl.At(2), dsl.Cast[dsl.U32](w).Add(dsl.Cast[dsl.U32](m)).Add(dsl.Cast[dsl.U32](s.Load(dsl.At(0)))))
	i.Store(dsl.At(2), dsl.Cast[dsl.I32](n).Add(dsl.Cast[dsl.I32](w)))
	s.Store(dsl.At(1), dsl.Cast[dsl.U16](n))
	u.Store(dsl.At(3), dsl.Bits[dsl.U32](x))
	i.Store(dsl.At(3), dsl.Bits[dsl.I32](x).Add(dsl.Bits[dsl.I32](n)))
	f.Store(dsl.At(5), dsl.Bits[dsl.F32](n).Add(dsl.Bits[dsl.F32](m)))
	s.Store(dsl.At(2), dsl.Bits[dsl.U16](dsl.Cast[dsl.BF16](y)))
	u.Store(dsl.At(4), dsl.Bits[dsl.U32](dsl.Pack[dsl.BF16x2](x, y)))
	lo, hi := dsl.Unpack(dsl.Pack[dsl.F16x2](x, y))
	f.Store(dsl.At(6), lo.Sub(hi))
	lo, hi = dsl.Unpack(dsl.Bits[dsl.BF16x2](n))
	f.Store(dsl.At(7), lo.Sub(hi))
	e := dsl.Global[dsl.E4M3x2](k, "e", 0)
	e.Store(dsl.At(0), dsl.Pack[dsl.E4M3x2](x, y))
	lo, hi = dsl.Unpack(dsl.Cast[dsl.F16x2](e.Load(dsl.At(1))))
	f.Store(dsl.At(8), lo.Sub(hi))
	lo, hi = dsl.Unpack(dsl.Cast[dsl.F16x2](dsl.Bits[dsl.E4M3x2](dsl.Cast[dsl.U16](n.ShrC(16)))))
	f.Store(dsl.At(9), lo.Sub(hi))
	low, high := dsl.Halves(n)
	s.Store(dsl.At(3), low)
	s.Store(dsl.At(4), high)
	p := dsl.Split(q.Load(dsl.At(0)))
	q.Store(dsl.At(1), dsl.Join(p[3], p[2], p[1], dsl.Permute(p[0], p[1], 0x5410).Xor(dsl.PermuteBy(p[0], p[1], p[2])).
		Xor(dsl.Dot2(p[0], 1, -1, p[1])).
		Xor(dsl.XorAnd(p[0], p[1], p[2]))))
}

func registers(k *dsl.Kernel) {
	out := dsl.Global[dsl.U32](k, "out", 0)
	times := dsl.Global[dsl.U64](k, "times", 0)
	e := dsl.Scalar[dsl.U32](k, "epoch", "steps since the start")
	at := k.CTA().MulC(128).Add(k.Tid()).Named("at")
	out.Store(at, k.Lane().Add(k.Warp().MulC(100)).Add(k.Grid()).Add(e))
	k.If(k.Tid().EqC(0), func() {
		start := k.Clock().Named("start")
		out.Store(dsl.At(0), k.SMID())
		times.Store(dsl.At(0), k.Clock().Sub(start))
		times.Store(dsl.At(1), k.GlobalTimer())
	})
	n := dsl.Uniform(out.Load(dsl.At(5)), dsl.CTAScope).Named("n")
	k.Assert(n.LtC(7), "n is small")
	out.Store(n, n)
}

func variables(k *dsl.Kernel) {
	out := dsl.Global[dsl.F32](k, "out", 0)
	xs := dsl.Global[dsl.F32](k, "xs", 64, dsl.ReadOnly())
	sums := dsl.NewArray(k.F32(0), 2, "sum")
	largest := dsl.NewVar(k.F32(negInf()), "largest")
	unused := dsl.NewVar(k.F32(0), "unused")
	k.For(k.U32(0), k.U32(64), func(i dsl.Val[dsl.U32]) {
		x := xs.Load(i)
		before := sums[0].Get()
		sums[0].Set(before.Add(x))
		sums[1].Set(dsl.FMA(before, x, sums[1].Get()))
		largest.Set(largest.Get().Max(x))
		unused.Set(x)
	}, dsl.Unroll(4))
	k.ForStep(k.Tid(), k.U32(512), 128, func(i dsl.Val[dsl.U32]) {
		k.IfElse(i.AndC(1).EqC(0), func() { out.Store(i, sums[0].Get()) },
			func() { out.Store(i, sums[1].Get().Mul(largest.Get())) })
	})
}
