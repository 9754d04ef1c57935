package prefill

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
	"github.com/mkgen/mkgen/tasks/product"
)

// Head is the product of an LM head in another format than bf16 and one token's vector of bf16, both as they
// are: a weight is its code, less the zero point, times the scale, in f32, and so are the sums. It reads the codes
// straight from device memory, once: one token has no use for a tensor core.
type Head struct {
	M       *pipeline.MatrixPlan // of the final phase
	Plan    *pipeline.Plan
	Weights dsl.Buf[dsl.B128] // packed weights
	In      Activations
	X       dsl.Buf[dsl.BF16]
}

// Emit hands out the products of pairs of rows, (row, y0, y1) with an even row: in one lane of eight. The grid's
// consumer warps take row tiles in turns.
func (h *Head) Emit(e *grid.Env, token u32, epilogue product.Epilogue) {
	k, codes := e.K, &laneCodes{h.M, h.Weights}
	if p := rule.First(rule.Sound(codes.problem()), rule.Need(h.In.K == h.M.K && h.In.K%pipeline.GroupK == 0,
		"%s: an input of %d columns, want %d, a multiple of %d", h.M.Name, h.In.K, h.M.K, pipeline.GroupK)); p != "" {
		k.Require(false, "%s", p)
		return
	}
	from := (h.Plan.Image(pipeline.FinalLayer) + h.M.Start) / 16
	k.ForStep(e.CTA.MulC(e.Consumers).Add(e.Warp), k.U32(h.M.Tiles), e.Grid*e.Consumers, func(tile u32) {
		src := dsl.Cast[dsl.U64](tile).MulC(int(h.M.TileBytes() / 16)).AddC(int(from)).Named("packed")
		scale, sum := codes.rowScale(e, src), dsl.NewVar(k.F32(0), "sum")
		k.For(k.U32(0), k.U32(codes.pieces()), func(piece u32) {
			at := src.Add(dsl.Cast[dsl.U64](piece.MulC(codes.pieceBytes() / 16)))
			codes.each(e, at, scale, func(j int) laneWeights { return h.multiply(e, codes, token, piece, j, sum) })
		}, dsl.Unroll(1))
		y := sum.Get()
		for d := 1; d < 4; d *= 2 {
			y = y.Add(dsl.ShflXor(y, d))
		}
		next := dsl.ShflXor(y, 4)
		k.If(e.Lane.AndC(7).EqC(0), func() {
			epilogue(tile.MulC(pipeline.TileRows).Add(e.Lane.DivC(4)).Named("row"), y, next)
		})
	}, dsl.Unroll(1))
}

// multiply adds a lane's weights of a piece times the input's elements to sum. Columns behind the input's, which pad
// the tile, are left out.
func (h *Head) multiply(e *grid.Env, codes *laneCodes, token, piece u32, j int, sum *dsl.Var[dsl.F32]) laneWeights {
	k, t, groups := e.K, e.Lane.RemC(4), codes.columns()/pipeline.GroupK
	var column u32
	if codes.m.Format.Integers() {
		column = t.MulC(4).AddC(16 * j)
	} else {
		column = t.Xor(e.Lane.DivC(8)).MulC(8)
	}
	first := piece.MulC(groups)
	at := h.In.At(token, first.MulC(pipeline.GroupK).Add(column)).DivC(2).Named("inputs")
	return func(group, n int, pair func(i int) (lo, hi f32)) {
		add := func() {
			x := dsl.View[dsl.BF16x2](h.X).LoadN(at.AddC(group*elementsAtom/2), n)
			for i := range n {
				w0, w1 := pair(i)
				x0, x1 := dsl.Unpack(x[i])
				sum.Set(dsl.FMA(w1, x1, dsl.FMA(w0, x0, sum.Get())))
			}
		}
		if h.M.KPadded == h.M.K {
			add()
		} else {
			k.If(first.AddC(group).LtC(h.M.K/pipeline.GroupK), add)
		}
	}
}
