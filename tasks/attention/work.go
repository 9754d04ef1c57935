package attention

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// Work is where a CTA finds the items that a plan (package kv) gave it, and the
// step's query rows.
type Work struct {
	Classes int // of layers with work of their own, at least 1
	PerCTA  int // items a CTA has in a class at most

	Items dsl.Buf[dsl.U32] // shared memory, WorkWords(Classes, PerCTA): this CTA's items
	Rows  dsl.Buf[dsl.U32] // [Tokens][kv.RowWords], in shared or global memory

	// Selection is whether a unit's page entries are a selection, and Positions,
	// parallel to the page table, the position of each entry's first token.
	Selection bool
	Positions dsl.Buf[dsl.U32]

	Fresh *pipeline.Landing // of the step's new tokens, which the ring does not carry
}

// Init initialises what the items' copies complete on. One thread of the CTA runs
// it, before Ring.Init.
func (w *Work) Init() { w.Fresh.Init() }

// Start declares what a consumer warp keeps; it runs at the top of the role.
func (w *Work) Start() { w.Fresh.Start() }

// WorkWords is the number of words of a CTA's items: for each class a header,
// whose first word is their number, and perCTA items. The plan buffer is
// [class][CTA][perCTA + 1][kv.ItemWords].
func WorkWords(classes, perCTA int) int { return classes * (perCTA + 1) * kv.ItemWords }

// Fetch copies this CTA's items from the plan buffer; all warps of the CTA run
// it, and a CTA barrier must follow.
func (w *Work) Fetch(e *grid.Env, plan dsl.Buf[dsl.U32]) {
	k, record := e.K, (w.PerCTA+1)*kv.ItemWords/4
	from, to := dsl.View[dsl.B128](plan), dsl.View[dsl.B128](w.Items)
	for c := range w.Classes {
		first := e.CTA.AddC(c * e.Grid).MulC(record)
		k.ForStep(e.Tid, k.U32(record), k.Warps()*dsl.WarpSize, func(i u32) {
			to.Store(i.AddC(c*record), from.Load(first.Add(i)))
		})
	}
}

// FetchRows copies the query rows of a kernel of n tokens a step at most to
// Rows, in shared memory; all warps of the CTA run it, and a CTA barrier must follow.
func (w *Work) FetchRows(e *grid.Env, rows dsl.Buf[dsl.U32], tokens int) {
	k, n := e.K, tokens*kv.RowWords
	store := func(i u32) { w.Rows.Store(i, rows.Load(i)) }
	if n <= k.Warps()*dsl.WarpSize {
		k.If(e.Tid.LtC(n), func() { store(e.Tid) })
		return
	}
	k.ForStep(e.Tid, k.U32(n), k.Warps()*dsl.WarpSize, store)
}

func (w *Work) problem(class int) string {
	return rule.First(
		rule.Need(w.PerCTA >= 1, "attention: %d items a CTA, want at least 1", w.PerCTA),
		rule.Need(class >= 0 && class < w.Classes, "attention: class %d of %d", class, w.Classes),
		rule.Need(int(w.Items.Len()) >= WorkWords(w.Classes, w.PerCTA), "attention: Items has %d elements, want %d",
			w.Items.Len(),
			WorkWords(w.Classes, w.PerCTA)))
}

// item is one piece of attention: some query rows of a KV head over some chunks
// of a unit, a run of page entries.
type item struct {
	t *Attention
	e *grid.Env

	kvHead     u32
	cached     u32 // tokens of the unit that are in the cache
	first, end u32 // the item's chunks among those that the window leaves
	window     *skipped

	// Without Work.
	split   u32
	part    func() u32 // which of the group's parts
	unsplit *dsl.Pred  // whether its KV head is one SM's: see Attention.unsplit

	// With Work.
	at   u32 // the first of its words
	pass u32 // which of its passes over its rows, each of up to passRows
}

// word is word i of a plan's item.
func (it *item) word(i int) u32 { return dsl.Uniform(it.words(it.e.K.U32(i)), dsl.CTAScope) }

func (it *item) words(i u32) u32 { return it.t.Work.Items.Load(it.at.Add(i)) }

// row is the index of the item's i-th query row, which may differ by lane.
func (it *item) row(i u32) u32 {
	if it.t.Tokens <= 8 {
		return it.words(it.e.K.U32(kv.ItemRowList)).Shr(i.MulC(4)).AndC(15)
	}
	return it.words(i.DivC(8).AddC(kv.ItemRowList)).Shr(i.AndC(7).MulC(4)).AndC(15)
}

// entry is the page entry of token tok of the unit.
func (it *item) entry(tok u32) u32 {
	if it.t.Work == nil {
		return tok.DivC(it.t.KV.Page)
	}
	return it.word(kv.ItemEntries).Add(tok.DivC(it.t.KV.Page))
}

// chunk is the unit's chunk that is the item's c-th behind the window's gap. An item that has
// chunks has those that there are: what bounds every address of the cache.
func (it *item) chunk(c u32) u32 {
	per, chunk := it.t.PerStage, it.window.chunk(c)
	it.e.K.Claim("attention: an item's chunk is not one of its unit's", func() dsl.Pred {
		return it.first.Ge(it.end).Or(chunk.Lt(it.cached.AddC(per - 1).DivC(per)))
	})
	return chunk
}

// eachItem calls body for this CTA's items.
func (t *Attention) eachItem(e *grid.Env, s Step, body func(it *item)) {
	if t.Work != nil {
		t.eachPlanned(e, s, body)
		return
	}
	chunks, window := t.chunks(s, s.Cached, e.K.U32(0), s.Pos)
	unsplit := t.unsplit(s)
	t.eachSplit(e, func(it *item) {
		it.cached, it.window, it.unsplit = s.Cached, window, unsplit
		it.ifWorks(func() {
			first, end := it.chunksOf(chunks)
			it.first, it.end = first.Named("first"), end.Named("end")
			body(it)
		})
	})
}

