package attention

import (
	"fmt"
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
	"github.com/mkgen/mkgen/tasks/prefill"
)

// PrefillAttention is causal attention of consecutive tokens of one sequence over its pages, whose keys and values,
// those of these tokens included, are in the cache. A warpgroup has a tile of 64 rows: the query heads of a KV head for
// as many tokens as fit, row r being query head r mod Group of token r / Group. The warpgroups of a cluster have tiles
// of neighbouring tokens of one KV head. Its keys and values come through the ring in blocks of tokens, a stage of keys
// and one of values, of which each CTA fetches its part for all.
//
// In shared memory as in the cache a token's keys are rows of 128 bytes, or 64, whose 16-byte units are permuted by the
// slot as wgmma's swizzle wants; the rows of a block that lie at the same place of their tokens make a panel.
type PrefillAttention struct {
	Heads   int // query heads
	KV      KVLayout
	Q       dsl.Buf[dsl.BF16]   // [T][Heads][D], scaled by log2(e)/√D
	Out     prefill.Activations // K is Heads·D
	To      dsl.Buf[dsl.BF16]
	Groups  int // consumer warpgroups: 1 or 2
	Cluster int // CTAs of a cluster: 1 or 2
	Stage   int // bytes of a stage
	// Producers is the number of producer warps, see KVLayout.Producers.
	Producers int
	Blind     bool // no query sees the token right before it: a planted fault

	// Queries is shared memory of QueryBytes, aligned to 1024, where that is not 0.
	Queries dsl.Buf[dsl.B128]

	// Window is the tokens that a query of a step's layer sees, its own among them, at least 1; nil where it sees all.
	// Blocks that no row of a cluster's tiles sees are not fetched.
	Window func(s Step) u32
	// Sinks, with Window, is the first tokens of a sequence that a query of a step's layer sees, too; nil for none.
	Sinks func(s Step) u32
	// Variant changes scores, or is without softmax; nil for neither. Of its hooks there are Prepare and Logits.
	Variant *Variant

	// Split, unless nil, cuts keys and values of a sequence into parts that clusters attend to side by side.
	Split *PrefillSplit

	// Blocks, unless nil, copies the small pages of the cache into what attention reads. KV is its Layout then.
	Blocks *PrefillBlocks

	// OutputScale, unless nil, is what outputs of a KV head are multiplied by.
	OutputScale func(s Step, kvHead u32) f32

	pages dsl.TensorMap // see Map
}

// MaxPrefillHead is the largest head dimension: a thread has half as many registers of outputs.
const MaxPrefillHead = 256

// maxHeldQueries is the largest head dimension of which a thread keeps a tile's queries in registers, a quarter as
// many, beside sums of scores, weights and outputs.
const maxHeldQueries = 128

// queryLine is the bytes of a row of a panel of queries in shared memory: permuted as wgmma's swizzle of 128 bytes
// wants.
const queryLine = 128

// QueryBytes is the shared memory for the queries of a CTA's tiles: none where they are in registers.
func (t *PrefillAttention) QueryBytes() int { return PrefillQueryBytes(t.KV.D, t.Groups) }

// PrefillQueryBytes is QueryBytes of heads of d dimensions and groups consumer warpgroups.
func PrefillQueryBytes(d, groups int) int {
	if d <= maxHeldQueries {
		return 0
	}
	return groups * prefill.GroupRows * pipeline.CeilDiv(2*d, queryLine) * queryLine
}

// Problem says why the kernel cannot be made, or nothing.
func (t *PrefillAttention) Problem() string {
	return rule.First(
		rule.Sound(t.KV.problem()),
		rule.Need(!t.KV.e4m3(), "prefill attention: keys and values in %s, want %s: see PrefillCopy", t.KV.Type, KVBF16),
		rule.Need(t.KV.D <= MaxPrefillHead, "prefill attention: a head dimension of %d, want at most %d", t.KV.D, MaxPrefillHead),
		rule.Need(t.QueryBytes() == 0 || 16*int(t.Queries.Len()) >= t.QueryBytes(),
			"prefill attention: no shared memory for queries of %d dimensions, want %d bytes", t.KV.D, t.QueryBytes()),
		rule.Need(t.Heads > 0 && t.Heads%t.KV.Heads == 0 && t.group() <= prefill.GroupRows,
			"prefill attention: %d query heads of %d KV heads, want a multiple, at most %d times", t.Heads, t.KV.Heads,
			prefill.GroupRows),
		rule.Need(t.Out.K%32 == 0 && t.Out.K == t.Heads*t.KV.D,
			"prefill attention: an output of %d columns, want %d, a multiple of 32", t.Out.K, t.Heads*t.KV.D),
		rule.Sound(t.Variant.problem()),
		rule.Need(t.Sinks == nil || t.Window != nil, "prefill attention: sinks without a window"),
		rule.Need(t.Groups >= 1 && t.Cluster >= 1, "prefill attention: %d warpgroups and clusters of %d, want 1 or more",
			t.Groups, t.Cluster),
		rule.Need(t.whole() || t.Cluster == 1,
			"prefill attention: pages of %d tokens in clusters of %d CTAs, want at least %d tokens", t.KV.Page, t.Cluster,
			PrefillPage),
		rule.Need(t.whole() || t.Producers >= 1, "prefill attention: pages of %d tokens and %d producer warps, want at least 1",
			t.KV.Page, t.Producers),
		rule.Sound(t.Blocks.problem()),
		rule.Need(t.Blocks == nil || t.Split == nil,
			"prefill attention: copies of small pages beside parts, want one of them"),
		rule.Need(t.Blocks == nil || t.Window == nil,
			"prefill attention: copies of small pages beside a window, want one of them"),
		rule.Need(t.Block() >= blockTokens, "prefill attention: stages of %d bytes, want room for the keys of %d tokens",
			t.Stage, blockTokens))
}

