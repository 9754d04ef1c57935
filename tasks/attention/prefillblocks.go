package attention

import (
	"cmp"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
	"github.com/mkgen/mkgen/tasks/prefill"
)

// PrefillBlocks copies keys and values of small pages into blocks of BlockTokens tokens, which PrefillAttention reads
// through a tensor map like pages of that size. Copiers make the copies: the warps of the producer's warpgroup that do
// not fill the ring. All copiers of the grid share the blocks of a sequence, the first tokens first. Copiers wait for
// no attention, so they run ahead of it. Attention waits for the copy of each block that it reads.
type PrefillBlocks struct {
	KV    KVLayout          // of the cache: bf16, pages of fewer than PrefillPage tokens
	To    dsl.Buf[dsl.B128] // [blocks][KV heads][BlockTokens][K, V][head dimension], see Layout
	Ready dsl.Buf[dsl.U32]  // [blocks][KV heads] parts copied since the host zeroed it, modulo 2^32
	Slots dsl.Buf[dsl.B128] // CopierBytes of shared memory
	// Times returns how often blocks have been copied since the host zeroed Ready, the running time included.
	Times func(s Step) u32
	// First returns the sequence's first block in To and Ready.
	First func(span prefill.Span) u32
}

// BlockTokens is the number of tokens of a block.
const BlockTokens = 128

// Copiers is the number of warps of a CTA that copy.
const Copiers = dsl.WarpsPerGroup - 1

// CopierBytes is the size of the shared memory of a CTA's copiers.
const CopierBytes = 16 * Copiers * dsl.WarpSize * copySlots

const (
	copyTokens = dsl.WarpSize             // of a part, which a warp copies at once
	copyParts  = BlockTokens / copyTokens // of a block
	copySlots  = 8                        // copies of 16 bytes that a lane has under way at most
	copyGroup  = copySlots / 2            // copies that a lane waits for at once
)

// Layout returns To's layout.
func (b *PrefillBlocks) Layout() KVLayout {
	l := b.KV
	l.Layers, l.Page = 1, BlockTokens
	return l
}

// problem says why the copies cannot be made, or nothing.
func (b *PrefillBlocks) problem() string {
	if b == nil {
		return ""
	}
	return rule.First(
		rule.Sound(b.KV.problem()),
		rule.Need(!b.KV.e4m3() && b.KV.Page < PrefillPage, "prefill blocks: pages of %d tokens in %s, want fewer than %d in %s",
			b.KV.Page, cmp.Or(b.KV.Type, KVBF16), PrefillPage, KVBF16),
		rule.Need(16*b.Slots.Len() >= CopierBytes, "prefill blocks: %d bytes of shared memory, want %d", 16*b.Slots.Len(),
			CopierBytes))
}

// place returns the index in Ready of a head of the block-th block behind first.
func (b *PrefillBlocks) place(first, block, head u32) u32 {
	return first.Add(block).MulC(b.KV.Heads).Add(head)
}

// blockCopy is the work of a copier on a sequence. A job is a part of a block of one KV head.
type blockCopy struct {
	*PrefillBlocks
	e     *grid.Env
	s     Step
	span  prefill.Span
	first u32 // block of the sequence
	end   u32 // tokens of the sequence
	slot  u32 // this lane's first
}

// Copy copies the keys and values of a sequence whose first new token is at s.Pos, the cached ones included. The
// copiers run it, and must know of what the cache holds.
func (b *PrefillBlocks) Copy(e *grid.Env, s Step, span prefill.Span) {
	k := e.K
	if p := b.problem(); p != "" {
		k.Require(false, "%s", p)
		return
	}
	warp := e.Warp.SubC(e.Consumers + 1)
	c := &blockCopy{PrefillBlocks: b, e: e, s: s, span: span, first: b.First(span), end: s.Pos.Add(span.N).Named("end"),
		slot: warp.MulC(copySlots * dsl.WarpSize).Add(e.Lane)}
	own, all := e.CTA.MulC(Copiers).Add(warp).Named("copier"), e.Grid*Copiers
	jobs := c.end.AddC(BlockTokens - 1).DivC(BlockTokens).MulC(b.KV.Heads * copyParts).Named("jobs")
	next := dsl.NewVar(c.row(own), "next_row")
	last := dsl.NewVar(k.U32(0), "last") // the place of the part copied last, plus 1
	k.ForStep(k.U32(0), jobs, all, func(round u32) {
		job := round.Add(own)
		k.If(job.Lt(jobs), func() {
			row := next.Get()
			next.Set(c.row(job.AddC(all)))
			c.copy(job, row, func() { c.announce(last) })
			block, head, _ := c.job(job)
			last.Set(b.place(c.first, block, head).AddC(1))
		})
	}, dsl.Unroll(1))
	c.announce(last)
}

// job returns what a job copies.
func (c *blockCopy) job(job u32) (block, head, part u32) {
	return job.DivC(copyParts * c.KV.Heads), job.DivC(copyParts).RemC(c.KV.Heads), dsl.Optional(job.RemC(copyParts))
}

