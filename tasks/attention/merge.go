package attention

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

// Merge combines the partial attention states of each query head: with weights
// 2^(lse − max) it is the ⊕ of FlashInfer (Ye et al. 2025), associative and
// commutative up to rounding, and computed in the order of the splits. A state
// of lse −inf is the neutral element (its output must be finite all the same; an
// empty part's is 0); at least one state of a head must not be, but with Table
// or a Variant's Mask, where none gives 0.
type Merge struct {
	Heads, D, Splits int
	States           dsl.Buf[dsl.B128] // [Splits][Heads][D/2], see StatePackets and statePart
	Out              dsl.Buf[dsl.BF16] // [Heads][D]; not used with Packets

	// Packets, unless nil, is what the output is passed by.
	Packets *product.VectorPackets

	// Table, if not nil, says which states there are instead of Splits: a plan's.
	// States is [partial][Group][D/2] then, and Out is not used.
	Table *MergeTable
	// Variant is attention's: its states may be sums, and its Output hook is
	// applied here; nil for plain attention.
	Variant *Variant

	Format pipeline.Format // of the weights that are multiplied with the output, without a table

	// LastBias is added to the last split's log-sum-exp; it is 0 but where a
	// fault is planted. Steps without splits (Unsplit) merge nothing, so it has no effect there.
	LastBias float64
}

// Emit runs in the consumer warps: 64 elements a warp, spread over the CTAs first.
func (t *Merge) Emit(e *grid.Env) { t.EmitIn(e, Step{}) }

// EmitIn is Emit in a step, which a variant's Output hook may ask for.
func (t *Merge) EmitIn(e *grid.Env, s Step) {
	if t.Table != nil {
		t.emitTable(e, s)
		return
	}
	k := e.K
	k.Note("merge: partial states weighed by their log-sum-exps")
	n := t.Heads * t.D / 2
	if n < 1 || t.D%2 != 0 || t.Splits < 1 {
		k.Require(false, "merge: %d splits of %d heads of %d, want at least 1 of each, and an even head", t.Splits, t.Heads,
			t.D)
		return
	}
	items := pipeline.CeilDiv(n, dsl.WarpSize)
	k.ForStep(e.Warp.MulC(e.Grid).Add(e.CTA), k.U32(items), e.Grid*e.Consumers, func(item u32) {
		i := item.MulC(dsl.WarpSize).Add(e.Lane).Named("i")
		if n%dsl.WarpSize == 0 {
			t.pair(e, s, i, nil)
			return
		}
		has := i.LtC(n)
		t.pair(e, s, i.MinC(n-1), &has)
	})
}

// statesAtOnce is how many states are merged at once, wherever they are: more are merged n
// at a time, and what there is by then is weighed anew, in the same way by everybody.
const statesAtOnce = 24

// pair merges elements 2i and 2i + 1 of the output, in lanes that have some. Up to statesAtOnce states all
// loads are in flight together.
func (t *Merge) pair(e *grid.Env, s Step, i u32, has *dsl.Pred) {
	at := func(s u32) u32 { return i.Add(s.MulC(t.Heads * t.D / 2)) }
	var lo, hi f32
	if t.Splits <= statesAtOnce {
		var states []u32
		for s := range t.Splits {
			states = append(states, at(e.K.U32(s)))
		}
		lo, hi = t.unrolled(e, states)
	} else {
		lo, hi = t.states(e, e.K.U32(0), e.K.U32(t.Splits), at)
	}
	t.store(e, s, i, lo, hi, has)
}

// unrolled merges the states at these places, in their order.
func (t *Merge) unrolled(e *grid.Env, at []u32) (lo, hi f32) {
	return t.merged(e, parts(t.States, at))
}

// merged is the merge of one pair's parts of all states.
func (t *Merge) merged(e *grid.Env, parts []statePart) (lo, hi f32) {
	k := e.K
	sum, top := k.F32(0), k.F32(math.Inf(-1))
	lo, hi = k.F32(0), k.F32(0)
	if t.sums() {
		for _, p := range parts {
			lo, hi = lo.Add(p.lo), hi.Add(p.hi)
		}
		return lo, hi
	}
	if last := len(parts) - 1; t.LastBias != 0 {
		parts[last].lse = parts[last].lse.Add(k.F32(t.LastBias))
	}
	for _, p := range parts {
		top = top.Max(p.lse)
	}
	base := t.base(e, top)
	for _, p := range parts {
		weight := dsl.Exp2(p.lse.Sub(base))
		sum = sum.Add(weight)
		lo, hi = dsl.FMA(weight, p.lo, lo), dsl.FMA(weight, p.hi, hi)
	}
	return t.divide(e, lo, sum), t.divide(e, hi, sum)
}

func (t *Merge) sums() bool { return t.Variant != nil && t.Variant.Sum }

// masks is whether all states of a head may be empty.
func (t *Merge) masks() bool { return t.Table != nil || t.Variant != nil && t.Variant.Mask != nil }

// base is what is subtracted from log-sum-exps whose maximum is top.
func (t *Merge) base(e *grid.Env, top f32) f32 {
	if t.masks() {
		return finite(e, top)
	}
	return top
}

// divide is out / sum, or 0 where nothing was summed.
func (t *Merge) divide(e *grid.Env, out, sum f32) f32 {
	inverse := dsl.Rcp(sum)
	if t.masks() {
		inverse = dsl.Select(sum.EqC(0), e.K.F32(0), inverse)
	}
	return out.Mul(inverse)
}

// output is elements 2i and 2i + 1 of the output without a table.
func (t *Merge) output(e *grid.Env, s Step, i u32, lo, hi f32) pair {
	if t.Variant != nil && t.Variant.Output != nil {
		at := i.MulC(2)
		q := t.Variant.query(e, s, t.Heads, at.DivC(t.D), e.K.U32(0), nil)
		dim := at.RemC(t.D)
		lo, hi = t.Variant.Output(q, dsl.Optional(dim), lo), t.Variant.Output(q, dsl.Optional(dim.AddC(1)), hi)
	}
	return product.InputOf(e.K, t.Format, lo, hi)
}

// store writes that pair of the output, in lanes that have one; nil: all. All lanes of a warp come together, the i of
// lanes 2n and 2n + 1 are an even number and the next, and either both have a pair or none.
func (t *Merge) store(e *grid.Env, s Step, i u32, lo, hi f32, has *dsl.Pred) {
	if t.Packets == nil {
		e.IfPred(has, func() { dsl.View[dsl.BF16x2](t.Out).Store(i, t.output(e, s, i, lo, hi)) })
		return
	}
	var out pair
	if has == nil || t.Variant == nil || t.Variant.Output == nil {
		out = t.output(e, s, i, lo, hi)
	} else { // the hook may read what the pair's head has
		own := dsl.NewVar(dsl.Lit[dsl.BF16x2](e.K, 0), "output")
		e.K.If(*has, func() { own.Set(t.output(e, s, i, lo, hi)) })
		out = own.Get()
	}
	next := dsl.Bits[dsl.BF16x2](dsl.ShflXor(dsl.Bits[dsl.U32](out), 1))
	first := e.Lane.AndC(1).EqC(0)
	if has != nil {
		first = first.And(*has)
	}
	e.K.If(first, func() { t.Packets.StorePairs(e, i.DivC(2), out, next) })
}
