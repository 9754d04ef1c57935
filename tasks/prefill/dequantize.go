package prefill

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// Dequantize writes a matrix of a layer in bf16, as GEMM reads it, from its codes and scales. A weight is its
// code, less the zero point, times the scale in f32, rounded to bf16. Codes that mkgen has rounded weights to lose
// nothing so: RoundRow.
type Dequantize struct {
	M       *pipeline.MatrixPlan // as it is packed; bf16, beside others, is copied
	Plan    *pipeline.Plan       // M's
	To      *pipeline.MatrixPlan // M of Plan.InBF16
	Weights dsl.Buf[dsl.B128]    // packed weights
	Dst     dsl.Buf[dsl.BF16]    // the image of one layer in bf16
}

// Emit has the grid's consumer warps take pieces of row tiles in turns: runs of blocks of integers, or of e4m3 as many
// tile groups. A lane has codes of one row.
func (d *Dequantize) Emit(e *grid.Env, layer u32) {
	k, codes := e.K, &laneCodes{d.M, d.Weights}
	if p := rule.First(rule.Sound(codes.problem()),
		rule.Need(d.To.TileBytes()*int64(d.To.Tiles)+d.To.Start <= 4*math.MaxUint32,
			"%s: an image of %d bytes, want at most %d", d.M.Name, d.To.Bytes(), uint64(4*math.MaxUint32))); p != "" {
		k.Require(false, "%s", p)
		return
	}
	columns, pieces := codes.columns(), codes.pieces()
	from := dsl.Cast[dsl.U64](layer).MulC(int(d.Plan.LayerBytes / 16)).AddC(int(d.M.Start / 16))
	k.ForStep(e.CTA.MulC(e.Consumers).Add(e.Warp), k.U32(d.M.Tiles*pieces), e.Grid*e.Consumers, func(i u32) {
		tile, piece := i.DivC(pieces).Named("tile"), i.RemC(pieces).Named("piece")
		src := from.Add(dsl.Cast[dsl.U64](tile).MulC(int(d.M.TileBytes() / 16))).Named("packed")
		dst := tile.MulC(int(d.To.TileBytes() / 4)).Add(piece.MulC(columns * pipeline.TileRows / 2)).
			AddC(int(d.To.Start / 4)).Named("pairs")
		scale := codes.rowScale(e, src)
		src = src.Add(dsl.Cast[dsl.U64](piece.MulC(codes.pieceBytes() / 16)))
		codes.each(e, src, scale, d.places(e, dst))
	}, dsl.Unroll(1))
}

// places stores a lane's weights in the tile groups of bf16 from pair dst on.
func (d *Dequantize) places(e *grid.Env, dst u32) func(j int) laneWeights {
	store := func(to u32) laneWeights {
		return func(group, n int, pair func(i int) (lo, hi f32)) {
			var pairs []dsl.Val[dsl.BF16x2]
			for i := range n {
				lo, hi := pair(i)
				pairs = append(pairs, dsl.Pack[dsl.BF16x2](lo, hi))
			}
			dsl.View[dsl.BF16x2](d.Dst).StoreN(to.AddC(group*pipeline.GroupBytes/4), pairs)
		}
	}
	if !d.M.Format.Integers() {
		return func(int) laneWeights { return store(dst.Add(e.Lane.MulC(4)).Named("unit")) }
	}
	row, t := e.Lane.DivC(4), e.Lane.RemC(4)
	return func(j int) laneWeights {
		unit := t.DivC(2).AddC(2 * j).Xor(row.DivC(2))
		return store(dst.Add(row.MulC(16)).Add(unit.MulC(4)).Add(t.RemC(2).MulC(2)).Named("half_unit"))
	}
}
