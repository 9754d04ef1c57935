package attention

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
)

// maxTiles bounds the tiles of 16 rows of an item that warps work on at once.
const maxTiles = 8

// tiles is the number of 16-row tiles worked on at once at most, a power of two:
// each needs a warp.
func (t *Attention) tiles(consumers int) int {
	n := 1
	for n < maxTiles && 2*n <= consumers && n*blockTokens < t.rowsMax() {
		n *= 2
	}
	return n
}

// passRows is the number of rows of an item that are worked on at once at most.
func (t *Attention) passRows(e *grid.Env) int { return t.tiles(e.Consumers) * blockTokens }

// passes is the number of passes over an item at most.
func (t *Attention) passes(e *grid.Env) int { return pipeline.CeilDiv(t.rowsMax(), t.passRows(e)) }

// tileRows is the number of rows of a tile that are ever in use, 8 or 16.
func (t *Attention) tileRows() int { return 8 * pipeline.CeilDiv(min(t.rowsMax(), blockTokens), 8) }

// deal is how the warps share an item: warp w has tile w mod tiles, and of the
// blocks of KV those that fall to lane w / tiles of the lanes.
type deal struct {
	rows  u32 // of this pass of the item
	tiles u32 // a power of two
	tile  u32
	lanes u32
	lane  u32 // from lanes on: a warp that has nothing to do
	fixed int // lanes, where that is a constant, or 0
}

// takes is whether block g falls to this warp's lane.
func (d deal) takes(g u32) dsl.Pred {
	if d.fixed > 0 {
		return g.RemC(d.fixed).Eq(d.lane)
	}
	return g.Rem(d.lanes).Eq(d.lane)
}

// each calls body for those of n blocks that fall to this warp's lane.
func (d deal) each(k *dsl.Kernel, n u32, body func(g u32)) {
	if d.fixed > 0 {
		k.ForStep(d.lane, n, d.fixed, body, dsl.Unroll(1))
		return
	}
	turns := n.Add(d.lanes.SubC(1)).Sub(d.lane).Div(d.lanes)
	turns = dsl.Select(d.lane.Lt(d.lanes), turns, k.U32(0))
	k.Claim("attention: a warp has more turns than there are blocks", func() dsl.Pred { return turns.Lt(n.AddC(1)) })
	k.For(k.U32(0), turns, func(i u32) { body(i.Mul(d.lanes).Add(d.lane)) }, dsl.Unroll(1))
}

// rowsNow is the number of rows of this pass of an item.
func (t *Attention) rowsNow(e *grid.Env, it *item) u32 {
	return it.word(kv.ItemRows).MulC(t.Group()).Sub(it.pass.MulC(t.passRows(e))).MinC(t.passRows(e)).Named("rows")
}

// deal deals the warps to an item. With at most 16 rows an item every warp is a lane.
func (t *Attention) deal(e *grid.Env, it *item) deal {
	k := e.K
	d := deal{tiles: k.U32(1), tile: k.U32(0), lanes: k.U32(e.Consumers), lane: e.Warp, fixed: e.Consumers}
	if t.Work == nil {
		return d
	}
	d.rows = t.rowsNow(e, it)
	most := t.tiles(e.Consumers)
	if most == 1 {
		return d
	}
	shift := k.U32(0)
	for n := 1; n < most; n *= 2 {
		shift = shift.Add(dsl.Select(d.rows.Gt(k.U32(n*blockTokens)), k.U32(1), k.U32(0)))
	}
	shift = shift.Named("log_tiles")
	d.tiles = k.U32(1).Shl(shift).Named("tiles")
	d.tile, d.lane = e.Warp.And(d.tiles.SubC(1)).Named("tile"), e.Warp.Shr(shift).Named("warp_lane")
	d.lanes, d.fixed = k.U32(e.Consumers).Shr(shift).Named("warp_lanes"), 0
	return d
}

// idle is whether some warps of a number may be left without work.
func (t *Attention) idle(consumers int) bool {
	return t.Work != nil && consumers%t.tiles(consumers) != 0
}

// queryRow is a row of a lane's fragments: a query head of a query token.
type queryRow struct {
	valid func() dsl.Pred // whether the item has it
	at    u32             // without Work: [token][head], the row of Q
	local u32             // with Work or Packets: the row of Queries
	query *Query          // for the variant's hooks; nil without
	token func() u32      // index of the query token; with Work only
}

// queryRow is the lane's row h, 0 or 1, of a tile: row lane/4 + 8h.
func (st *state) queryRow(h int) queryRow {
	e, t, it := st.e, st.t, st.it
	row := e.Lane.DivC(4).AddC(8 * h)
	if t.Work == nil {
		valid := func() dsl.Pred { return row.Lt(st.heads) }
		if t.Packets == nil { // all queries' loads ask for it
			v := valid()
			valid = func() dsl.Pred { return v }
		}
		local := row.Min(st.heads.SubC(1))
		r := queryRow{valid: valid, at: dsl.Optional(st.query.Add(local)), local: local}
		r.query = t.query(e, st.step, r.at, e.K.U32(0))
		return r
	}
	row = st.deal.tile.MulC(blockTokens).Add(row)
	r := queryRow{local: row.Min(st.deal.rows.SubC(1))}
	r.valid = func() dsl.Pred { return row.Lt(st.deal.rows) }
	n := func() u32 { return r.local.Add(it.pass.MulC(t.passRows(e))) }
	r.token = func() u32 { return it.row(n().DivC(t.Group())) }
	if t.asksForQueries() {
		token, head := it.fused(n())
		r.query = t.query(e, st.step, head, token)
	}
	return r
}

// fused is the token row and the query head of the item's row n.
func (it *item) fused(n u32) (token, head u32) {
	group := it.t.Group()
	return it.row(n.DivC(group)), it.kvHead.MulC(group).Add(n.RemC(group))
}
