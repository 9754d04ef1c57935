package product

import (
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// Across is y += W·x for a matrix that is dealt out by columns (pipeline.Matrix.From): this
// CTA multiplies its columns by the elements of x that it has computed itself, and adds its
// part of every row to y with reductions in global memory. So nothing is passed
// between what computes x and this, but the parts of a row come in any order: THE LAST BITS
// DIFFER FROM RUN TO RUN.
//
// A weight that is not finite makes NaN of its row and of the three that are 8, 16 and 24
// rows apart from it in the same 32, whose zeros it is multiplied by.
//
// A consumer warp has groups of 64 rows of every chunk and keeps their sums in registers
// over all tiles.
type Across struct {
	Name string
	M    *pipeline.MatrixPlan
	X    dsl.Buf[dsl.BF16] // shared memory: this CTA's elements, 4 a tile
	Y    dsl.Buf[dsl.F32]  // [Rows] in global memory, or several of them
}

// acrossSums is how many sums a thread may keep.
const acrossSums = 128

// Produce streams this CTA's tiles through the ring, see GEMV.Produce.
func (t *Across) Produce(e *grid.Env, p *pipeline.Producer, share Share, w dsl.Buf[dsl.B128], from dsl.Val[dsl.U64]) {
	(&GEMV{Name: t.Name, M: t.M}).Produce(e, p, share, w, from)
}

// groups is the number of groups of 64 rows in a chunk.
func (t *Across) groups(part int) int { return t.M.ChunkColumns(part) / pipeline.GroupK }

// sums is the number of sums that a thread keeps: 8 a group of its warp.
func (t *Across) sums(e *grid.Env) (n int) {
	for part := range t.M.ChunksPerTile {
		n += 8 * pipeline.CeilDiv(t.groups(part), e.Consumers)
	}
	return n
}

func (t *Across) problem(e *grid.Env, r *pipeline.Ring) string {
	bytes := t.M.ChunkK * pipeline.TileRows * 2
	return rule.First(
		rule.Need(t.M.Across(), "%s: the matrix is dealt out by rows, want columns", t.Name),
		rule.Need(bytes <= r.StageBytes(), "%s: a chunk is %d bytes, a stage has %d", t.Name, bytes, r.StageBytes()),
		rule.Need(t.sums(e) <= acrossSums,
			"%s: %d rows in %d chunks a tile are %d sums a thread with %d consumer warps, want %d at most: narrower rows, more warps or larger stages", t.Name, t.M.Rows, t.M.ChunksPerTile, t.sums(e), e.Consumers, acrossSums),
		rule.Need(int(t.X.Len()) >= t.M.MaxCount()*pipeline.AcrossColumns, "%s: X has %d elements, want %d: %d a tile",
			t.Name,
			t.X.Len(), t.M.MaxCount()*pipeline.AcrossColumns, pipeline.AcrossColumns),
		rule.Need(int(t.Y.Len()) >= t.M.Rows, "%s: Y has %d elements, want %d", t.Name, t.Y.Len(), t.M.Rows))
}

// sum are the sums of a group of 64 rows: of the two mma, and their four registers.
type sum [][]*dsl.Var[dsl.F32]

// Consume multiplies this CTA's tiles as they arrive and adds its sums to Y, from element at
// on. X must be complete and visible to all consumer threads. No SM may read these elements
// before the next sync, or write them otherwise than by adding.
func (t *Across) Consume(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring, share Share, at u32) {
	k := e.K
	if p := t.problem(e, r); p != "" {
		k.Require(false, "%s", p)
		return
	}
	parts := make([][]sum, t.M.ChunksPerTile)
	for part := range parts {
		for range pipeline.CeilDiv(t.groups(part), e.Consumers) {
			parts[part] = append(parts[part], sum{dsl.NewArray(k.F32(0), 4, "sum"), dsl.NewArray(k.F32(0), 4, "sum")})
		}
	}
	weights, x := dsl.View[dsl.BF16x2](r.Data), dsl.View[dsl.BF16x2](t.X)
	own := e.Lane.ShrC(4).Xor(e.Lane.ShrC(1)).AndC(1).EqC(0) // A's elements that are not 0
	zero := dsl.Lit[dsl.BF16x2](k, 0)
	k.For(k.U32(0), share.Count, func(tile u32) {
		v := dsl.Select(own, x.Load(tile.MulC(pipeline.AcrossColumns/2).Add(e.Lane.AndC(1))), zero)
		a := [4]pair{v, zero, zero, v}
		for part, sums := range parts {
			c.Drain(func(base u32) {
				t.eachGroup(e, part, func(i int, group u32) {
					w := weights.LoadN(base.MulC(4).Add(group.MulC(pipeline.GroupBytes/4)).Add(e.Lane.MulC(4)), 4)
					multiply(pipeline.FormatBF16, sums[i], a[:], w) // see the package comment of pipeline
				})
			})
		}
	}, dsl.Unroll(1))
	k.If(share.Count.NeC(0), func() { t.reduce(e, parts, at) })
}

// eachGroup calls body for this warp's groups of a chunk.
func (t *Across) eachGroup(e *grid.Env, part int, body func(i int, group u32)) {
	e.OwnGroups(t.groups(part), body)
}

// reduce adds a warp's sums to Y. A sum is in four lanes, of which each takes another one:
// lane 16b + 8h + 4o + t has those of mma h, rows 8b + 2t + o and 16 more, so that a
// reduction of a warp is whole sectors.
func (t *Across) reduce(e *grid.Env, parts [][]sum, first u32) {
	k := e.K
	bit := func(n int) u32 { return e.Lane.ShrC(n).AndC(1) }
	second, odd := bit(3).NeC(0), bit(2).NeC(0)
	in := bit(3).MulC(32).Add(bit(4).MulC(8)).Add(e.Lane.AndC(3).MulC(2)).Add(bit(2)).Named("row_in_group")
	for part, sums := range parts {
		t.eachGroup(e, part, func(i int, group u32) {
			pick := func(at int) f32 {
				both := func(h int) f32 { return dsl.Select(odd, sums[i][h][at+1].Get(), sums[i][h][at].Get()) }
				return dsl.Select(second, both(1), both(0))
			}
			row := group.MulC(pipeline.AcrossRows).Add(in).AddC(part * t.M.ChunkK / pipeline.GroupK * pipeline.AcrossRows)
			for at, r := range []u32{row, row.AddC(16)} {
				put := func() { dsl.ReduceAdd(t.Y, first.Add(r), pick(2*at), dsl.Relaxed(dsl.GPUScope)) }
				if t.M.Rows%pipeline.AcrossRows == 0 {
					put()
				} else {
					k.If(r.LtC(t.M.Rows), put)
				}
			}
		})
	}
}

// SwiGLUOwn is SwiGLU into this CTA's own elements in shared memory: own[0] is that of the
// first packed rows of share.
func SwiGLUOwn(e *grid.Env, own dsl.Buf[dsl.BF16], share Share, scale NormScale) Epilogue {
	all := GLU{}.Epilogue(e, own, e.K.U32(0), pipeline.FormatBF16, scale)
	return func(row u32, y0, y1 f32) { all(row.Sub(share.First.MulC(pipeline.TileRows)), y0, y1) }
}

// Sums are three vectors in turn to which all SMs add, so that a sync a turn is enough:
// one is added to, the one of the turn before is read, and what is the next one's is
// cleared, which was read in the turn before.
type Sums struct {
	X    dsl.Buf[dsl.F32] // [SumsTurns][N]; at first the one of the first turn is 0
	N    int              // a multiple of 4
	Turn u32              // counts turns, between which a sync lies
}

// SumsTurns is after how many turns a vector comes again.
const SumsTurns = 3

// at is where the vector begins of a later turn, 0 to 2 ahead.
func (t Sums) at(ahead int) u32 { return t.Turn.AddC(ahead).RemC(SumsTurns).MulC(t.N) }

// Now is where the vector of this turn begins in X.
func (t Sums) Now() u32 { return t.at(0) }

// Before is the vector of the turn before.
func (t Sums) Before() Vector {
	from := t.at(SumsTurns - 1)
	return func(at u32) []f32 { return t.X.LoadN(from.Add(at), 4) }
}

// AddResidual is AddResidual into the vector of this turn, by its rows' owners, who clear
// their rows of the next one's. keep gets the sums, for who needs them before others have been added.
func (t Sums) AddResidual(e *grid.Env, old Vector, keep Keep) FourRows {
	now, next := t.Now(), t.at(1)
	return func(row u32, y []f32) {
		sum := added(old(row), y)
		keep(row, sum)
		for i, x := range sum {
			dsl.ReduceAdd(t.X, now.Add(row).AddC(i), x, dsl.Relaxed(dsl.GPUScope))
		}
		t.X.StoreN(next.Add(row), slices.Repeat([]f32{e.K.F32(0)}, len(sum)))
	}
}
