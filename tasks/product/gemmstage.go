package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
)

// How chunks of several tiles share a stage (pipeline.MatrixPlan.Together): chunks of the same columns, one behind
// another, that are copied by a lane each. One chunk of the columns whose input a warp keeps leaves most of it empty.

// produceTogether streams the chunks of all tiles, each of size bytes; that of tile i lies at at(i).
func (g *GEMM) produceTogether(e *grid.Env, p *pipeline.Producer, w dsl.Buf[dsl.B128], tiles u32, size int,
	at func(i u32) dsl.Val[dsl.U64]) {
	k := e.K
	k.ForStep(k.U32(0), tiles, g.M.Together, func(first u32) {
		n := tiles.Sub(first).MinC(g.M.Together)
		p.Fill(n.MulC(size), func(base u32) {
			k.If(e.Lane.Lt(n), func() {
				p.Copy(base.Add(e.Lane.MulC(size/16)), w, at(first.Add(e.Lane)), k.U32(size), streamed)
			})
		})
	}, dsl.Unroll(1))
}

// sumsInStage is whether the sums of a chunk's input are made beside the products of its first stage: where a batch's
// first stage has code of its own.
func (g *GEMM) sumsInStage() bool { return g.M.Together > 1 && !g.inShared() }

// multiplyTogether drains the stages of a chunk, of chunk tile groups, of all tiles of a batch, and adds their products
// to acc, two tiles at a time: products of all tiles of a stage take turns, without conditions between them. Where the
// last stage of a share has fewer tiles, its last one counts for those that it lacks, whose sums nobody reads.
func (g *GEMM) multiplyTogether(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring, x *fragments, acc []tilePair,
	tiles u32, chunk int) {
	k, p, pieces := e.K, g.int4(r), chunk/g.piece(e.Consumers)
	size := g.M.Format.Of(chunk*g.M.Format.Columns()) / 16
	for first := 0; first < g.M.Batch; first += g.M.Together {
		n := min(g.M.Together, g.M.Batch-first)
		stage := func() {
			last := dsl.Optional(tiles.SubC(first + 1).Named("last"))
			c.Drain(func(base u32) {
				w := [][]*Int4Weights{g.weightsInt4(e, p, base, chunk)}
				for i := 1; i < n; i++ {
					w = append(w, g.weightsInt4(e, p, base.Add(last.MinC(i).MulC(size)), chunk))
				}
				if first == 0 {
					x.sum()
				}
				for i := 0; i < n; i += 2 {
					g.productsInt4(e, p, x, acc[(first+i)/2], w[i:min(i+2, n)], pieces)
				}
			})
		}
		if first == 0 { // a batch has a tile
			stage()
			continue
		}
		k.If(tiles.Gt(k.U32(first)), stage)
	}
}
