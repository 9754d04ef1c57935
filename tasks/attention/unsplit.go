package attention

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// Unsplit says when one SM works on all of a KV head, without Work and where states meet by LL packets. While at most
// Tokens tokens are cached, the item of split Split has all of its KV head's chunks and the query's own token, and
// stores the output. The items of other splits do nothing: there are no partial states, no merge, and nothing that
// Merge.LastBias is added to. The output has the bits of a merge of one split. Zero Tokens: never.
type Unsplit struct {
	Tokens int // 0 to mostUnsplit
	Split  int // 0 to Splits - 1
}

// mostUnsplit bounds Unsplit.Tokens: no position is behind it.
const mostUnsplit = 1 << 20

func (u Unsplit) problem(t *Attention) string {
	return rule.First(
		rule.Need(u.Tokens >= 0 && u.Tokens <= mostUnsplit, "attention: unsplit up to %d tokens, want 0 to %d", u.Tokens,
			mostUnsplit),
		rule.Need(u.Tokens == 0 || t.Work == nil, "attention: unsplit with a plan's items, which say what is split"),
		rule.Need(u.Tokens == 0 || t.LL != nil && t.Merge != nil,
			"attention: unsplit up to %d tokens, but states meet in another phase; want LL and Merge", u.Tokens),
		rule.Need(u.Tokens == 0 || u.Split >= 0 && u.Split < t.Splits, "attention: unsplit in split %d of %d", u.Split,
			t.Splits))
}

// unsplit is whether this step's KV heads are one SM's each, the same in the whole grid; nil: never.
func (t *Attention) unsplit(s Step) *dsl.Pred {
	if t.Unsplit.Tokens == 0 {
		return nil
	}
	now := s.Cached.LtC(t.Unsplit.Tokens + 1).Named("unsplit")
	return &now
}

// ifSplit runs body unless KV heads are one SM's each.
func (t *Attention) ifSplit(e *grid.Env, s Step, body func()) {
	if unsplit := t.unsplit(s); unsplit != nil {
		e.K.If(unsplit.Not(), body)
		return
	}
	body()
}

// ifWorks runs body where the item has work: all of them with splits, else those of one split.
func (it *item) ifWorks(body func()) {
	if it.unsplit == nil {
		body()
		return
	}
	it.e.K.If(it.unsplit.Not().Or(it.split.EqC(it.t.Unsplit.Split)), body)
}

// chunksOf is the item's share of chunks chunks: its split's, or all.
func (it *item) chunksOf(chunks u32) (first, end u32) {
	splits := it.t.Splits
	first, end = it.split.Mul(chunks).DivC(splits), it.split.AddC(1).Mul(chunks).DivC(splits)
	if it.unsplit != nil {
		first, end = dsl.Select(*it.unsplit, it.e.K.U32(0), first), dsl.Select(*it.unsplit, chunks, end)
	}
	return first, end
}

// hasOwn is whether the item has the query's own token, without Work: the last split's.
func (it *item) hasOwn() dsl.Pred {
	last := it.split.EqC(it.t.Splits - 1)
	if it.unsplit != nil {
		return it.unsplit.Or(last)
	}
	return last
}

// storeSplit stores a pair of the item's state, of its query heads' i-th packet, in lanes that have one (nil: all),
// without Work: as a part of its split's state, or, where that is all, as output.
func (st *state) storeSplit(i u32, part statePart, has *dsl.Pred) {
	t, it, words := st.t, st.it, st.t.KV.D/2
	store := func() {
		st.e.IfPred(has, func() {
			part.store(t.LL, st.e, t.States, it.split.MulC(t.Heads).Add(st.query).MulC(words).Add(i))
		})
	}
	if it.unsplit == nil {
		store()
		return
	}
	st.e.K.IfElse(*it.unsplit, func() {
		t.Merge.store(st.e, st.step, st.query.MulC(words).Add(i), part.lo, part.hi, has)
	}, store)
}

// firstItem is the number of this CTA's first item. Where KV heads may be one SM's, the compiler is not to know that it
// is the CTA's: it would compute all that follows from it before the layers, and keep that in registers.
func (t *Attention) firstItem(e *grid.Env) u32 {
	if t.Unsplit.Tokens == 0 {
		return e.CTA
	}
	return dsl.Opaque(e.CTA)
}
