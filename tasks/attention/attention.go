package attention

import (
	"cmp"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// Attention is attention of a step's query tokens over a paged KV cache.
//
// Work comes in items: some query rows of one KV head over some chunks of the
// cache. Without Work there is one query token of one sequence, and item (head
// h, split s) is the group of query heads of KV head h over the s-th part of the
// cache. With Work the items are a plan's (package kv), of any sequences and up
// to 16 query tokens, whose head groups are fused: row r of an item is query
// head r mod Group of its token r / Group (FlashInfer, Ye et al. 2025).
//
// Cached tokens come through the ring, 16 a block, each block worked on by one
// consumer warp (for every 16 rows of the item) with its own running softmax
// (Milakov and Gimelshein 2018); the step's new tokens, written in this step,
// are read from global memory after the sync. The result of an item is a
// partial state, the normalised output and its log-sum-exp (base 2), for Merge,
// or, where the item is all of its rows' work, the output.
type Attention struct {
	Heads    int // query heads, a multiple of KV.Heads
	KV       KVLayout
	PerStage int // tokens a stage (a chunk), a power of two and a multiple of 16

	Splits int   // without Work: parts of the cache, at least 1
	Tokens int   // with Work: query rows of a step at most, 1 to kv.MaxRows
	Work   *Work // the plan's items; nil for one token of one sequence
	Class  int   // with Work: which of the plan's classes

	Q dsl.Buf[dsl.BF16] // [Tokens][Heads][D], scaled by log2(e)/√D, in the order of KVLayout.KeyOrder; not with Packets
	// Packets, without Work, is how queries and the token's own key and value come; nil:
	// a sync lies between QKV and attention.
	Packets *QKVPackets

	// States are the partial states, [Splits][Heads][D/2] or with Work
	// [partial][Group][D/2] packets: see LL.
	States dsl.Buf[dsl.B128]

	// Final takes the output of direct items; with Work only.
	Final Output
	// Merge merges the partial states of a row within the phase: with LL each SM
	// that has one merges a share of the row, without it is a phase of its own.
	Merge *Merge
	LL    *grid.LL
	// Unsplit is when states are not to be merged, with LL and without Work.
	Unsplit Unsplit
	// Variant is what is not plain causal attention; nil is that.
	Variant *Variant

	Scratch dsl.Buf[dsl.F32]  // shared memory, ScratchLen
	Tail    dsl.Buf[dsl.B128] // shared memory, TailLen: the new token's K and V; without Work only
}

// blockTokens is the number of tokens of a slice of a block: k of the second
// product. It is also the number of rows of a tile, the rows of A.
const blockTokens = 16

// manySlices is the number of slices of a block where several warps work on it, each
// for rows of its own: what a warp waits for (products, shuffles, exponentials, one
// after another) it waits for once a block. With few rows the warps have time, and a
// block that one of them takes is better short: its stage is drained sooner.
const manySlices = 2

// Group is the number of query heads a KV head serves.
func (t *Attention) Group() int { return t.Heads / t.KV.Heads }

// Parts is the number of items a group is worked on in without Work, at most 16
// query heads each (the rows of A); every part reads the group's KV for itself.
func (t *Attention) Parts() int { return pipeline.CeilDiv(t.Group(), blockTokens) }

// part is the number of query heads of an item; the last of a group may have fewer.
func (t *Attention) part() int { return pipeline.CeilDiv(t.Group(), t.Parts()) }

// Items is the number of items the CTAs share without Work.
func (t *Attention) Items() int { return t.KV.Heads * t.Parts() * t.Splits }

// tokens is the number of query rows of a step at most.
func (t *Attention) tokens() int { return max(t.Tokens, 1) }

// rowsMax is the number of rows of an item at most.
func (t *Attention) rowsMax() int {
	if t.Work == nil {
		return t.part()
	}
	return t.Tokens * t.Group()
}

// ScratchLen is the length of Scratch in f32 for a number of consumer warps:
// each warp's maxima, sums and a slice of its output, for every row it has.
func (t *Attention) ScratchLen(consumers int) int {
	if t.Work == nil {
		return max(t.passedAt(consumers)+t.passedLen(), 4*t.gatheredLen())
	}
	n := consumers * t.tileRows() * (t.slice(consumers) + 3)
	if t.few(consumers) {
		n = max(n, consumers*fewRows*(t.KV.D+3))
	}
	return max(n, 4*(t.queriesLen(consumers)+t.tailLen()), 4*t.gatheredLen())
}

// TailLen is the length of Tail in 16-byte elements.
func (t *Attention) TailLen() int { return t.KV.TokenUnits() }

// With Work an item's queries, and behind them its new tokens' K and V, lie in
// Scratch until the warps' states meet there; lengths in 16-byte elements.
func (t *Attention) queriesLen(consumers int) int {
	return t.tiles(consumers) * t.tileRows() * t.queryUnits()
}

func (t *Attention) tailLen() int { return t.tokens() * t.KV.TokenUnits() }

// fresh is where the new tokens' K and V lie: the buffer, and the first element.
func (t *Attention) fresh(e *grid.Env) (dsl.Buf[dsl.B128], u32) {
	if t.Work == nil {
		return t.Tail, e.K.U32(0)
	}
	return dsl.View[dsl.B128](t.Scratch), e.K.U32(t.queriesLen(e.Consumers))
}

// queryUnits is the distance of two rows of queries in 16-byte elements: one more
// than a row has, so that 8 rows fall into different banks.
func (t *Attention) queryUnits() int { return t.KV.D/8 + 1 }

// problem says what the template cannot do, or nothing.
func (t *Attention) problem(e *grid.Env, r *pipeline.Ring) string {
	l := t.KV
	if p := l.problem(); p != "" {
		return p
	}
	bytes := t.PerStage * l.TokenBytes()
	if p := rule.First(
		rule.Need(t.Heads > 0 && t.Heads%l.Heads == 0, "attention: %d query heads are no multiple of %d KV heads", t.Heads,
			l.Heads),
		rule.Need(t.Work != nil || t.Splits >= 1, "attention: %d splits, want at least 1", t.Splits),
		rule.Need(t.Work == nil || t.Tokens >= 1 && t.Tokens <= kv.MaxRows, "attention: %d tokens, want 1 to %d", t.Tokens,
			kv.MaxRows),
		rule.Need(t.Work == nil || t.Final != nil, "attention: a plan's direct items need Final"),
		rule.Need(t.Work == nil || t.Packets == nil, "attention: packets of queries are for attention without Work only"),
		rule.Need(t.LL == nil || t.Merge != nil, "attention: states that meet within the phase need Merge"),
		rule.Need(t.PerStage >= blockTokens && t.PerStage&(t.PerStage-1) == 0,
			"attention: a stage holds %d tokens, want a power of two of at least %d", t.PerStage, blockTokens),
		rule.Need(bytes <= r.StageBytes(), "attention: %d tokens of %d bytes are %d bytes, a stage has %d", t.PerStage,
			l.TokenBytes(), bytes, r.StageBytes())); p != "" {
		return p
	}
	if p := t.Variant.problem(); p != "" {
		return p
	}
	if t.Work != nil {
		if p := t.Work.problem(t.Class); p != "" {
			return p
		}
	}
	if p := t.Unsplit.problem(t); p != "" {
		return p
	}
	return rule.First(
		rule.Need(int(t.Scratch.Len()) >= t.ScratchLen(e.Consumers),
			"attention: Scratch has %d elements, want %d for %d consumer warps", t.Scratch.Len(), t.ScratchLen(e.Consumers),
			e.Consumers),
		rule.Need(t.Work != nil || int(t.Tail.Len()) >= t.TailLen(), "attention: Tail has %d elements, want %d", t.Tail.Len(),
			t.TailLen()))
}

// keep says how L2 keeps what is read of the cache. Of one sequence it may stay until the next step. That of many would
// push out what each step needs once, such as the code behind the LM head.
func (t *Attention) keep() []dsl.MemOpt {
	if t.Work == nil {
		return nil
	}
	return []dsl.MemOpt{dsl.CacheHint(dsl.EvictFirst)}
}

// Produce streams the cached tokens of this CTA's items. A chunk is PerStage
// tokens, copied page by page, a lane a page. A chunk's pages are looked up while
// the one before it waits for its stage.
func (t *Attention) Produce(e *grid.Env, p *pipeline.Producer, s Step) {
	k, l := e.K, t.KV
	if t.problem(e, p.Ring()) != "" || l.stepProblem(s) != "" {
		return // Consume reports it
	}
	run := min(l.Page, t.PerStage) // tokens of one copy at most
	rounds := pipeline.CeilDiv(t.PerStage, run*dsl.WarpSize)
	k.Note("attention: chunks of the cache, a lane a page; a chunk's pages are looked up while the one before waits for its stage")
	t.eachItem(e, s, func(it *item) {
		at := func(round int) u32 { return e.Lane.AddC(round * dsl.WarpSize).MulC(run) }
		look := func(c u32, round int) u32 {
			tok := it.chunk(c).MulC(t.PerStage).Add(at(round)).Min(it.cached.SubC(1))
			k.Claim("attention: a page behind the cached tokens", func() dsl.Pred { return tok.Lt(it.cached) })
			return s.Table.Load(it.entry(tok))
		}
		pages := dsl.NewArray(k.U32(0), rounds, "page")
		k.If(it.first.Lt(it.end), func() {
			for round, page := range pages {
				page.Set(look(it.first, round))
			}
		})
		k.For(it.first, it.end, func(c u32) {
			from := it.chunk(c).MulC(t.PerStage).Named("from")
			n := it.cached.Sub(from).MinC(t.PerStage).Named("tokens")
			var now []u32
			for round, page := range pages {
				now = append(now, page.Get())
				page.Set(look(c.AddC(1).Min(it.end.SubC(1)), round))
			}
			p.Fill(n.MulC(l.TokenBytes()), func(base u32) {
				for round, page := range now {
					first := at(round).Named("at")
					k.If(first.Lt(n), func() {
						src := l.rowBase(s.Layer, s.Pages, page, it.kvHead, from.Add(first).RemC(l.Page))
						bytes := n.Sub(first).MinC(run).MulC(l.TokenBytes())
						p.Copy(base.Add(first.MulC(l.TokenUnits())), s.Cache, src, bytes, t.keep()...)
					})
				}
			})
		}, dsl.Unroll(1))
	})
}

// Consume computes this CTA's items.
func (t *Attention) Consume(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring, s Step) {
	k := e.K
	if p := cmp.Or(t.problem(e, r), t.KV.stepProblem(s)); p != "" {
		k.Require(false, "%s", p)
		return
	}
	t.eachItem(e, s, func(it *item) {
		if t.Work == nil {
			if t.Packets != nil {
				e.Wait("queries", func() { t.fetchPackets(e, s, it) })
			}
			st := t.stream(e, c, r, s, it, pipeline.CeilDiv(t.part(), fewRows), 1)
			k.Note("attention: the warps' states become one")
			e.Part("states meet", st.combineSplit)
			return
		}
		e.Part("queries", func() {
			it.fetchQueries()
			it.fetchNew(s)
		})
		few := func() {
			st := t.stream(e, c, r, s, it, 1, 1)
			e.Part("states meet", st.combineFew)
		}
		many := func() {
			st := t.stream(e, c, r, s, it, t.tileRows()/fewRows, min(manySlices, t.PerStage/blockTokens))
			e.Part("states meet", st.combineMany)
		}
		switch {
		case !t.few(e.Consumers):
			many()
		case t.tileRows() == fewRows:
			few()
		default:
			k.IfElse(t.rowsNow(e, it).LtC(fewRows+1), few, many)
		}
	})
	if t.LL != nil && t.Merge != nil {
		k.Note("attention: merge the states of all splits as their packets arrive")
		e.Part("merge", func() { t.mergeStates(e, s) })
	}
}

// stream adds an item's tokens to the states of the warps, of which each lane holds
// rows (1 or 2) rows, in blocks of wide slices of tokens.
func (t *Attention) stream(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring, s Step, it *item, rows,
	wide int) *state {
	e.K.Note("attention: queries to registers")
	st := newState(t, e, s, it, rows, wide)
	e.K.Note("attention: the running state of the new token")
	st.ownToken()
	e.K.Note("attention: cached tokens, a block of %d a warp at a time: scores, softmax against the running maximum, weighted values", wide*blockTokens)
	st.eachBlock(c, r, st.cachedBlock)
	st.newTokens()
	if t.KV.e4m3() && !t.hooksValues() {
		st.valueScale = t.KV.scale(s, it.kvHead, 1).Named("v_scale")
	}
	return st
}
