package tasks

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// How chunks of several tiles share a stage (pipeline.MatrixPlan.Together): chunks of the same columns, one behind
// another, that are copied by a lane each. Without that the chunks of a warp's columns would fill a part of a stage only.

// produceTogether streams the chunks of size bytes of so many tiles, of which i's lies at at(i).
func (g *GEMM) produceTogether(e *Env, p *pipeline.Producer, w dsl.Buf[dsl.B128], tiles u32, size int,
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

// multiplyTogether drains the stages of a chunk of so many tile groups of all tiles of a batch, and adds their products
// to acc, two tiles at a time.
func (g *GEMM) multiplyTogether(e *Env, c *pipeline.Consumer, r *pipeline.Ring, x *fragments, acc []tilePair, tiles u32,
	chunk int) {
	k, p, pieces := e.K, g.int4(r), chunk/g.piece(e.Consumers)
	size := g.M.Format.Of(chunk*g.M.Format.Columns()) / 16
	for first := 0; first < g.M.Batch; first += g.M.Together {
		k.If(tiles.Gt(k.U32(first)), func() {
			c.Drain(func(base u32) {
				for at := 0; at < g.M.Together && first+at < g.M.Batch; at += 2 {
					load := func(i int) []*Int4Weights { return g.weightsInt4(e, p, base.AddC((at+i)*size), chunk) }
					one := func() { g.productsInt4(e, p, x, acc[(first+at)/2], [][]*Int4Weights{load(0)}, pieces) }
					both := func() {
						g.productsInt4(e, p, x, acc[(first+at)/2], [][]*Int4Weights{load(0), load(1)}, pieces)
					}
					some := func() {
						if first+at+1 == g.M.Batch {
							one()
						} else {
							k.IfElse(tiles.Gt(k.U32(first+at+1)), both, one)
						}
					}
					if at == 0 {
						some()
					} else {
						k.If(tiles.Gt(k.U32(first+at)), some)
					}
				}
			})
		})
	}
}
