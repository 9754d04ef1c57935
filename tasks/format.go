package tasks

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// operands are the four pairs of each k group of what a lane has of a tile group: the four words of
// its unit.
func operands(k *dsl.Kernel, f pipeline.Format, words []pair) [][]pair {
	if f != pipeline.FormatE4M3 {
		return [][]pair{words}
	}
	var all [][]pair
	for part := range f.Parts() {
		var four []pair
		for _, w := range words[2*part : 2*part+2] {
			lo, hi := widenE4M3(k, dsl.Bits[dsl.U32](w))
			four = append(four, lo, hi)
		}
		all = append(all, four)
	}
	return all
}

// widenE4M3 is four e4m3 as two pairs of bf16, exactly: of the bytes at even places and of those
// at odd ones, which are neighbours (pipeline.E4M3Offset). The seven bits of exponent and
// mantissa become the lower ones of a bf16's exponent and the upper ones of its mantissa, which
// stands for 2⁻¹²⁰ times the number, also where that is subnormal; a product makes up for it.
func widenE4M3(k *dsl.Kernel, w u32) (even, odd pair) {
	const sign, rest = 0x80008000, 0x07f007f0
	back := dsl.Lit[dsl.BF16x2](k, 0x7b807b80) // two of 2¹²⁰
	bits := func(high, low u32) pair {
		return dsl.Bits[dsl.BF16x2](high.AndC(sign).Or(low.AndC(rest))).Mul(back)
	}
	return bits(w.ShlC(8), w.ShlC(4)), bits(w, w.ShrC(4))
}

// RowScales are the scales of a matrix's rows, two at a time from an even row on: weights are the
// packed weights, in which the matrix begins at from, in 16-byte elements. It is nil where the
// format has none.
func RowScales(m *pipeline.MatrixPlan, weights dsl.Buf[dsl.B128], from dsl.Val[dsl.U64]) func(row u32) []f32 {
	if m.Format.ScaleBytes() == 0 {
		return nil
	}
	scales, behind := dsl.View[dsl.F32](weights), m.Format.Of(m.KPadded)
	return func(row u32) []f32 {
		tile := dsl.Cast[dsl.U64](row.DivC(pipeline.TileRows)).MulC(int(m.TileBytes() / 4))
		at := from.ShlC(2).Add(tile).AddC(behind / 4).Add(dsl.Cast[dsl.U64](row.RemC(pipeline.TileRows)))
		return scales.LoadN(at, 2, dsl.CacheHint(dsl.NonCoherent))
	}
}

// aheadScales is whether a thread finishes one pair of rows of a batch at most, whose scales it
// loads while the batch is multiplied.
func (g *GEMV) aheadScales(e *Env) bool {
	return g.Scales != nil && batchTiles*pipeline.TileRows/2 <= e.Threads()
}

// scalesAhead loads the scales of this thread's pair of rows of a batch of so many tiles, if it has
// one; nil where they come later, or not at all.
func (g *GEMV) scalesAhead(e *Env, share Share, batch, tiles u32) []*dsl.Var[dsl.F32] {
	if !g.aheadScales(e) {
		return nil
	}
	k := e.K
	scales := dsl.NewArray(k.F32(0), 2, "scale")
	k.If(e.Tid.Lt(tiles.MulC(pipeline.TileRows/2)), func() {
		for i, v := range g.Scales(share.First.Add(batch).MulC(pipeline.TileRows).Add(e.Tid.MulC(2))) {
			scales[i].Set(v)
		}
	})
	return scales
}

// scaled are the dot products of rows row and row+1 times their scales.
func (g *GEMV) scaled(ahead []*dsl.Var[dsl.F32], row u32, y0, y1 f32) (f32, f32) {
	switch {
	case g.Scales == nil:
		return y0, y1
	case ahead != nil:
		return y0.Mul(ahead[0].Get()), y1.Mul(ahead[1].Get())
	}
	v := g.Scales(row)
	return y0.Mul(v[0]), y1.Mul(v[1])
}
