package product

import (
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
)

// Sums of a batch in shared memory, of products of 4 bits and eight tokens whose tiles share stages. Each warp has its
// own: a lane those of a pair of tiles in 16 bytes, as a product leaves them. So one body of code multiplies all stages
// of a chunk, which accumulators in registers would want a copy of for each.

// SumsInShared is whether sums of products of a format may be in shared memory, of 8 or 16 padded tokens: they are
// where tiles share stages. Those of 16 tokens are in registers: to store and load those of two sets costs more than
// one body of code saves.
func SumsInShared(f pipeline.Format, padded int) bool { return inNibbles(f) && padded == 8 }

// inShared is whether a batch's sums are in shared memory.
func (g *GEMM) inShared() bool { return SumsInShared(g.M.Format, g.In.Padded()) && g.M.Together > 1 }

// partialsLen is how long Part is to be.
func (g *GEMM) partialsLen(e *grid.Env) int {
	tiles := 0
	if g.inShared() {
		tiles = g.M.Batch
	}
	return ColumnPartialsLen(e.Consumers, g.In.Padded(), tiles)
}

// sharedSumsLen is how many f32 the sums of a batch of tiles take.
func sharedSumsLen(consumers, tiles int) int {
	return consumers * pipeline.CeilDiv(tiles, 2) * pairSums
}

// pairSums is how many f32 a warp's sums of a pair of tiles and eight tokens take.
const pairSums = 2 * pipeline.TileRows * 8

// sharedSums are a warp's sums of a batch.
type sharedSums struct {
	g    *GEMM
	e    *grid.Env
	mine u32 // the lane's first element in Part
	next []*keptWeights
}

func (g *GEMM) newSharedSums(e *grid.Env) *sharedSums {
	s := &sharedSums{g: g, e: e}
	s.mine = e.Warp.MulC(sharedSumsLen(1, g.M.Batch)).Add(sumsLane(e.Lane).MulC(4)).Named("sums")
	n := g.piece(e.Consumers)
	s.next = many(g.M.Together, func() *keptWeights {
		return newKeptWeights(e.K, g.int4(nil), groups(e, g.M.ChunkK/g.M.Format.Columns()/n), n)
	})
	return s
}

// sumsLane is where a lane's sums are among those of a warp: rows 2 and 3, and 6 and 7 of a tile change places, so
// that rows 0, 2, 4 and 6 are in all banks.
func sumsLane(lane u32) u32 { return lane.Xor(lane.ShrC(1).AndC(4)) }

// ofPair are a lane's sums of a pair of tiles: zeros in the first chunk.
func (s *sharedSums) ofPair(pair, chunk u32) tilePair {
	acc := dsl.NewArray(s.e.K.F32(0), 4, "acc")
	if s.g.M.ChunksPerTile > 1 {
		s.e.K.If(chunk.NeC(0), func() {
			for i, v := range s.g.Part.Buf.LoadN(s.at(pair), 4) {
				acc[i].Set(v)
			}
		})
	}
	return tilePair{acc}
}

// at is where a lane's sums of a pair of tiles are.
func (s *sharedSums) at(pair u32) u32 { return s.mine.Add(pair.MulC(pairSums)) }

// multiply drains the stages of a chunk of all tiles of a batch, which ready makes the input of. The words of a
// stage are loaded while those of the one before are multiplied. Where the last has fewer tiles, its last one
// counts for those that it lacks, whose sums nobody reads.
func (s *sharedSums) multiply(c *pipeline.Consumer, r *pipeline.Ring, x *fragments, tiles, chunk u32, columns int,
	ready func()) {
	g, e, n := s.g, s.e, s.g.M.Together
	p, blocks := g.int4(r), columns/g.M.Format.Columns()
	size, pieces := g.M.Format.Of(columns)/16, blocks/g.piece(e.Consumers)
	take := func(first u32) {
		last := tiles.Sub(first).SubC(1).Named("last")
		c.Drain(func(base u32) {
			for i := range n {
				tile := e.K.U32(i)
				if i > 0 {
					tile = last.MinC(i)
				}
				s.next[i].set(g.weightsInt4(e, p, base.Add(tile.MulC(size)), blocks))
			}
		})
	}
	take(e.K.U32(0))
	ready()
	e.K.ForStep(e.K.U32(0), tiles, n, func(first u32) {
		var w [][]*Int4Weights
		for _, kept := range s.next {
			w = append(w, kept.get())
		}
		e.K.If(first.AddC(n).Lt(tiles), func() { take(first.AddC(n)) })
		for i := 0; i < n; i += 2 {
			multiply := func() {
				pair := first.DivC(2).AddC(i / 2)
				acc := s.ofPair(pair, chunk)
				g.productsInt4(e, p, x, acc, w[i:i+2], pieces)
				s.g.Part.Buf.StoreN(s.at(pair), values(acc[0]))
			}
			if i == 0 {
				multiply()
				continue
			}
			e.K.If(first.AddC(i).Lt(tiles), multiply) // the batch's sums have no room for more pairs
		}
	}, dsl.Unroll(1))
}

