package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
)

// tilePairs is the number of pairs of rows, times columns, of a tile.
func tilePairs(padded int) int { return pipeline.TileRows / 2 * padded }

// roundTiles is how many tiles the consumer threads finish at once, a pair of rows
// of a token each.
func roundTiles(consumers, padded int) int {
	return max(1, consumers*dsl.WarpSize/tilePairs(padded))
}

// ColumnPartialsLen is the length, in f32, of the Partials of GEMMs with n
// consumer warps and columns (8 or 16): two halves, used in turn, of what each warp
// has of as many tiles as the threads finish at once, or the sums of a batch of as many tiles as are given,
// where the sums of a product are in shared memory (SumsInShared).
func ColumnPartialsLen(consumers, padded, tiles int) int {
	return max(2*consumers*roundTiles(consumers, padded)*tilePairs(padded)*2, sharedSumsLen(consumers, tiles))
}

// reduction sums the warps' parts of a batch through shared memory, in rounds of some tiles.
type reduction struct {
	g        *GEMM
	e        *grid.Env
	half     *dsl.Var[dsl.U32] // of Part, for the next round
	tiles    int               // of a round
	perWarp  int               // elements of Part a warp has in a half
	elements int               // of a tile
}

func (g *GEMM) newReduction(e *grid.Env) *reduction {
	m := &reduction{g: g, e: e, half: dsl.NewVar(e.K.U32(0), "half"), tiles: roundTiles(e.Consumers, g.In.Padded())}
	m.elements = 2 * tilePairs(g.In.Padded())
	m.perWarp = m.tiles * m.elements
	return m
}

// run sums and finishes the tiles of a batch, first being its first row tile. One
// barrier a round is enough: what a round writes was read two rounds ago, before the
// barrier in between.
func (m *reduction) run(first, tiles, n u32, acc []tilePair, epilogue ColumnEpilogue) {
	k, e := m.e.K, m.e
	batch := m.g.M.Batch
	rounds := pipeline.CeilDiv(batch, m.tiles)
	k.Note("%s: sums of all warps, two rows of a token a thread", m.g.Name)
	k.ForStep(k.U32(0), tiles, m.tiles, func(from u32) {
		base := m.half.Get().MulC(e.Consumers * m.perWarp).Named("base")
		mine := base.Add(e.Warp.MulC(m.perWarp))
		for r := range rounds {
			write := func() {
				for t := r * m.tiles; t < min(batch, (r+1)*m.tiles); t++ {
					m.write(mine.AddC((t-r*m.tiles)*m.elements), acc[t/2], t%2)
				}
			}
			if rounds == 1 {
				write()
			} else {
				k.If(from.EqC(r*m.tiles), write)
			}
		}
		e.Sync()
		e.EachConsumer(m.tiles*tilePairs(m.g.In.Padded()), func(i u32) {
			m.g.pair(e, i, first, from, tiles, n, func(row, token u32) {
				y0, y1 := m.sum(base.Add(i.MulC(2)))
				m.handOn(row, token, y0, y1, epilogue)
			})
		})
		m.half.Set(m.half.Get().XorC(1))
	}, dsl.Unroll(1))
}

// handOn is the epilogue of a pair of rows, times their scales.
func (m *reduction) handOn(row, token u32, y0, y1 f32, epilogue ColumnEpilogue) {
	if p := m.g.int4(nil); p != nil && p.Half {
		back := m.e.K.F32(p.back())
		y0, y1 = y0.Mul(back), y1.Mul(back)
	}
	y0, y1 = scaled(m.e.K, m.g.M.Format, m.g.Scales, row, y0, y1)
	epilogue(row, token, y0, y1)
}

// pair calls body where the i-th pair of a round that begins with tile from of a
// batch of n tiles is one of the matrix and of the step; first is the batch's
// first row tile.
func (g *GEMM) pair(e *grid.Env, i, first, from, tiles, n u32, body func(row, token u32)) {
	tile := from.Add(i.DivC(tilePairs(g.In.Padded())))
	token := i.DivC(pipeline.TileRows / 2).RemC(g.In.Padded()).Named("token")
	e.K.If(tile.Lt(tiles).And(token.Lt(n)), func() {
		row := first.Add(tile).MulC(pipeline.TileRows).Add(i.RemC(pipeline.TileRows / 2).MulC(2)).Named("row")
		if g.M.Rows%pipeline.TileRows == 0 {
			body(row, token)
		} else { // the last tile is padded
			e.K.If(row.LtC(g.M.Rows), func() { body(row, token) })
		}
	})
}

// OnePair is whether no consumer thread finishes more than one pair of a share: it is one batch, in one round.
func (g *GEMM) OnePair(e *grid.Env) bool {
	return g.M.MaxCount() <= g.M.Batch && g.M.MaxCount()*tilePairs(g.In.Padded()) <= e.Threads()
}

// PairOf calls body with the thread's only pair, where it has one.
func (g *GEMM) PairOf(e *grid.Env, share Share, n u32, body func(row, token u32)) {
	g.pair(e, e.Tid, share.First, e.K.U32(0), share.Count, n, body)
}

// write puts a warp's part of a tile, the first or second of a pair, in the order
// [token][row].
func (m *reduction) write(at u32, acc tilePair, which int) {
	e, to := m.e, m.g.Part.Buf
	if m.g.rowsOfA() { // lane 4g+t has row g of tokens 2t and 2t+1 of each set of 8
		at = at.Add(e.Lane.RemC(4).MulC(2 * pipeline.TileRows)).Add(e.Lane.DivC(4))
		for set, v := range acc {
			to.Store(at.AddC(8*pipeline.TileRows*set), v[2*which].Get())
			to.Store(at.AddC((8*set+1)*pipeline.TileRows), v[2*which+1].Get())
		}
		return
	}
	v := acc[which] // lane 4g+t has rows 2t and 2t+1 of tokens g and g+8
	at = at.Add(e.Lane.MulC(2))
	to.StoreN(at, []f32{v[0].Get(), v[1].Get()})
	if m.g.In.Padded() == 16 {
		to.StoreN(at.AddC(8*pipeline.TileRows), []f32{v[2].Get(), v[3].Get()})
	}
}

// sum adds the consumer warps' parts of a pair in the order of the warps.
func (m *reduction) sum(at u32) (y0, y1 f32) {
	for w := range m.e.Consumers {
		v := m.g.Part.Buf.LoadN(at.AddC(w*m.perWarp), 2)
		if w == 0 {
			y0, y1 = v[0], v[1]
			continue
		}
		y0, y1 = y0.Add(v[0]), y1.Add(v[1])
	}
	return y0, y1
}
