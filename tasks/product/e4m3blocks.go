package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
)

// How weights of e4m3 with a scale for each block of 128 columns are multiplied. A tile group is two blocks: a lane has
// 16 words of codes of its row, as four tile groups of e4m3 have them, and behind these its row's scales of both. The
// products of a block are summed in registers of their own, and their sum is multiplied by the scale.

// Words of a lane's part of a tile group with blocks.
const (
	GroupBlocks = 2
	blockPairs  = 16 // of codes
)

// groupWords is how many words of a lane GEMV.weights has of a tile group.
func groupWords(f pipeline.Format) int {
	if f.Blocks() {
		return blockPairs + GroupBlocks
	}
	return 4
}

// e4m3Words are four times four words from at on, each four stride words behind the ones before.
func e4m3Words(data dsl.Buf[dsl.BF16x2], at u32, stride int) (w []pair) {
	for i := range blockPairs / 4 {
		w = append(w, data.LoadN(at.AddC(i*stride), 4)...)
	}
	return w
}

// blockWords are the codes of a tile group that begins at a pair of the ring, the lane's of which are unit behind that,
// and n words of its scales, from word first of them on.
func blockWords(e *grid.Env, r *pipeline.Ring, at, unit, first u32, n int) []pair {
	data := dsl.View[dsl.BF16x2](r.Data)
	w := e4m3Words(data, at.Add(unit), pipeline.GroupBytes/4)
	return append(w, data.LoadN(at.Add(first).AddC(blockPairs/4*pipeline.GroupBytes/4), n)...)
}

// multiplyBlocks is multiply: y += the products of each block times its scale.
func (g *GEMV) multiplyBlocks(k *dsl.Kernel, y *dsl.Var[dsl.F32], x, w []pair) {
	all, zero := operands(g.M.Format, w[:blockPairs]), k.F32(0)
	for block := range GroupBlocks {
		var sums [2][4]f32
		for h := range sums {
			sums[h] = [4]f32{zero, zero, zero, zero}
			for part := 4 * block; part < 4*block+4; part += 2 {
				a := [4]pair{all[part][h], all[part+1][h], all[part][2+h], all[part+1][2+h]}
				sums[h] = productOf(g.M.Format, a, [2]pair(x[2*part+2*h:]), sums[h])
			}
		}
		sum := sums[0][0].Add(sums[0][3]).Add(sums[1][0].Add(sums[1][3]))
		y.Set(dsl.FMA(sum, dsl.Bits[dsl.F32](w[blockPairs+block]), y.Get()))
	}
}

// blockScales is how many scales a lane needs of a tile group: those of its row, or with 16 columns of both its rows.
func (g *GEMM) blockScales() int { return g.In.Padded() / 8 * GroupBlocks }

// blockWords are blockWords of a tile group that begins at a pair of the ring.
func (g *GEMM) blockWords(e *grid.Env, r *pipeline.Ring, at, unit u32) []pair {
	first := e.K.U32(0)
	if g.In.Padded() == 8 {
		first = e.Lane.DivC(4).AndC(1).MulC(GroupBlocks)
	}
	return blockWords(e, r, at, unit, first, g.blockScales())
}

// blockProducts is a step of products: of the warp's i-th tile group.
func (g *GEMM) blockProducts(e *grid.Env, x *fragments, acc tilePair, w [][][]pair, i int) {
	var wide [][][]pair // [tile][k group]
	for t := range w {
		wide = append(wide, operands(g.M.Format, w[t][i][:blockPairs]))
	}
	parts := g.M.Format.Parts()
	for block := range GroupBlocks {
		sums := make([][]*dsl.Var[dsl.F32], len(acc))
		for n := range sums {
			sums[n] = dsl.NewArray(e.K.F32(0), 4, "sum")
		}
		for h := range parts {
			part, h := block*parts/GroupBlocks+h/2, h%2
			a0, a2 := x.of(0, i*parts+part, h)
			if g.In.Padded() == 8 {
				g.asRows(e, [2]pair{a0, a2}, sums[0], wide, part, h)
				continue
			}
			a1, a3 := x.of(1, i*parts+part, h)
			for t := range wide {
				add(g.M.Format, sums[t], [4]pair{a0, a1, a2, a3}, [2]pair{wide[t][part][2*h], wide[t][part][2*h+1]})
			}
		}
		g.scaleBlock(acc, sums, w, i, block)
	}
}

// scaleBlock adds a block's sums of one or two tiles, times their scales. A lane's four are, with 8 columns, two of its
// row in one tile and two in the other; with 16 of two rows, an even one and the next, and again.
func (g *GEMM) scaleBlock(acc tilePair, sums [][]*dsl.Var[dsl.F32], w [][][]pair, i, block int) {
	for n := range sums {
		for v := range sums[n] {
			tile, of := n, v%2*GroupBlocks
			if g.In.Padded() == 8 {
				tile, of = v/2, 0
			}
			if tile < len(w) {
				scale := dsl.Bits[dsl.F32](w[tile][i][blockPairs+of+block])
				acc[n][v].Set(dsl.FMA(sums[n][v].Get(), scale, acc[n][v].Get()))
			}
		}
	}
}