// keptWeights are a tile's words in registers, of the pieces that a warp has of a chunk.
type keptWeights struct {
	p      *Int4
	blocks int // of a piece
	words  [][]*dsl.Var[dsl.U32]
}

func newKeptWeights(k *dsl.Kernel, p *Int4, pieces, blocks int) *keptWeights {
	n := p.CodeWords()*blocks + p.entryLists()*p.entryWords(p.many(blocks))
	return &keptWeights{p, blocks, many(pieces, func() []*dsl.Var[dsl.U32] { return dsl.NewArray(k.U32(0), n, "w_next") })}
}

// entryLists is how many lists of entries a GEMM has of its row: of a half each, or of both.
func (p *Int4) entryLists() int {
	if p.Shape.Group == 128 {
		return 1
	}
	return 2
}

func (kept *keptWeights) set(w []*Int4Weights) {
	for i, piece := range w {
		words := slices.Concat(piece.codes...)
		if piece.Many > 0 {
			words = append(words, slices.Concat(piece.Entries[:kept.p.entryLists()]...)...)
		}
		for j, v := range words {
			kept.words[i][j].Set(v)
		}
	}
}

func (kept *keptWeights) get() (all []*Int4Weights) {
	for _, vars := range kept.words {
		w, words := &Int4Weights{Many: kept.p.many(kept.blocks)}, values(vars)
		for range kept.blocks {
			w.codes, words = append(w.codes, words[:kept.p.CodeWords()]), words[kept.p.CodeWords():]
		}
		if w.Many > 0 {
			n := len(words) / kept.p.entryLists()
			w.Entries = [][]u32{words[:n], words[len(words)-n:]}
		}
		all = append(all, w)
	}
	return all
}

// sum adds the warps' sums of rows row, even, and row+1 of a tile of the batch, in the order of the warps.
func (s *sharedSums) sum(tile, row, token u32) (y0, y1 f32) {
	g, e := s.g, s.e
	lane := row.MulC(4).Add(token.DivC(2))
	at := tile.DivC(2).MulC(pairSums).Add(sumsLane(lane).MulC(4)).Add(tile.AndC(1).MulC(2)).Add(token.AndC(1))
	for w := range e.Consumers {
		from := at.AddC(w * sharedSumsLen(1, g.M.Batch))
		v0, v1 := g.Part.Buf.Load(from), g.Part.Buf.Load(from.Xor(e.K.U32(16)))
		if w == 0 {
			y0, y1 = v0, v1
			continue
		}
		y0, y1 = y0.Add(v0), y1.Add(v1)
	}
	return y0, y1
}

// finish adds up a batch and hands it to the epilogue. Of several batches all warps meet behind it, too.
func (s *sharedSums) finish(m *reduction, first, tiles, n u32, epilogue ColumnEpilogue) {
	s.e.Sync()
	s.e.K.ForStep(s.e.K.U32(0), tiles, m.tiles, func(from u32) {
		s.e.EachConsumer(m.tiles*tilePairs(s.g.In.Padded()), func(i u32) {
			s.g.pair(s.e, i, first, from, tiles, n, func(row, token u32) {
				y0, y1 := s.sum(row.DivC(pipeline.TileRows).Sub(first), row.RemC(pipeline.TileRows), token)
				m.handOn(row, token, y0, y1, epilogue)
			})
		})
	}, dsl.Unroll(1))
	if s.g.M.Batches() > 1 {
		s.e.Sync()
	}
}
