package tasks

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
)

// Merge combines the partial attention states of each query head: with weights
// 2^(lse − max) it is the ⊕ of FlashInfer (Ye et al. 2025), associative and
// commutative up to rounding, and computed in the order of the splits. A state
// of lse −inf is the neutral element (its output must be finite all the same; an
// empty part's is 0); at least one state of a head must not be.
type Merge struct {
	Heads, D, Splits int
	In               dsl.Buf[dsl.F32]  // [Splits][Heads][D]
	LSE              dsl.Buf[dsl.F32]  // [Splits][Heads], base 2
	Out              dsl.Buf[dsl.BF16] // [Heads][D]

	// LastBias is added to the last split's log-sum-exp; it is 0 but where a
	// fault is planted.
	LastBias float64
}

// Emit runs in the consumer warps: 32 elements a warp, spread over the CTAs
// first.
func (t *Merge) Emit(e *Env) {
	k := e.K
	n := t.Heads * t.D
	if n < 1 || t.Splits < 1 {
		k.Require(false, "merge: %d splits of %d heads of %d, want at least 1 of each", t.Splits, t.Heads, t.D)
		return
	}
	k.ForStep(e.Warp.MulC(e.Grid).Add(e.CTA), k.U32(ceilDiv(n, dsl.WarpSize)), e.Grid*e.Consumers, func(item u32) {
		i := item.MulC(dsl.WarpSize).Add(e.Lane).Named("i")
		if n%dsl.WarpSize == 0 {
			t.element(e, i)
		} else {
			k.If(i.LtC(n), func() { t.element(e, i) })
		}
	})
}

// maxUnrolledSplits bounds the splits whose states a thread holds in registers at once.
const maxUnrolledSplits = 32

// element merges element i of the output. Up to maxUnrolledSplits states all loads are
// in flight together.
func (t *Merge) element(e *Env, i u32) {
	if t.Splits > maxUnrolledSplits {
		t.longElement(e, i)
		return
	}
	k := e.K
	head := i.DivC(t.D)
	var lse, part []f32
	top := k.F32(math.Inf(-1))
	for s := range t.Splits {
		l := t.LSE.Load(head.AddC(s * t.Heads))
		if s == t.Splits-1 && t.LastBias != 0 {
			l = l.Add(k.F32(t.LastBias))
		}
		lse = append(lse, l)
		part = append(part, t.In.Load(i.AddC(s*t.Heads*t.D)))
		top = top.Max(lse[s])
	}
	sum, out := k.F32(0), k.F32(0)
	for s := range t.Splits {
		weight := dsl.Exp2(lse[s].Sub(top))
		sum = sum.Add(weight)
		out = dsl.FMA(weight, part[s], out)
	}
	t.Out.Store(i, dsl.Cast[dsl.BF16](out.Mul(dsl.Rcp(sum))))
}

// longElement is element with device loops, one for the maximum and one for the
// sum, in the same order: the same bits in few registers.
func (t *Merge) longElement(e *Env, i u32) {
	k := e.K
	head, n, last := i.DivC(t.D), k.U32(t.Splits), t.Splits-1
	lse := func(s u32) f32 {
		l := t.LSE.Load(head.Add(s.MulC(t.Heads)))
		if t.LastBias != 0 {
			l = dsl.Select(s.EqC(last), l.Add(k.F32(t.LastBias)), l)
		}
		return l
	}
	top := dsl.NewVar(k.F32(math.Inf(-1)), "top")
	k.For(k.U32(0), n, func(s u32) { top.Set(top.Get().Max(lse(s))) }, dsl.Unroll(8))
	sum, out := dsl.NewVar(k.F32(0), "sum"), dsl.NewVar(k.F32(0), "out")
	k.For(k.U32(0), n, func(s u32) {
		weight := dsl.Exp2(lse(s).Sub(top.Get()))
		sum.Set(sum.Get().Add(weight))
		out.Set(dsl.FMA(weight, t.In.Load(i.Add(s.MulC(t.Heads*t.D))), out.Get()))
	}, dsl.Unroll(8))
	t.Out.Store(i, dsl.Cast[dsl.BF16](out.Get().Mul(dsl.Rcp(sum.Get()))))
}
