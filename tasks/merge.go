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

// A thread loads the states of up to mergeAtOnce splits together; with twice as
// many nvcc spills at 168 registers, which is what 9 to 12 warps leave a thread.
// More are read mergeBatch at a time: a device loop of at least two rounds, since
// nvcc makes one loop body and its successor out of a single round.
const (
	mergeAtOnce = 64
	mergeBatch  = mergeAtOnce / 2
)

// element merges one element of the heads' outputs.
func (t *Merge) element(e *Env, i u32) {
	k := e.K
	head := i.DivC(t.D)
	if t.Splits > mergeAtOnce {
		t.elementInBatches(e, i, head)
		return
	}
	var lse, part []f32
	top := k.F32(math.Inf(-1))
	for s := range t.Splits {
		l := t.LSE.Load(head.AddC(s * t.Heads))
		if s == t.Splits-1 {
			l = t.biased(k, l)
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

func (t *Merge) biased(k *dsl.Kernel, lse f32) f32 {
	if t.LastBias == 0 {
		return lse
	}
	return lse.Add(k.F32(t.LastBias))
}

// elementInBatches is element for more splits than mergeAtOnce: one round over
// their log-sum-exps for the maximum, another for the sums. The order of the
// additions is the same.
func (t *Merge) elementInBatches(e *Env, i, head u32) {
	k := e.K
	top := dsl.NewVar(k.F32(math.Inf(-1)), "top")
	t.eachBatch(k, head, func(_ u32, lse []f32) {
		highest := top.Get()
		for _, l := range lse {
			highest = highest.Max(l)
		}
		top.Set(highest)
	})
	sumVar, outVar := dsl.NewVar(k.F32(0), "sum"), dsl.NewVar(k.F32(0), "out")
	t.eachBatch(k, head, func(from u32, lse []f32) {
		at := from.MulC(t.Heads * t.D).Add(i)
		sum, out := sumVar.Get(), outVar.Get()
		for s, l := range lse {
			weight := dsl.Exp2(l.Sub(top.Get()))
			sum = sum.Add(weight)
			out = dsl.FMA(weight, t.In.Load(at.AddC(s*t.Heads*t.D)), out)
		}
		sumVar.Set(sum)
		outVar.Set(out)
	})
	t.Out.Store(i, dsl.Cast[dsl.BF16](outVar.Get().Mul(dsl.Rcp(sumVar.Get()))))
}

// eachBatch calls body with the log-sum-exps of a head's splits from …, at most
// mergeBatch at a time: whole batches in a device loop, then 1 to mergeBatch more.
func (t *Merge) eachBatch(k *dsl.Kernel, head u32, body func(from u32, lse []f32)) {
	batch := func(from u32, n int) []f32 {
		at, lse := from.MulC(t.Heads).Add(head), []f32(nil)
		for s := range n {
			lse = append(lse, t.LSE.Load(at.AddC(s*t.Heads)))
		}
		return lse
	}
	whole := (t.Splits - 1) / mergeBatch * mergeBatch
	k.ForStep(k.U32(0), k.U32(whole), mergeBatch, func(from u32) { body(from, batch(from, mergeBatch)) }, dsl.Unroll(1))
	last := batch(k.U32(whole), t.Splits-whole)
	last[len(last)-1] = t.biased(k, last[len(last)-1])
	body(k.U32(whole), last)
}