func (t *PrefillAttention) group() int { return t.Heads / t.KV.Heads }

// groupTokens is the number of tokens of a warpgroup's tile.
func (t *PrefillAttention) groupTokens() int { return prefill.GroupRows / t.group() }

// Together is the number of tokens of a cluster's tiles.
func (t *PrefillAttention) Together() int { return t.groupTokens() * t.Groups * t.Cluster }

// rowUnits is the number of 16-byte units of a panel's row.
func (t *PrefillAttention) rowUnits() int { _, m := t.KV.fullPermutation(); return m }

// panels are those that a token's keys (v = 0) or values (v = 1) lie in: the first, and how many.
func (t *PrefillAttention) panels(v int) (first, n int) {
	per := t.rowUnits()
	first = v * t.KV.keyUnits() / per
	return first, pipeline.CeilDiv((v+1)*t.KV.keyUnits(), per) - first
}

// panelBytes is what a panel of a block takes.
func (t *PrefillAttention) panelBytes() int { return t.Block() * t.rowUnits() * 16 }

// Block is the number of tokens of a block: as many of 128 as a stage has room for, a power of two.
func (t *PrefillAttention) Block() int {
	_, keys := t.panels(0)
	_, values := t.panels(1)
	n := 128
	for n*max(keys, values)*t.rowUnits()*16 > t.Stage {
		n /= 2
	}
	return n
}

// box is the number of tokens that a copy takes: those of a page, or of a CTA's part of a block.
func (t *PrefillAttention) box() int { return min(t.KV.Page, t.Block()/t.Cluster) }

// PrefillPage is the number of tokens that a page must have for the CTAs of a cluster to share keys and values: a whole
// group of rows, which the cache then permutes as wgmma wants.
const PrefillPage = 8

func (t *PrefillAttention) whole() bool { return t.KV.Page >= PrefillPage }

// Producers is pipeline.TileStages.Producers of a ring for pages of l.Page tokens: small ones are gathered.
func (l KVLayout) Producers() int {
	if l.Page >= PrefillPage {
		return 0
	}
	return dsl.WarpsPerGroup
}

// Turns declares how the consumer warpgroups take turns: two do, but for gathered pages, which do not come fast enough,
// and for heads whose queries are in shared memory, of which it is not measured.
func (t *PrefillAttention) Turns(k *dsl.Kernel, watch *pipeline.Watch) *pipeline.Turns {
	if t.Groups != pipeline.TurnGroups || !t.whole() || t.QueryBytes() > 0 {
		return nil
	}
	return pipeline.NewTurns(k, watch)
}

// Map declares the tensor map of the cache.
func (t *PrefillAttention) Map(k *dsl.Kernel, cache dsl.Buf[dsl.B128]) {
	if p := t.Problem(); p != "" || !t.whole() {
		k.Require(p == "", "%s", p)
		return
	}
	row := t.rowUnits()
	t.pages = dsl.NewTensorMap(k, "map_kv", cache, 0, [3]int64{int64(8 * row), int64(t.KV.TokenUnits() / row), 0},
		[2]int64{int64(16 * row), int64(t.KV.TokenBytes())}, [3]int{8 * row, 1, t.box()},
		dsl.Doc(fmt.Sprintf("tensor map of the cache: [token of a head of a page][part of its row][%d bytes]; a copy takes %d tokens",
			16*row, t.box())))
}

// prefillPiece is what a cluster works on at a time: tiles of a KV head from a token of the step on.
type prefillPiece struct {
	token, head u32
	blocks      u32 // of tokens, up to the last that some row sees or the part has; 0: all tokens pad the step
	from        u32 // the first block that some row sees, but for sinks
	start       u32 // from, less the blocks of sinks before it: see at
	begin       u32 // the first block that is worked on: start, or where a part begins
	part        u32 // with PrefillAttention.Split
	sees        u32 // tokens of the sequence up to the last that some row sees
}

