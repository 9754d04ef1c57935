package sample

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

// search takes the i-th histogram of the rows that look for where top-k or top-p ends, and goes on with them.
func (t *Sample) search(e *grid.Env, share product.Share, bar *grid.Barrier, i u32) {
	k := e.K
	each := func(body func(j u32)) { k.ForStep(e.Tid, t.Count.MulC(rowBins), e.Threads(), body, dsl.Unroll(4)) }
	each(func(j u32) { t.Shared.Store(j, k.U32(0)) })
	e.Sync()
	t.teamRows(e, func(row, thread u32) {
		k.If(t.searches(row).And(t.listed(row).Not()), func() { t.count(e, share, row, thread) })
	})
	t.ownRows(e, func(row u32) { k.If(t.searches(row).And(t.listed(row)), func() { t.countListed(e, row) }) })
	e.Sync()
	k.IfElse(t.any(e, func(row u32) dsl.Pred { return t.isSearching(row).And(t.state(row, stateList).EqC(0)) }), func() {
		each(func(j u32) {
			n := t.Shared.Load(j)
			k.If(n.NeC(0).And(t.state(j.DivC(rowBins), stateList).EqC(0)), func() {
				dsl.ReduceAdd(t.Bins, i.MulC(t.T*rowBins).Add(j), n, dsl.Relaxed(dsl.GPUScope))
			})
		})
		bar.Sync()
	}, e.Sync) // all have read the states
	t.ownRows(e, func(row u32) {
		wait := t.in(row, modeTopK).And(t.listedFirst(row)) // with top-p, whose first histogram is not there any more
		k.If(t.in(row, modeTopK), func() { t.findK(e, row, i) })
		k.SyncWarp()
		k.If(t.in(row, modeTopP).And(wait.Not()), func() { t.findP(e, row, i) })
	})
	e.Sync()
}

// count adds the CTA's logits of a row to its histogram in shared memory.
func (t *Sample) count(e *grid.Env, share product.Share, row, thread u32) {
	add := t.adder(e, row)
	t.eachFour(e, share, row, thread, once, func(_ u32, x []f32) {
		for i := range x {
			add(x[i])
		}
	})
}

// adder returns what adds a logit to a row's histogram in shared memory.
func (t *Sample) adder(e *grid.Env, row u32) func(x f32) {
	k := e.K
	top, nats := t.stateF32(row, stateTop), t.paramF32(row, draw.RowNats)
	lo, shift := t.state(row, stateLo), t.state(row, stateShift)
	scale := k.F32(float64(uint32(1) << draw.MassBits(t.Vocab)))
	return func(x f32) {
		d := distance(k, top, x, nats)
		bin := dsl.Select(d.Ge(lo), d.Sub(lo).Shr(shift), k.U32(draw.Bins))
		k.If(bin.LtC(draw.Bins), func() {
			within := dsl.Cast[dsl.F32](d.AndC(1<<draw.TopShift - 1))
			mass := dsl.Exp2(within.Mul(k.F32(float64(float32(-math.Log2E / (1 << draw.NatBits)))))).Mul(scale).Add(k.F32(0.5))
			at := row.MulC(rowBins).Add(bin.MulC(binWords))
			dsl.ReduceAdd(t.Shared, at, k.U32(1), dsl.Relaxed(dsl.CTAScope))
			dsl.ReduceAdd(t.Shared, at.AddC(1), dsl.Cast[dsl.U32](mass), dsl.Relaxed(dsl.CTAScope))
		})
	}
}

// A histogram as a warp has it: each lane a few neighbouring bins.
type histogram struct {
	first         u32   // the lane's first bin
	count         []u32 // tokens
	before        []u32 // tokens before each bin
	lighter, mass []f32 // weight before and through each bin
}

