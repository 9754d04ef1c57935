package tasks

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
)

// Arrivals counts the partial states of each query row and KV head that have been
// written, so that the SM that writes the last one merges them all: no phase and no
// hand-off of its own. Who that is depends on the run, the order of the merge, that
// of the states, does not.
type Arrivals struct {
	Count dsl.Buf[dsl.U32] // [Tokens][KV heads], without Work [KV heads][Parts]; 0 before a launch, and after each layer
	Found dsl.Buf[dsl.U32] // shared memory, ArrivalsLen words
}

// ArrivalsLen is the length of Arrivals.Found: which rows of some items are complete.
const ArrivalsLen = 1

// itemsAtOnce is how many items' rows a warp counts at once, a lane a row.
const itemsAtOnce = dsl.WarpSize / kv.SettleRows

// Phase is whether the class's partial states are merged in a phase of their own.
func (t *Attention) Phase() dsl.Pred {
	head := t.Class * (t.Work.PerCTA + 1) * kv.ItemWords
	return dsl.Uniform(t.Work.Items.Load(dsl.At(head+kv.HeaderPhase)), dsl.GPUScope).NeC(0)
}

// settles is whether partial states may be merged where the last of them arrives.
func (t *Attention) settles() bool {
	return t.Merge != nil && t.Arrived != nil
}

// settleSplit is settle without Work, for an item whose states lie in global memory: the
// CTA that brings the last split of a group of query heads merges their states.
func (t *Attention) settleSplit(e *Env, s Step, st *state) {
	k, a, it := e.K, t.Arrived, st.it
	k.If(e.Tid.EqC(0), func() {
		group := it.kvHead.MulC(t.Parts())
		if t.Parts() > 1 {
			group = group.Add(it.part())
		}
		before := dsl.AtomicAdd(a.Count, group, k.U32(1), dsl.AcqRel(dsl.GPUScope))
		last := before.EqC(t.Splits - 1)
		k.If(last, func() { a.Count.Store(group, k.U32(0), dsl.Relaxed(dsl.GPUScope)) }) // for the next layer, behind a hand-off
		a.Found.Store(dsl.At(0), dsl.Select(last, k.U32(1), k.U32(0)))
	})
	e.Sync()
	k.If(dsl.Uniform(a.Found.Load(dsl.At(0)), dsl.CTAScope).NeC(0), func() {
		d := t.KV.D
		e.EachConsumer(t.part()*d, func(i u32) {
			element := func() { t.Merge.element(e, s, st.query.MulC(d).Add(i)) }
			if t.Group()%t.part() == 0 {
				element()
			} else {
				k.If(i.DivC(d).Lt(st.heads), element)
			}
		})
	})
}

// settle counts the partial states of all of this CTA's items, after the last of
// them, and merges the rows that are now complete, unless there is a phase for it.
// The barrier at the end of combine, the atomic's release and its acquire order the
// states that other SMs wrote before the loads here.
func (t *Attention) settle(e *Env, s Step) {
	k, w := e.K, t.Work
	head := t.Class * (w.PerCTA + 1) * kv.ItemWords
	count := dsl.Uniform(w.Items.Load(dsl.At(head)), dsl.CTAScope)
	k.If(t.Phase().Not(), func() {
		k.ForStep(k.U32(0), count, itemsAtOnce, func(from u32) {
			k.If(e.Warp.EqC(0), func() { t.arrive(e, from, count) })
			e.Sync()
			complete := dsl.Uniform(t.Arrived.Found.Load(dsl.At(0)), dsl.CTAScope).Named("complete")
			k.If(complete.NeC(0), func() {
				k.For(k.U32(0), count.Sub(from).MulC(kv.SettleRows).MinC(dsl.WarpSize), func(i u32) {
					k.If(complete.Shr(i).AndC(1).NeC(0), func() { t.mergeRow(e, s, from, i) })
				}, dsl.Unroll(1))
			})
			k.If(from.AddC(itemsAtOnce).Lt(count), e.Sync) // the next items' rows overwrite Found
		}, dsl.Unroll(1))
	})
}

// settled is lane i's row of some items: row i mod SettleRows of the item i /
// SettleRows behind item from.
func (t *Attention) settled(e *Env, from, i u32) (it *item, row u32) {
	it = &item{t: t, e: e}
	it.at = from.Add(i.DivC(kv.SettleRows)).AddC(1).MulC(kv.ItemWords).AddC(t.Class * (t.Work.PerCTA + 1) * kv.ItemWords)
	return it, i.RemC(kv.SettleRows)
}

// states says which partial states make row i's output.
func (it *item) states(i u32) u32 { return it.words(i.AddC(kv.ItemStates)) }

// arrive counts rows of items from on, a lane each, and says which are complete.
func (t *Attention) arrive(e *Env, from, count u32) {
	k, a := e.K, t.Arrived
	last := dsl.NewVar(k.U32(0), "last")
	it, row := t.settled(e, from, e.Lane)
	k.If(from.Add(e.Lane.DivC(kv.SettleRows)).Lt(count), func() {
		split := it.words(k.U32(kv.ItemFlags)).AndC(kv.ItemDirect).EqC(0)
		k.If(split.And(row.Lt(it.words(k.U32(kv.ItemRows)))), func() {
			at := it.row(row).MulC(t.KV.Heads).Add(it.words(k.U32(kv.ItemHead))).Named("row_head")
			before := dsl.AtomicAdd(a.Count, at, k.U32(1), dsl.AcqRel(dsl.GPUScope))
			k.If(before.AddC(1).Eq(it.states(row).ShrC(kv.StateBits)), func() {
				last.Set(k.U32(1))
				a.Count.Store(at, k.U32(0), dsl.Relaxed(dsl.GPUScope)) // for the next layer, behind a hand-off
			})
		})
	})
	complete := dsl.Ballot(last.Get().NeC(0))
	k.If(e.Lane.EqC(0), func() { a.Found.Store(dsl.At(0), complete) })
}

// mergeRow merges the partial states of a complete row, all heads of the group, two
// elements a thread at a time.
func (t *Attention) mergeRow(e *Env, s Step, from, i u32) {
	k, group, d := e.K, t.Group(), t.KV.D
	it, row := t.settled(e, from, i)
	states := it.states(row)
	first := states.AndC(1<<kv.StateBits - 1).Named("first")
	end := first.Add(states.ShrC(kv.StateBits)).Named("end")
	token, head := it.row(row), it.words(k.U32(kv.ItemHead))
	k.ForStep(e.Tid, k.U32(group*d/2), e.Threads(), func(x u32) {
		n, dim := x.DivC(d/2), x.RemC(d/2).MulC(2)
		lo, hi := t.Merge.states(e, first, end, n, dim, group)
		of := head.MulC(group).Add(n)
		lo, hi = t.Variant.outputs(e, s, t.Heads, of, token, t.Work)(dim, lo, hi)
		t.Final(token, of.MulC(d).Add(dim), lo, hi)
	})
}
