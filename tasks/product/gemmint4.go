package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/grid"
)

// How a GEMM multiplies weights of integers. The input comes from memory in f16, as of 8 bits, in the order of
// Activations. A warp turns its blocks of a chunk into fixed point once, for all tiles of a batch: a lane has all that
// it needs in its own registers, and a group's largest element is among four lanes.

// int4 is the product of a tile, nil of other weights; without a ring it says sizes only.
func (g *GEMM) int4(r *pipeline.Ring) *Int4 {
	p := Int4Of(g.Name, g.M, r, nil)
	if p != nil {
		p.Half, p.Exchanged = inNibbles(g.M.Format), g.Exchanged
	}
	return p
}

// piece is how many tile groups that lie side by side a warp takes at once: of integers blocks, whose scales it loads
// together.
func (g *GEMM) piece(consumers int) int {
	if p := g.int4(nil); p != nil {
		return pieceOf(consumers, p, g.M.ChunkK)
	}
	return 1
}

// fixedBlock is a block's input of a set of eight tokens, in fixed point: the lane's of one of them.
type fixedBlock struct {
	wide  bool                   // as in FixedInput
	words [4][]*dsl.Var[dsl.I32] // [quarter][4], as in Int4Input
	unit  *dsl.Var[dsl.F32]
	sums  []*dsl.Var[dsl.I32] // with zero points
}

func newFixedBlock(k *dsl.Kernel, shape i4.Shape) *fixedBlock {
	b := &fixedBlock{wide: shape.Wide, unit: dsl.NewVar(k.F32(0), "unit")}
	for q := range b.words {
		b.words[q] = dsl.NewArray(k.I32(0), 4, "x")
	}
	if shape.Zeros {
		b.sums = dsl.NewArray(k.I32(0), 4, "x_sum")
	}
	return b
}

// set turns the block's four k groups into fixed point, x being f16 of inputScale of them: what FixedInput.Stage makes
// of the elements themselves. All lanes of a warp call it together.
func (b *fixedBlock) set(k *dsl.Kernel, x [][]*dsl.Var[dsl.BF16x2]) {
	var words []u32
	for _, four := range x {
		for _, v := range four {
			words = append(words, dsl.Bits[dsl.U32](v.Get()))
		}
	}
	most := k.U32(0) // of the magnitudes, in the upper bits
	for _, w := range words {
		most = most.Max(w.ShlC(1)).Max(w.ShlC(17))
	}
	most = dsl.Butterfly(most, 4, u32.Max)
	largest, _ := dsl.Unpack(dsl.Bits[dsl.F16x2](most.ShrC(17)))
	bits := dsl.Bits[dsl.U32](largest)
	exponent, up := fixedUnit(k, bits, inputShift)
	b.unit.Set(unitOf(k, exponent, bits, b.wide, inputShift))
	for q := range 4 { // of the block's columns
		var sum u32
		for j := range 2 {
			var w [4]u32
			for i := range 2 {
				lo, hi := dsl.Unpack(dsl.Bits[dsl.F16x2](words[4*q+2*j+i]))
				w[2*i] = dsl.Bits[dsl.U32](dsl.FMA(lo, up, k.F32(magic)))
				w[2*i+1] = dsl.Bits[dsl.U32](dsl.FMA(hi, up, k.F32(magic)))
			}
			hi, lo := fixedBytes(w)
			b.words[q/2*2][q%2*2+j].Set(dsl.Bits[dsl.I32](hi))
			b.words[q/2*2+1][q%2*2+j].Set(dsl.Bits[dsl.I32](lo))
			if b.sums != nil {
				s := w[0].Add(w[1]).Add(w[2]).Add(w[3]).SubC(fourMagic)
				if j == 0 {
					sum = s
				} else {
					sum = sum.Add(s)
				}
			}
		}
		if b.sums != nil {
			b.sums[q].Set(dsl.Bits[dsl.I32](dsl.Butterfly(sum, 4, u32.Add)))
		}
	}
}

// int4Input is the input of a warp's i-th piece.
func (x *fragments) int4Input(i int) *Int4Input {
	in := &Int4Input{}
	for _, blocks := range x.fixed {
		var words [][][]i32
		var units []f32
		var sums [][]i32
		for _, b := range blocks[i*x.piece:][:x.piece] {
			var quarters [][]i32
			for _, q := range b.words {
				quarters = append(quarters, values(q))
			}
			words, units = append(words, quarters), append(units, b.unit.Get())
			if b.sums != nil {
				sums = append(sums, values(b.sums))
			}
		}
		in.words, in.units, in.sums = append(in.words, words), append(in.units, units), append(in.sums, sums)
	}
	return in
}

// halfInput is the input of a warp's i-th piece in f16.
func (x *fragments) halfInput(i int) (sets [][]*halfBlock) {
	for _, blocks := range x.half {
		sets = append(sets, blocks[i*x.piece:][:x.piece])
	}
	return sets
}

func values[T dsl.Elem](vars []*dsl.Var[T]) (all []dsl.Val[T]) {
	for _, v := range vars {
		all = append(all, v.Get())
	}
	return all
}

// weightsInt4 loads the warp's pieces of a chunk of n blocks. A warp that has one less loads another's, and does
// not look.
func (g *GEMM) weightsInt4(e *grid.Env, p *Int4, base u32, chunk int) (w []*Int4Weights) {
	n := g.piece(e.Consumers)
	for i := range groups(e, chunk/n) {
		piece := e.Warp.AddC(i * e.Consumers)
		if (i+1)*e.Consumers > chunk/n {
			piece = piece.MinC(chunk/n - 1)
		}
		run, block := pieceAt(e, p, base, piece, n)
		w = append(w, p.Load(e, run, block, n))
	}
	return w
}

// multiplyInt4 is multiply.
func (g *GEMM) multiplyInt4(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring, x *fragments, acc tilePair, tiles u32,
	first, chunk int) {
	p, n := g.int4(r), g.piece(e.Consumers)
	inTurn(g, e.K, tiles, first, func() (w []*Int4Weights) {
		c.Drain(func(base u32) { w = g.weightsInt4(e, p, base, chunk) })
		return w
	}, func(w [][]*Int4Weights) { g.productsInt4(e, p, x, acc, w, chunk/n) })
}

// productsInt4 adds the products of one or two tiles, of which w has the weights by tile and piece, for pieces pieces.
func (g *GEMM) productsInt4(e *grid.Env, p *Int4, x *fragments, acc tilePair, w [][]*Int4Weights, pieces int) {
	for i := range groups(e, pieces) {
		step := func() {
			if p.Half {
				var tiles []*Int4Weights
				for t := range w {
					tiles = append(tiles, w[t][i])
				}
				g.multiplyNibbles(e, p, acc, tiles, x.halfInput(i))
				return
			}
			in := x.int4Input(i)
			for t := range w {
				p.Multiply(e, acc[t], w[t][i], in)
			}
		}
		if (i+1)*e.Consumers <= pieces {
			step()
		} else {
			e.K.If(e.Warp.AddC(i*e.Consumers).LtC(pieces), step)
		}
	}
}