// histogram reads the which-th histogram of a row whose stretch begins at lo: that of all CTAs, or where the row is
// listed and the stretch is not of before, this CTA's.
func (t *Sample) histogram(e *grid.Env, row, which, lo, shift u32, mass f32) histogram {
	k, h := e.K, histogram{}
	const each = draw.Bins / dsl.WarpSize
	h.first = e.Lane.MulC(each)
	at := row.MulC(rowBins).Add(h.first.MulC(binWords))
	words := dsl.NewArray(k.U32(0), each*binWords, "words")
	read := func(b dsl.Buf[dsl.U32], at u32) {
		for i := 0; i < len(words); i += 4 {
			for j, v := range b.LoadN(at.AddC(i), 4) {
				words[i+j].Set(v)
			}
		}
	}
	k.IfElse(t.listed(row).And(shift.NeC(draw.TopShift)).Or(t.listedFirst(row)), func() { read(t.Shared, at) },
		func() { read(t.Bins, which.MulC(t.T*rowBins).Add(at)) })
	var w []f32
	for i := range each {
		h.count = append(h.count, words[binWords*i].Get())
		start := dsl.Cast[dsl.F32](lo.Add(h.first.AddC(i).Shl(shift)).ShrC(draw.TopShift))
		w = append(w, dsl.Cast[dsl.F32](words[binWords*i+1].Get()).
			Mul(dsl.Exp2(start.Mul(k.F32(float64(float32(-math.Log2E/(1<<(draw.NatBits-draw.TopShift)))))))))
	}
	sum := scan(e, w, f32.Add, k.F32(0))
	end := mass.Add(sum)
	run := mass.Add(dsl.Select(e.Lane.EqC(0), k.F32(0), dsl.ShflUp(sum, 1)))
	for i := range each {
		h.lighter = append(h.lighter, run)
		if i == each-1 {
			run = end
		} else {
			run = run.Add(w[i]).Min(end)
		}
		h.mass = append(h.mass, run)
	}
	return h
}

// scan is the sum of a lane's values and of all lanes' below.
func scan[T dsl.Word](e *grid.Env, values []dsl.Val[T], add func(a, b dsl.Val[T]) dsl.Val[T],
	zero dsl.Val[T]) dsl.Val[T] {
	sum := values[0]
	for _, v := range values[1:] {
		sum = add(sum, v)
	}
	for d := 1; d < dsl.WarpSize; d *= 2 {
		sum = add(sum, dsl.Select(e.Lane.LtC(d), zero, dsl.ShflUp(sum, d)))
	}
	return sum
}

// positions fills in how many tokens lie before each bin, how many of them before the stretch.
func (h *histogram) positions(e *grid.Env, count u32) {
	k := e.K
	n := scan(e, h.count, u32.Add, k.U32(0))
	total := count.Add(dsl.Select(e.Lane.EqC(0), k.U32(0), dsl.ShflUp(n, 1)))
	for i, c := range h.count {
		h.before = append(h.before, total)
		if i < len(h.count)-1 {
			total = total.Add(c)
		}
	}
}

// bin is one bin of a histogram.
type bin struct {
	found                *dsl.Var[dsl.U32] // 0: no bin of this lane
	at, count, before    *dsl.Var[dsl.U32]
	lighter, throughMass *dsl.Var[dsl.F32]
}

// find is the bin for which is holds, of one at most in the warp.
func (h *histogram) find(k *dsl.Kernel, is func(i int) dsl.Pred) bin {
	zero, none := k.U32(0), k.F32(0)
	b := bin{dsl.NewVar(zero, "found"), dsl.NewVar(zero, "bin"), dsl.NewVar(zero, "in_bin"),
		dsl.NewVar(zero, "before_bin"), dsl.NewVar(none, "lighter"), dsl.NewVar(none, "through")}
	for i := range h.count {
		p := is(i)
		b.found.Set(dsl.Select(p, k.U32(1), b.found.Get()))
		b.at.Set(dsl.Select(p, h.first.AddC(i), b.at.Get()))
		b.count.Set(dsl.Select(p, h.count[i], b.count.Get()))
		b.before.Set(dsl.Select(p, h.before[i], b.before.Get()))
		b.lighter.Set(dsl.Select(p, h.lighter[i], b.lighter.Get()))
		b.throughMass.Set(dsl.Select(p, h.mass[i], b.throughMass.Get()))
	}
	return b
}