// prefillPieces is how a step's attention is dealt out.
type prefillPieces struct {
	t       *PrefillAttention
	e       *grid.Env
	s       Step
	layer   u32 // of the cache's
	n, room u32 // tokens of the step, and with those that pad it
	end     u32 // tokens of the sequence
	tiles   u32 // of a cluster's tokens
	count   u32 // tiles that are worked on, and the first of them
	from    u32
	begin   *prefill.Begin
	window  u32 // with PrefillAttention.Window
	sinks   u32 // with PrefillAttention.Sinks
	first   u32 // the sequence's block, with PrefillAttention.Blocks
}

// queryRow is a token's row of queries and outputs.
func (p *prefillPieces) queryRow(token u32) u32 {
	if p.begin == nil {
		return token
	}
	return p.begin.Row.Add(token)
}

// has reports whether a token is one of the sequence's rows, or pads them.
func (p *prefillPieces) has(token u32) dsl.Pred {
	if p.begin != nil && p.begin.End != nil {
		return p.queryRow(token).Lt(*p.begin.End)
	}
	return token.Lt(p.room)
}

// page is the sequence's i-th page.
func (p *prefillPieces) page(i u32) u32 {
	if p.t.Blocks != nil {
		return p.first.Add(i)
	}
	if p.begin != nil {
		i = p.begin.Entry.Add(i)
	}
	return p.s.Table.Load(i)
}

// pieces deals out a step whose first token is at s.Pos, of which the products take padded tokens at once.
func (t *PrefillAttention) pieces(e *grid.Env, s Step, span prefill.Span, padded int) *prefillPieces {
	n := span.N
	p := &prefillPieces{t: t, e: e, s: s, layer: s.Layer, n: n, begin: span.Begin,
		room: dsl.Optional(n.AddC(padded - 1).DivC(padded).MulC(padded)), end: s.Pos.Add(n).Named("end")}
	if span.Begin != nil && span.Begin.End != nil {
		p.room = span.Begin.End.Sub(span.Begin.Row).Named("room")
	}
	p.tiles = p.room.AddC(t.Together() - 1).DivC(t.Together())
	if t.Window != nil {
		p.window = t.Window(s)
	}
	if t.Sinks != nil {
		p.sinks = t.Sinks(s)
	}
	if t.KV.Layers == 1 {
		p.layer = e.K.U32(0)
	}
	p.count, p.from = p.tiles, e.K.U32(0)
	if span.Last != nil {
		last := pipeline.CeilDiv(padded, t.Together()) // tiles that have the last tokens
		if padded%t.Together() != 0 {
			last++
		}
		p.count = dsl.Select(*span.Last, p.tiles.MinC(last), p.tiles)
		p.from = dsl.Select(*span.Last, p.tiles.MaxC(last).SubC(last), e.K.U32(0))
	}
	return p
}

// each calls body for the pieces of this CTA's cluster. Those that see most come first, and every second round of the
// grid goes backwards, so that all have as much to do.
func (p *prefillPieces) each(body func(piece prefillPiece)) {
	t, e, k := p.t, p.e, p.e.K
	clusters := e.Grid / t.Cluster
	own, all := e.CTA.DivC(t.Cluster), p.count.MulC(t.KV.Heads)
	var parts u32
	if t.Split != nil {
		parts = t.parts(p.end.SubC(1)).Named("parts")
		all = all.Mul(parts).Named("pieces")
	}
	k.ForStep(k.U32(0), all, clusters, func(round u32) {
		at := round.Add(dsl.Select(round.DivC(clusters).AndC(1).EqC(0), own, k.U32(clusters-1).Sub(own)))
		k.If(at.Lt(all), func() {
			i, part := at.DivC(t.KV.Heads), k.U32(0)
			if t.Split != nil {
				parts := dsl.Opaque(parts) // its reciprocal is not kept
				i, part = i.Div(parts), i.Rem(parts).Named("part")
			}
			tile := p.count.SubC(1).Sub(i.Min(p.count.SubC(1))).Add(p.from).Min(p.tiles.SubC(1))
			token := tile.MulC(t.Together()).Named("first_token")
			sees := p.s.Pos.Add(token.AddC(t.Together()).Min(p.n))
			blocks := dsl.Select(token.Lt(p.n), sees.AddC(t.Block()-1).DivC(t.Block()), k.U32(0)).Named("blocks")
			piece := prefillPiece{token: token, head: at.RemC(t.KV.Heads).Named("kv_head"), blocks: blocks, from: k.U32(0),
				sees: dsl.Optional(sees)}
			if t.Window != nil { // what the first of the tokens sees
				piece.from = p.s.Pos.Add(token).AddC(1).Max(p.window).Sub(p.window).DivC(t.Block()).Min(blocks).Named("first_block")
			}
			piece.start = piece.from
			if t.Sinks != nil {
				sinks := p.sinks.AddC(t.Block() - 1).DivC(t.Block()).Min(piece.from)
				piece.start = piece.from.Sub(sinks).Named("start")
			}
			piece.begin = piece.start
			if t.Split == nil {
				body(piece)
				return
			}
			piece.part = part
			first := part.Mul(t.Split.Blocks).Named("first_of_part")
			// Tokens of a tile that see no key of a part have fewer parts.
			k.If(part.EqC(0).Or(first.Lt(piece.blocks)), func() {
				piece.begin = piece.start.Max(first).Named("begin")
				piece.blocks = piece.blocks.Min(first.Add(t.Split.Blocks)).Named("end")
				body(piece)
			})
		})
	}, dsl.Unroll(1))
}