// row returns the row of the cache that has this lane's token of a job. Behind the last token it is that token's row.
func (c *blockCopy) row(job u32) u32 {
	l := c.KV
	block, head, part := c.job(job)
	token := block.MulC(BlockTokens).Add(part.MulC(copyTokens)).Add(c.e.Lane).Min(c.end.SubC(1))
	entry := token.DivC(l.Page)
	if c.span.Begin != nil {
		entry = c.span.Begin.Entry.Add(entry)
	}
	page := c.s.Table.Load(entry)
	if l.Layers > 1 {
		page = c.s.Layer.Mul(c.s.Pages).Add(page)
	}
	return page.MulC(l.Heads).Add(head).MulC(l.Page).Add(token.RemC(l.Page))
}

// copy copies a job whose tokens are in the lanes' rows, through shared memory that each lane has for itself. It calls
// begun when the first copies are under way.
func (c *blockCopy) copy(job, row u32, begun func()) {
	k, units := c.e.K, c.KV.TokenUnits() // a lane copies as many units as a token has
	block, head, part := c.job(job)
	to := c.place(c.first, block, head).MulC(BlockTokens).Add(part.MulC(copyTokens)).Named("to_row")
	at := dsl.Cast[dsl.U64](to).MulC(units).Add(dsl.Cast[dsl.U64](c.e.Lane)).Named("to")
	slot := func(i int) u32 { return c.slot.AddC(i % copySlots * dsl.WarpSize) }
	groups := pipeline.CeilDiv(units, copyGroup)
	each := func(group int, body func(i int)) {
		for i := group * copyGroup; i < min(units, (group+1)*copyGroup); i++ {
			body(i)
		}
	}
	start := func(group int) {
		lane := dsl.Opaque(c.e.Lane) // a thread has 40 registers: no group keeps what another one computes
		each(group, func(i int) { dsl.CopyAsync(c.Slots, slot(i), c.s.Cache, c.from(lane, row, i)) })
		k.CopyCommit()
	}
	ahead := min(groups, copySlots/copyGroup)
	for group := range ahead {
		start(group)
	}
	begun()
	for group := range groups {
		k.CopyWait(min(ahead-1, groups-1-group))
		each(group, func(i int) { c.To.Store(at.AddC(i*dsl.WarpSize), c.Slots.Load(slot(i))) })
		if group+ahead < groups {
			start(group + ahead)
		}
	}
}

// from returns the unit of the cache that goes to a lane's i-th unit of a part. A block's units are permuted by the
// token's place in it, those of the cache by the token's slot.
func (c *blockCopy) from(lane, row u32, i int) dsl.Val[dsl.U64] {
	units := c.KV.TokenUnits()
	token, unit := c.e.K.U32(i), lane
	if units != dsl.WarpSize {
		n := lane.AddC(i * dsl.WarpSize)
		token, unit = n.DivC(units), n.RemC(units)
	}
	every, m := c.Layout().permutation()
	unit = unit.Xor(token.DivC(every).RemC(m))
	from := dsl.Shfl(row, token)
	if every, m := c.KV.permutation(); m > 1 {
		unit = unit.Xor(from.RemC(c.KV.Page).DivC(every).RemC(m))
	}
	return dsl.Cast[dsl.U64](from).MulC(units).Add(dsl.Cast[dsl.U64](unit))
}

// announce counts the part that was copied last, if there is one. Tensor maps of other SMs read it.
func (c *blockCopy) announce(last *dsl.Var[dsl.U32]) {
	k := c.e.K
	k.If(last.Get().NeC(0), func() {
		k.SyncWarp()
		k.If(c.e.Lane.EqC(0), func() {
			k.FenceProxyAsyncGlobal()
			dsl.ReduceAdd(c.Ready, last.Get().SubC(1), k.U32(1), dsl.Release(dsl.GPUScope))
		})
	})
}

// awaiter returns what waits until the i-th block of a piece has been copied; nothing waits where blocks are not
// copied. Blocks come in order.
func (p *prefillPieces) awaiter(c *pipeline.TileProducer, piece prefillPiece) func(i u32) {
	b, k, lane := p.t.Blocks, p.e.K, p.e.Lane
	if b == nil {
		return func(u32) {}
	}
	copied := func(i u32) u32 { return i.MulC(p.t.Block()).DivC(BlockTokens) } // attention's blocks may be smaller
	seen := dsl.NewVar(k.U32(0), "seen")                                       // blocks known to have been copied
	return func(i u32) {
		block := copied(i).Named("copied_block")
		k.If(block.Ge(seen.Get()), func() {
			want := b.Times(p.s).MulC(copyParts).Named("parts")
			// The lanes look at one block each, from this one on.
			one := block.Add(lane).Min(copied(piece.blocks.SubC(1)))
			there := b.Ready.Load(b.place(p.first, one, piece.head), dsl.Acquire(dsl.GPUScope)).Eq(want)
			missing := dsl.ReduxMax(dsl.Select(there, k.U32(0), k.U32(dsl.WarpSize).Sub(lane))).Named("missing")
			seen.Set(block.AddC(dsl.WarpSize).Sub(missing))
			k.If(missing.EqC(dsl.WarpSize), func() {
				c.Until(b.Ready, b.place(p.first, block, piece.head), want, "waits for %d parts of a block to be copied")
				seen.Set(block.AddC(1))
			})
			k.FenceProxyAsyncGlobal() // in all lanes: they meet before one of them starts copies
		})
	}
}
