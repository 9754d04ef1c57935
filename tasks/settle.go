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
	Count dsl.Buf[dsl.U32] // [Tokens][KV heads] 0 before a launch, and after each layer
	Found dsl.Buf[dsl.U32] // shared memory, ArrivalsLen words
}

// ArrivalsLen is the length of Arrivals.Found: which of an item's rows are complete,
// and the range of the partial states of each.
const ArrivalsLen = 1 + 2*kv.MaxRows

// settle counts an item's partial states and merges the rows that are now complete.
// The barrier at the end of combine, the atomic's release and its acquire order the
// states that other SMs wrote before the loads here.
func (st *state) settle() {
	e, t, it := st.e, st.t, st.it
	if t.Merge == nil {
		return
	}
	k := e.K
	ends := it.direct().Not()
	if t.passes(e) > 1 {
		ends = ends.And(it.pass.AddC(1).Eq(it.passes))
	}
	k.If(ends, func() {
		n, found := it.word(kv.ItemRows), t.Work.Arrived.Found
		k.If(e.Warp.EqC(0), func() { st.arrive(n) })
		e.Sync()
		complete := dsl.Uniform(found.Load(dsl.At(0)), dsl.CTAScope).Named("complete")
		k.If(complete.NeC(0), func() {
			k.For(k.U32(0), n, func(i u32) {
				k.If(complete.Shr(i).AndC(1).NeC(0), func() { st.mergeRow(i) })
			}, dsl.Unroll(1))
		})
	})
}

// arrive counts the item's n rows, a lane each, and says which are complete.
func (st *state) arrive(n u32) {
	e, t, it := st.e, st.t, st.it
	k, a, table := e.K, t.Work.Arrived, t.Merge.Table
	last := dsl.NewVar(k.U32(0), "last")
	k.If(e.Lane.Lt(n), func() {
		at := it.row(e.Lane).MulC(t.KV.Heads).Add(it.kvHead).Named("row_head")
		first, end := table.word(at), table.word(at.AddC(1))
		a.Found.Store(e.Lane.MulC(2).AddC(1), first)
		a.Found.Store(e.Lane.MulC(2).AddC(2), end)
		before := dsl.AtomicAdd(a.Count, at, k.U32(1), dsl.AcqRel(dsl.GPUScope))
		k.If(before.AddC(1).Eq(end.Sub(first)), func() {
			last.Set(k.U32(1))
			a.Count.Store(at, k.U32(0), dsl.Relaxed(dsl.GPUScope)) // for the next layer, behind a hand-off
		})
	})
	complete := dsl.Ballot(last.Get().NeC(0))
	k.If(e.Lane.EqC(0), func() { a.Found.Store(dsl.At(0), complete) })
}

// mergeRow merges the partial states of the item's i-th query row, all heads of the
// group, two elements a thread at a time.
func (st *state) mergeRow(i u32) {
	e, t, it := st.e, st.t, st.it
	k, group, d := e.K, t.Group(), t.KV.D
	found := t.Work.Arrived.Found
	first, end := found.Load(i.MulC(2).AddC(1)).Named("first"), found.Load(i.MulC(2).AddC(2)).Named("end")
	token := it.row(i)
	k.ForStep(e.Tid, k.U32(group*d/2), e.Threads(), func(x u32) {
		head, dim := x.DivC(d/2), x.RemC(d/2).MulC(2)
		lo, hi := t.Merge.states(e, first, end, head, dim, group)
		of := it.kvHead.MulC(group).Add(head)
		lo, hi = t.Variant.outputs(e, st.step, t.Heads, of, token, t.Work)(dim, lo, hi)
		t.Final(token, of.MulC(d).Add(dim), lo, hi)
	})
}