// findK goes on to the bin of the k-th nearest token. Once all of a bin stay that is the end.
func (t *Sample) findK(e *grid.Env, row, i u32) {
	k := e.K
	lo, shift := t.state(row, stateLo), t.state(row, stateShift)
	h := t.histogram(e, row, i, lo, shift, t.stateF32(row, stateMass))
	want, last := t.param(row, draw.RowTopK), len(h.count)-1
	h.positions(e, t.state(row, stateCount))
	b := h.find(k, func(i int) dsl.Pred {
		return h.before[i].Lt(want).And(want.Le(h.before[i].Add(h.count[i])))
	})
	bits := dsl.Bits[dsl.U32, dsl.F32]
	ended := func(far u32, weight f32) {
		t.set(row, stateFar, far.Min(t.param(row, draw.RowFar)))
		k.IfElse(t.has(row, draw.FlagTopP), func() {
			t.set(row, stateMode, k.U32(modeTopP))
			t.set(row, stateLo, k.U32(0))
			t.set(row, stateShift, k.U32(draw.TopShift))
			t.set(row, stateCount, k.U32(0))
			t.set(row, stateMass, k.U32(0))
			t.set(row, stateGoal, bits(t.paramF32(row, draw.RowTopP).Mul(weight)))
		}, func() { t.decide(k, row) })
	}
	k.SyncWarp() // all have read the state
	k.If(b.found.Get().NeC(0), func() {
		from := lo.Add(b.at.Get().Shl(shift))
		t.set(row, stateNear, b.before.Get().Add(b.count.Get()))
		whole := want.Sub(b.before.Get()).Eq(b.count.Get())
		k.IfElse(whole.Or(shift.EqC(0)), func() { ended(binEnd(k, from, shift), b.throughMass.Get()) }, func() {
			t.into(k, row, from, shift, b)
			k.If(t.has(row, draw.FlagTopP).Not().And(t.state(row, stateDist).Lt(from)), func() { t.decideNow(k, row) })
		})
	})
	total := h.before[last].Add(h.count[last])
	k.If(e.Lane.EqC(dsl.WarpSize-1).And(total.Lt(want)), func() { // fewer than k
		t.set(row, stateNear, total)
		ended(k.U32(draw.Farthest), h.mass[last])
	})
}

func binEnd(k *dsl.Kernel, from, shift u32) u32 { return from.Add(k.U32(1).Shl(shift)).SubC(1) }

// into makes a bin the stretch that is looked at next.
func (t *Sample) into(k *dsl.Kernel, row, from, shift u32, b bin) {
	t.set(row, stateLo, from)
	t.set(row, stateShift, shift.SubC(8))
	t.set(row, stateCount, b.before.Get())
	t.set(row, stateMass, dsl.Bits[dsl.U32](b.lighter.Get()))
}

// decide ends a row's search: the winner stays or not.
func (t *Sample) decide(k *dsl.Kernel, row u32) {
	t.set(row, stateMode, dsl.Select(t.state(row, stateDist).Gt(t.state(row, stateFar)), k.U32(modeAway), k.U32(modeDone)))
}

// decideNow ends the search of a row whose winner lies before the stretch that is looked at, if min-p keeps it.
func (t *Sample) decideNow(k *dsl.Kernel, row u32) {
	k.If(t.state(row, stateDist).Le(t.state(row, stateFar)), func() { t.set(row, stateMode, k.U32(modeDone)) })
}

// findP goes on to the bin of the last token with less weight before it than top-p's goal.
func (t *Sample) findP(e *grid.Env, row, i u32) {
	k := e.K
	lo, shift := t.state(row, stateLo), t.state(row, stateShift)
	top := shift.EqC(draw.TopShift)
	h := t.histogram(e, row, dsl.Select(top, k.U32(0), i), lo, shift, t.stateF32(row, stateMass))
	h.positions(e, t.state(row, stateCount))
	last := len(h.count) - 1
	all := dsl.Shfl(h.mass[last], k.U32(dsl.WarpSize-1))
	goal := dsl.Select(top.And(t.has(row, draw.FlagTopK).Not()), t.paramF32(row, draw.RowTopP).Mul(all),
		t.stateF32(row, stateGoal))
	b := h.find(k, func(i int) dsl.Pred { return h.lighter[i].Lt(goal).And(goal.Le(h.mass[i])) })
	k.SyncWarp() // all have read the state
	k.If(b.found.Get().NeC(0), func() {
		from := lo.Add(b.at.Get().Shl(shift))
		t.set(row, stateNear, b.before.Get().Add(b.count.Get()))
		k.IfElse(b.count.Get().EqC(1).Or(shift.EqC(0)), func() {
			t.set(row, stateFar, t.state(row, stateFar).Min(binEnd(k, from, shift)))
			t.decide(k, row)
		}, func() {
			t.set(row, stateGoal, dsl.Bits[dsl.U32](goal))
			t.into(k, row, from, shift, b)
			k.If(t.state(row, stateDist).Lt(from), func() { t.decideNow(k, row) })
		})
	})
	k.If(e.Lane.EqC(dsl.WarpSize-1).And(goal.Gt(all)), func() {
		t.set(row, stateNear, h.before[last].Add(h.count[last]))
		t.decide(k, row)
	})
}
