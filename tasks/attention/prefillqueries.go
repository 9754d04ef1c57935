package attention

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/prefill"
)

// ownQueries is where the warpgroup's queries begin in PrefillAttention.Queries.
func (w *prefillTile) ownQueries() u32 {
	return w.e.Warp.DivC(dsl.WarpsPerGroup).MulC(w.t.QueryBytes() / w.t.Groups / 16)
}

// stageQueries copies the queries of the tile's 64 rows to shared memory, a warp 16 of them, and zeros for rows that
// are not used. The last product that reads those of the piece before has ended in every warp, and all copies are there
// when it returns.
func (w *prefillTile) stageQueries() {
	t, e, k := w.t, w.e, w.e.K
	k.Note("queries into shared memory")
	units, zero := t.KV.D/8, k.U32(0)
	q, own := dsl.View[dsl.B128](t.Q), w.ownQueries()
	e.Sync()
	k.ForStep(e.Lane, k.U32(16*units), dsl.WarpSize, func(i u32) {
		r := e.Warp.RemC(dsl.WarpsPerGroup).MulC(16).Add(i.DivC(units)).Named("row")
		unit, token := i.RemC(units), w.first.Add(r.DivC(t.group()))
		panel := unit.DivC(queryLine / 16).MulC(prefill.GroupRows * queryLine / 16)
		to := own.Add(panel).Add(r.MulC(queryLine / 16)).Add(unit.RemC(queryLine / 16).Xor(r.RemC(8))).Named("to")
		k.IfElse(r.LtC(t.groupTokens()*t.group()).And(token.Lt(w.p.n)), func() {
			head := w.piece.head.MulC(t.group()).Add(r.RemC(t.group()))
			t.Queries.Store(to, q.Load(w.p.queryRow(token).MulC(t.Heads).Add(head).MulC(units).Add(unit)))
		}, func() { t.Queries.Store(to, dsl.Join(zero, zero, zero, zero)) })
	}, dsl.Unroll(4))
	k.FenceProxyAsyncShared()
	e.Sync()
}

// begin zeroes the scores where their product adds to them.
func (w *prefillTile) begin() {
	if w.t.QueryBytes() == 0 {
		return
	}
	for _, s := range w.scores {
		s.Set(w.e.K.F32(0))
	}
}