// Produce streams the keys and values of this CTA's pieces, once ready has waited for them: keys a block ahead. All
// lanes of the producer warp run it, or of all Producers.
func (t *PrefillAttention) Produce(e *grid.Env, c *pipeline.TileProducer, s Step, span prefill.Span, padded int,
	ready func()) {
	k := e.K
	if p := t.Problem(); p != "" {
		k.Require(false, "%s", p)
		return
	}
	ready()
	p := t.pieces(e, s, span, padded)
	if !t.whole() {
		p.gather(c)
		return
	}
	if t.Blocks != nil {
		p.first = t.Blocks.First(span)
	}
	p.each(func(piece prefillPiece) {
		await := p.awaiter(c, piece)
		k.For(piece.begin, piece.blocks, func(b u32) {
			await(b)
			p.copyPages(c, piece, 0, p.at(piece, b, 1))
			k.If(b.Ne(piece.begin), func() { p.copyPages(c, piece, 1, p.at(piece, b.SubC(1), 1)) })
		}, dsl.Unroll(1))
		k.If(p.some(piece), func() { p.copyPages(c, piece, 1, p.last(piece)) })
	})
}

// some reports whether there are keys to be worked on.
func (p *prefillPieces) some(piece prefillPiece) dsl.Pred {
	if p.t.Split == nil {
		return piece.blocks.NeC(0)
	}
	return piece.begin.Lt(piece.blocks)
}

// last is the last block that is worked on: of a part it may be one of sinks.
func (p *prefillPieces) last(piece prefillPiece) u32 {
	if p.t.Split == nil {
		return piece.blocks.SubC(1)
	}
	return p.at(piece, piece.blocks.SubC(1), 1)
}

// at is the block, or with blocks of n tokens the first of its tokens, that is worked on as the i-th, from start on:
// those of sinks first, then those from from on.
func (p *prefillPieces) at(piece prefillPiece, i u32, n int) u32 {
	if p.t.Sinks == nil {
		return i
	}
	return dsl.Select(i.Lt(piece.from.MulC(n)), i.Sub(piece.start.MulC(n)), i)
}

// row is the token's row in the cache, one behind the last being that one.
func (p *prefillPieces) row(piece prefillPiece, position u32) (row, slot u32) {
	l := p.t.KV
	position = position.Min(p.end.SubC(1))
	slot = position.RemC(l.Page)
	page := p.layer.Mul(p.s.Pages).Add(p.page(position.DivC(l.Page)))
	return page.MulC(l.Heads).Add(piece.head).MulC(l.Page).Add(slot), slot
}

// copyPages starts copies of pages, or parts of them, a lane each: of this CTA's, for all CTAs of the cluster.
func (p *prefillPieces) copyPages(c *pipeline.TileProducer, piece prefillPiece, v int, block u32) {
	t, e, k := p.t, p.e, p.e.K
	first, panels := t.panels(v)
	mask, rank := uint16(0), k.U32(0)
	if t.Cluster > 1 {
		mask, rank = 1<<t.Cluster-1, e.CTA.RemC(t.Cluster)
	}
	lanes := t.Block() / t.box() / t.Cluster
	box := e.Lane.MinC(lanes - 1).MulC(t.Cluster).Add(rank).MulC(t.box()) // its first token
	row, slot := p.row(piece, block.MulC(t.Block()).Add(box))
	row = row.Sub(slot.RemC(t.box())).Named("row")
	c.FillByLanes(panels*t.panelBytes(), lanes, func(s pipeline.TileStage) {
		for i := range panels {
			at := box.MulC(16 * t.rowUnits()).AddC(i * t.panelBytes())
			s.Copy(at, t.pages, [3]dsl.Val[dsl.I32]{k.I32(0), k.I32(first + i), dsl.Bits[dsl.I32](row)}, mask)
		}
	})
}
