package tasks

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
)

// Merge combines the partial attention states of each query head: with weights
// 2^(lse − max) it is the ⊕ of FlashInfer (Ye et al. 2025), associative and
// commutative up to rounding, and computed in the order of the splits. A state
// of lse −inf is the neutral element (its output must be finite all the same; an
// empty part's is 0); at least one state of a head must not be, but with Table
// or a Variant's Mask, where none gives 0.
type Merge struct {
	Heads, D, Splits int
	In               dsl.Buf[dsl.F32]  // [Splits][Heads][D]
	LSE              dsl.Buf[dsl.F32]  // [Splits][Heads], base 2
	Out              dsl.Buf[dsl.BF16] // [Heads][D]

	// Table, if not nil, says which states there are instead of Splits: a plan's.
	// In is [partial][Group][D] and LSE [partial][Group] then, and Out is not used.
	Table *MergeTable
	// Variant is attention's: its states may be sums, and its Output hook is
	// applied here; nil for plain attention.
	Variant *Variant

	// LastBias is added to the last split's log-sum-exp; it is 0 but where a
	// fault is planted.
	LastBias float64
}

// Emit runs in the consumer warps: 32 elements a warp (64 with Table), spread
// over the CTAs first.
func (t *Merge) Emit(e *Env) { t.EmitIn(e, Step{}) }

// EmitIn is Emit in a step, which a variant's Output hook may ask for.
func (t *Merge) EmitIn(e *Env, s Step) {
	if t.Table != nil {
		t.emitTable(e, s)
		return
	}
	k := e.K
	n := t.Heads * t.D
	if n < 1 || t.Splits < 1 {
		k.Require(false, "merge: %d splits of %d heads of %d, want at least 1 of each", t.Splits, t.Heads, t.D)
		return
	}
	k.ForStep(e.Warp.MulC(e.Grid).Add(e.CTA), k.U32(ceilDiv(n, dsl.WarpSize)), e.Grid*e.Consumers, func(item u32) {
		i := item.MulC(dsl.WarpSize).Add(e.Lane).Named("i")
		if n%dsl.WarpSize == 0 {
			t.element(e, s, i)
		} else {
			k.If(i.LtC(n), func() { t.element(e, s, i) })
		}
	})
}

// maxUnrolledSplits bounds the splits whose states a thread holds in registers at once.
const maxUnrolledSplits = 32

// element merges element i of the output. Up to maxUnrolledSplits states all loads are
// in flight together.
func (t *Merge) element(e *Env, s Step, i u32) {
	if t.sums() {
		t.sumElement(e, s, i)
		return
	}
	if t.Splits > maxUnrolledSplits {
		t.longElement(e, s, i)
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
	base := t.base(e, top)
	for s := range t.Splits {
		weight := dsl.Exp2(lse[s].Sub(base))
		sum = sum.Add(weight)
		out = dsl.FMA(weight, part[s], out)
	}
	t.store(e, s, i, t.divide(e, out, sum))
}

// longElement is element with device loops, one for the maximum and one for the
// sum, in the same order: the same bits in few registers.
func (t *Merge) longElement(e *Env, s Step, i u32) {
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
	base := t.base(e, top.Get())
	k.For(k.U32(0), n, func(s u32) {
		weight := dsl.Exp2(lse(s).Sub(base))
		sum.Set(sum.Get().Add(weight))
		out.Set(dsl.FMA(weight, t.In.Load(i.Add(s.MulC(t.Heads*t.D))), out.Get()))
	}, dsl.Unroll(8))
	t.store(e, s, i, t.divide(e, out.Get(), sum.Get()))
}

// sumElement is element i of states that are sums.
func (t *Merge) sumElement(e *Env, s Step, i u32) {
	k := e.K
	out := dsl.NewVar(k.F32(0), "out")
	k.For(k.U32(0), k.U32(t.Splits), func(s u32) {
		out.Set(out.Get().Add(t.In.Load(i.Add(s.MulC(t.Heads * t.D)))))
	}, dsl.Unroll(8))
	t.store(e, s, i, out.Get())
}

func (t *Merge) sums() bool { return t.Variant != nil && t.Variant.Sum }

// masks is whether all states of a head may be empty.
func (t *Merge) masks() bool { return t.Table != nil || t.Variant != nil && t.Variant.Mask != nil }

// base is what is subtracted from log-sum-exps whose maximum is top.
func (t *Merge) base(e *Env, top f32) f32 {
	if t.masks() {
		return finite(e, top)
	}
	return top
}

// divide is out / sum, or 0 where nothing was summed.
func (t *Merge) divide(e *Env, out, sum f32) f32 {
	inverse := dsl.Rcp(sum)
	if t.masks() {
		inverse = dsl.Select(sum.EqC(0), e.K.F32(0), inverse)
	}
	return out.Mul(inverse)
}

// store writes element i of the output without a table.
func (t *Merge) store(e *Env, s Step, i u32, v f32) {
	if t.Variant != nil && t.Variant.Output != nil {
		q := t.Variant.query(e, s, t.Heads, i.DivC(t.D), e.K.U32(0), nil)
		v = t.Variant.Output(q, dsl.Optional(i.RemC(t.D)), v)
	}
	t.Out.Store(i, dsl.Cast[dsl.BF16](v))
}