// eachSplit calls body for this CTA's items without Work, of which it does not say what
// they read.
func (t *Attention) eachSplit(e *grid.Env, body func(it *item)) {
	k, parts := e.K, t.Parts()
	k.ForStep(t.firstItem(e), k.U32(t.Items()), e.Grid, func(i u32) {
		e.Anew(func() {
			head, rest := i.RemC(t.KV.Heads).Named("kv_head"), i.DivC(t.KV.Heads)
			body(&item{t: t, e: e, kvHead: head, split: rest.DivC(parts).Named("split"),
				part: func() u32 { return rest.RemC(parts) }})
		})
	})
}

// eachPlanned calls body for the plan's items of this CTA, several times for an
// item of more rows than the warps take at once.
func (t *Attention) eachPlanned(e *grid.Env, s Step, body func(it *item)) {
	k, w := e.K, t.Work
	head := t.Class * (w.PerCTA + 1) * kv.ItemWords
	count := dsl.Uniform(w.Items.Load(dsl.At(head)), dsl.CTAScope).Named("items")
	k.For(k.U32(0), count, func(i u32) {
		it := &item{t: t, e: e, at: i.AddC(1).MulC(kv.ItemWords).AddC(head).Named("item"), pass: k.U32(0)}
		it.kvHead = it.word(kv.ItemHead).Named("kv_head")
		it.cached = it.word(kv.ItemCached).Add(it.word(kv.ItemGrow).Mul(s.Index)).Named("cached")
		it.span(s)
		if t.passes(e) == 1 {
			body(it)
			return
		}
		n := it.word(kv.ItemRows).MulC(t.Group()).AddC(t.passRows(e) - 1).DivC(t.passRows(e))
		k.For(k.U32(0), n, func(pass u32) {
			it.pass = pass
			body(it)
		}, dsl.Unroll(1))
	}, dsl.Unroll(1))
}

// mostChunks bounds the chunks of a sequence: those of 2²⁰ positions, one token each.
const mostChunks = 1 << 20

// span finds the item's chunks: a share of those that the unit has now, or, if
// it is pinned, those of its numbers that there are.
func (it *item) span(s Step) {
	t := it.t
	var first u32
	if t.windowed() {
		first = it.firstPosition(s)
	}
	var chunks u32
	chunks, it.window = t.chunks(s, it.cached, it.word(kv.ItemPosition), first)
	a, b, n := it.word(kv.ItemFirst), it.word(kv.ItemEnd), it.word(kv.ItemOf)
	it.e.K.Claim("attention: more chunks than shares of them are counted by",
		func() dsl.Pred { return n.EqC(0).Or(chunks.LtC(kv.MaxChunks + 1)) })
	part := func(x u32) u32 {
		share := dsl.Select(n.EqC(0), it.e.K.U32(0), x) // of n
		it.e.K.Claim("attention: a share beyond those that there are", func() dsl.Pred { return share.LtC(kv.MaxChunks + 1) })
		return dsl.Select(n.EqC(0), x.Min(chunks), share.Mul(chunks).Div(n.MaxC(1)))
	}
	it.first, it.end = part(a).Named("first"), part(b).Named("end")
	it.e.K.Claim("attention: a chunk beyond every position",
		func() dsl.Pred { return it.first.LtC(mostChunks + 1).And(it.end.LtC(mostChunks + 1)) })
	it.e.K.Claim("attention: an item that ends before it begins", func() dsl.Pred { return it.first.Lt(it.end.AddC(1)) })
}

// firstPosition is the smallest position of the item's query rows.
func (it *item) firstPosition(s Step) u32 {
	i := it.e.Lane.AndC(kv.MaxRows - 1).Min(it.word(kv.ItemRows).SubC(1))
	at := it.t.Work.Rows.Load(it.row(i).MulC(kv.RowWords).AddC(kv.RowPosition))
	least := dsl.Butterfly(at, kv.MaxRows, u32.Min)
	return dsl.Uniform(least, dsl.CTAScope).Add(s.Index).Named("first_position")
}

// windowed is whether a sliding window leaves chunks out.
func (t *Attention) windowed() bool {
	return t.Variant != nil && t.Variant.Window > 0 && (t.Work == nil || !t.Work.Selection)
}

// skipped is the chunks that a sliding window leaves out; nil for none.
type skipped struct{ from, n u32 }

// chunks is the number of chunks of a unit that some row of an item sees, and
// those left out: between the attention sinks and the window of the first row.
// position is the unit's, first the smallest of the rows'.
func (t *Attention) chunks(s Step, cached, position, first u32) (n u32, gap *skipped) {
	n = cached.AddC(t.PerStage - 1).DivC(t.PerStage)
	if !t.windowed() {
		return n, nil
	}
	v := t.Variant
	sinks := position.MaxC(v.Sinks).Sub(position).AddC(t.PerStage - 1).DivC(t.PerStage).Min(n)
	before := position.AddC(v.Window)
	if v.Windows != nil {
		before = position.Add(v.Windows(s))
	}
	window := first.AddC(1).Max(before).Sub(before).DivC(t.PerStage)
	skip := window.Max(sinks).Sub(sinks).Min(n.Sub(sinks))
	return n.Sub(skip).Named("chunks"), &skipped{from: sinks.Named("sinks"), n: skip.Named("skip")}
}

func (s *skipped) chunk(c u32) u32 {
	if s == nil {
		return c
	}
	return dsl.Select(c.Lt(s.from), c, c.Add(s.n))
}
