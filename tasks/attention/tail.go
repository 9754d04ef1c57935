package attention

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/tasks/grid"
)

// ownToken adds the step's one new token, without Work, to the state of the last
// warp of the last split, or of the item that has all of its KV head.
func (st *state) ownToken() {
	e, t := st.e, st.t
	if t.Work != nil {
		return
	}
	own := e.Warp.EqC(e.Consumers - 1).And(st.it.hasOwn())
	e.K.If(own, func() {
		if t.Packets == nil {
			t.fetchTail(e, st.step, st.it.kvHead)
		}
		st.block(tokens{buf: t.Tail, base: e.K.U32(0), first: st.step.Pos.RemC(t.KV.Page), slices: 1, n: e.K.U32(1),
			fresh: true})
	})
}

// fetchTail copies the query's own K and V from the cache to Tail, in one warp.
func (t *Attention) fetchTail(e *grid.Env, s Step, head u32) {
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

// fetchQueries copies the item's queries to Scratch, in all consumer warps.
func (it *item) fetchQueries() {
	e, t := it.e, it.t
	units, to := t.KV.D/8, dsl.View[dsl.B128](t.Scratch)
	q := dsl.View[dsl.B128](t.Q)
	e.K.ForStep(e.Tid, t.rowsNow(e, it).MulC(units), e.Threads(), func(i u32) {
		row, unit := i.DivC(units), i.RemC(units)
		token, head := it.fused(row.Add(it.pass.MulC(t.passRows(e))))
		to.Store(row.MulC(t.queryUnits()).Add(unit), q.Load(token.MulC(t.Heads).Add(head).MulC(units).Add(unit)))
	}, dsl.Unroll(4))
	e.Sync()
}

// fetchNew starts copies of the K and V of the item's new tokens, which lie behind
// the unit's cached ones, to Scratch: a lane of the last warp a token. Other SMs have
// written them through the generic proxy before the sync, and warps of this one
// read what was there before; the fence orders the copies after both.
func (it *item) fetchNew(s Step) {
	e, t := it.e, it.t
	k, l := e.K, t.KV
	n := it.word(kv.ItemTail).Named("new_tokens")
	k.If(n.NeC(0).And(e.Warp.EqC(e.Consumers-1)), func() {
		tok := it.cached.Add(e.Lane.Min(n.SubC(1)))
		page := s.Table.Load(it.entry(tok)).Named("page")
		row := l.rowBase(s.Layer, s.Pages, page, it.kvHead, tok.RemC(l.Page))
		k.FenceProxyAsync()
		k.If(e.Lane.EqC(0), func() { t.Work.Fresh.Expect(n.MulC(l.TokenBytes())) })
		k.SyncWarp()
		k.If(e.Lane.Lt(n), func() {
			to, first := t.fresh(e)
			t.Work.Fresh.Copy(to, e.Lane.MulC(l.TokenUnits()).Add(first), s.Cache, row, k.U32(l.TokenBytes()))
		})
	})
}

// newTokens adds the step's new tokens, with Work, to the state of the last lane's
// warps.
func (st *state) newTokens() {
	t, it, k := st.t, st.it, st.e.K
	if t.Work == nil {
		return
	}
	n := it.word(kv.ItemTail)
	k.If(n.NeC(0), func() {
		t.Work.Fresh.Wait()
		k.If(st.deal.takes(st.blocks), func() { // this lane has waited longest
			buf, base := t.fresh(st.e)
			st.block(tokens{buf: buf, base: base, first: it.cached, slices: 1, n: n, fresh: true})
		})
	})
}

// tailBits is, for each of the lane's rows, which of the item's new tokens it
// sees: bit i is token i.
func (st *state) tailBits() []u32 {
	var bits []u32
	w, first := st.t.Work, st.it.word(kv.ItemTailRow)
	for _, r := range st.row {
		token := r.token()
		word := func(i int) u32 { return w.Rows.Load(token.MulC(kv.RowWords).AddC(i)) }
		bits = append(bits, word(kv.RowTail).Shr(first.Sub(word(kv.RowFirst))))
	}
	return bits
}
