package product

import (
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// GEMM is Y = W·X for a bf16 matrix in the pipeline's weight format, streamed in
// batches (pipeline.Request.BatchTiles), and the columns of 2 to 16 tokens, with
// f32 accumulation on tensor cores. It is GEMV for several tokens: all consumer
// warps share every chunk, each taking some of its k groups.
//
// A warp keeps the input of its k groups of one chunk of columns in registers and
// multiplies the same chunk of all tiles of a batch with it; their accumulators
// stay in registers until the batch ends, when the warps' parts meet in shared
// memory. The next chunk's input is loaded while this one is multiplied. A token's
// results are the same bits whatever the other tokens are, and how many.
type GEMM struct {
	Name string
	M    *pipeline.MatrixPlan
	In   Activations       // In.K is M.K
	X    dsl.Buf[dsl.BF16] // the input in global memory; what the launch writes before a sync
	Part Partials          // ColumnPartialsLen long

	// Scales are as in GEMV.
	Scales func(row u32) []f32

	Exchanged bool // as in GEMV
}

// ColumnEpilogue finishes two neighbouring rows of the packed matrix, row and
// row+1 (row even), of one token, whose dot products are y0 and y1. It runs in some
// of the consumer threads, once for each pair of the CTA's rows and token below the
// number of tokens; rows that pad the last tile are left out, but for row+1 of the
// last pair where the matrix has an odd number of rows. The lanes of a warp do not
// run it together: no shuffles, no barriers. A thread gets all its pairs from one
// token (a lone consumer warp with 16 columns: from tokens t and t+8).
type ColumnEpilogue func(row, token u32, y0, y1 f32)

// DefaultBatchTiles is how many row tiles share a load of their input, of 8 or 16 padded tokens. The registers of a
// consumer thread would take twice as many; reading the input from L2 more often costs nothing (bench/yardsticks).
// Where all matrices of a layer have 4 bits, sums of 8 tokens are in shared memory, and twice as many tiles are one
// body of code; of 16 tokens the LM head has use for more.
func DefaultBatchTiles(padded int, layer []pipeline.Format) int {
	nibbles := !slices.ContainsFunc(layer, func(f pipeline.Format) bool { return !inNibbles(f) })
	switch {
	case padded == 8 && nibbles:
		return 28
	case padded == 8:
		return 14
	case nibbles:
		return 12
	}
	return 10
}

// BatchWide is how many times the columns of bf16 a chunk has at most (pipeline.Request): with 4 bits and up to 8
// tokens there are registers for the input of twice as many.
func BatchWide(f pipeline.Format, tokens int) int {
	if inFixed(f) && ColumnsPadded(tokens) == 8 {
		return 2
	}
	return 1
}

// Produce streams this CTA's chunks through the ring, see GEMV.Produce.
func (g *GEMM) Produce(e *grid.Env, p *pipeline.Producer, share Share, w dsl.Buf[dsl.B128], from dsl.Val[dsl.U64]) {
	k := e.K
	if g.M.Batch == 0 {
		k.Require(false, "%s: the plan has no batches", g.Name)
		return
	}
	k.Note("%s: the same columns of all tiles of a batch, then the next columns", g.Name)
	g.eachBatch(k, share, func(first, tiles u32) {
		g.eachChunk(k, func(c u32, columns int) {
			if g.M.Together > 1 {
				g.produceTogether(e, p, w, tiles, g.M.Format.Of(columns), func(i u32) dsl.Val[dsl.U64] {
					return chunkAt(g.M, from, share.First.Add(first).Add(i), c)
				})
				return
			}
			k.For(k.U32(0), tiles, func(i u32) {
				fill(e, p, w, g.M.Format.Of(columns), chunkAt(g.M, from, share.First.Add(first).Add(i), c))
			}, dsl.Unroll(1))
		})
	})
}

// Drop drains what Produce streamed for this CTA without using it.
func (g *GEMM) Drop(e *grid.Env, c *pipeline.Consumer, share Share) {
	if n := g.M.Together; n > 1 {
		g.eachBatch(e.K, share, func(_, tiles u32) {
			e.K.For(e.K.U32(0), tiles.AddC(n-1).DivC(n).MulC(g.M.ChunksPerTile), func(u32) { c.Skip() }, dsl.Unroll(1))
		})
		return
	}
	e.K.For(e.K.U32(0), share.Count.MulC(g.M.ChunksPerTile), func(u32) { c.Skip() }, dsl.Unroll(1))
}

// eachBatch calls body with the first tile of each batch, from the share's first,
// and its number of tiles.
func (g *GEMM) eachBatch(k *dsl.Kernel, share Share, body func(first, tiles u32)) {
	k.ForStep(k.U32(0), share.Count, g.M.Batch, func(first u32) {
		body(first, share.Count.Sub(first).MinC(g.M.Batch).Named("tiles"))
	}, dsl.Unroll(1))
}

// problem says what the template cannot do, or nothing.
func (g *GEMM) problem(e *grid.Env, r *pipeline.Ring) string {
	bytes := g.M.ChunkBytes(0)
	padded := g.In.Padded()
	return rule.First(
		rule.Need(g.M.Batch > 0, "%s: the plan has no batches", g.Name),
		rule.Need(!inFixed(g.M.Format) || g.In.K%pipeline.GroupK == 0,
			"%s: %d columns, want a multiple of %d for %s", g.Name, g.In.K, pipeline.GroupK, g.M.Format),
		rule.Need(g.In.K == g.M.K, "%s: the input has %d columns, the matrix %d", g.Name, g.In.K, g.M.K),
		rule.Need(bytes <= r.StageBytes(), "%s: a chunk of %d columns is %d bytes, a stage has %d", g.Name, g.M.ChunkK, bytes,
			r.StageBytes()),
		rule.Need(int(g.Part.Buf.Len()) >= g.partialsLen(e),
			"%s: Part has %d elements, want %d for %d consumer warps and %d columns", g.Name, g.Part.Buf.Len(),
			g.partialsLen(e), e.Consumers, padded),
		rule.Sound(g.In.problem(g.Name, g.X)))
}

// Consume multiplies this CTA's tiles as they arrive and hands pairs of rows of the
// tokens below n (1 to In.T) to the epilogue. X must be visible to all consumer
// threads. meanwhile, unless nil, is run by all of them once while the first loads
// of X are under way, before any epilogue, from which a barrier of the consumer
// warps then separates it. Between the end of one Consume and the next use of Part a
// barrier of the consumer warps must lie; a sync has one.
func (g *GEMM) Consume(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring, share Share, n u32, meanwhile func(),
	epilogue ColumnEpilogue) {
	k := e.K
	if p := g.problem(e, r); p != "" {
		k.Require(false, "%s", p)
		return
	}
	k.Note("%s: the input of this warp's columns, from global memory to registers, a chunk ahead", g.Name)
	x := g.newFragments(e, n)
	k.If(share.Count.NeC(0), func() { x.fetch(k.U32(0)) })
	if meanwhile != nil {
		meanwhile()
	}
	m := g.newReduction(e)
	k.Note("%s: a batch of tiles of 8 rows; each warp multiplies its share of the columns as chunks arrive", g.Name)
	if g.inShared() {
		s := g.newSharedSums(e)
		g.eachBatch(k, share, func(first, tiles u32) {
			g.eachChunk(k, func(chunk u32, columns int) {
				s.multiply(c, r, x, tiles, chunk, columns, func() { x.advance(chunk) })
			})
			s.finish(m, share.First.Add(first), tiles, n, epilogue)
		})
		return
	}
	g.eachBatch(k, share, func(first, tiles u32) {
		acc := g.accumulators(k)
		g.eachChunk(k, func(chunk u32, columns int) {
			x.advance(chunk)
			if g.M.Together > 1 {
				g.multiplyTogether(e, c, r, x, acc, tiles, columns/g.M.Format.Columns())
				return
			}
			for pair := range acc {
				g.multiply(e, c, r, x, acc[pair], tiles, 2*pair, columns/g.M.Format.Columns())
			}
		})
		m.run(share.First.Add(first), tiles, n, acc, epilogue)
	})
}

// eachChunk calls body for the chunks of columns: a device loop over the whole ones
// and a copy for a shorter last one.
func (g *GEMM) eachChunk(k *dsl.Kernel, body func(c u32, columns int)) {
	v := GEMV{M: g.M}
	v.eachChunk(k, body)
}
