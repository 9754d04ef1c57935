package tasks

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
)

// tail adds the new tokens of this step to the state of the warps whose they
// are: without Work the last warp of the last split, else the last lane's.
func (st *state) tail() {
	e, t, it := st.e, st.t, st.it
	k := e.K
	if t.Work == nil {
		own := e.Warp.EqC(e.Consumers - 1).And(it.split.EqC(t.Splits - 1))
		k.If(own, func() {
			t.fetchTail(e, st.step, it.kvHead)
			st.block(tokens{buf: t.Tail, base: k.U32(0), first: st.step.Pos.RemC(t.KV.Page), n: k.U32(1), fresh: true})
		})
		return
	}
	n := it.word(kv.ItemTail).Named("new_tokens")
	k.If(n.NeC(0), func() {
		st.fetchNew(n)
		e.Sync()
		k.If(st.deal.lane.Eq(st.deal.lanes.SubC(1)), func() {
			st.block(tokens{buf: t.Tail, base: k.U32(0), first: it.cached, n: n, fresh: true})
		})
	})
}

// fetchTail copies the query's own K and V from the cache to Tail, in one warp.
func (t *Attention) fetchTail(e *Env, s Step, head u32) {
	k, l := e.K, t.KV
	page := s.Table.Load(s.Pos.DivC(l.Page)).Named("page")
	row := l.rowBase(s.Layer, s.Pages, page, head, s.Pos.RemC(l.Page))
	for u := 0; u < l.TokenUnits(); u += dsl.WarpSize {
		i := e.Lane.AddC(u)
		copyUnit := func() { t.Tail.Store(i, s.Cache.Load(row.Add(dsl.Cast[dsl.U64](i)))) }
		if u+dsl.WarpSize <= l.TokenUnits() {
			copyUnit()
		} else {
			k.If(i.LtC(l.TokenUnits()), copyUnit)
		}
	}
	k.SyncWarp()
}

// fetchNew copies the K and V of the item's n new tokens, which lie behind the
// unit's cached ones, to Tail, in all consumer warps.
func (st *state) fetchNew(n u32) {
	e, t, it, s := st.e, st.t, st.it, st.step
	l, units := t.KV, t.KV.TokenUnits()
	e.K.ForStep(e.Tid, n.MulC(units), e.Threads(), func(i u32) {
		tok := it.cached.Add(i.DivC(units))
		page := s.Table.Load(it.entry(tok)).Named("page")
		row := l.rowBase(s.Layer, s.Pages, page, it.kvHead, tok.RemC(l.Page))
		t.Tail.Store(i, s.Cache.Load(row.Add(dsl.Cast[dsl.U64](i.RemC(units)))))
	})
}

// tailBits is, for each of the lane's rows, which of the item's new tokens it
// sees: bit i is token i.
func (st *state) tailBits() []u32 {
	var bits []u32
	w, first := st.t.Work, st.it.word(kv.ItemTailRow)
	for _, r := range st.row {
		word := func(i int) u32 { return w.Rows.Load(r.token.MulC(kv.RowWords).AddC(i)) }
		bits = append(bits, word(kv.RowTail).Shr(first.Sub(word(kv.RowFirst))))
	}
	return bits
}
