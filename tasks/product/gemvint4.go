package product

import (
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/grid"
)

// How a GEMV multiplies weights of integers. Warps share a chunk in pieces: some blocks of a run each.

// int4 is the product of a tile, nil of other weights; without a ring it says sizes only.
func (g *GEMV) int4(r *pipeline.Ring) *Int4 {
	p := Int4Of(g.Name, g.M, r, g.Fixed)
	if p != nil {
		p.Exchanged, p.Tables = g.Exchanged, g.tables
	}
	return p
}

// Int4Of is the product of a tile of a matrix with x, nil of other weights.
func Int4Of(name string, m *pipeline.MatrixPlan, r *pipeline.Ring, x *FixedInput) *Int4 {
	shape, ok := m.Format.Int4(m.K)
	if !ok {
		return nil
	}
	p := &Int4{Name: name, Shape: shape, BF16: !m.Format.F16Scales(), X: x}
	if r != nil {
		p.Data = r.Data
	}
	return p
}

// pieceOf is how many blocks of n columns a warp takes at once: with which the busiest has the least,
// and of two as good the more.
func pieceOf(consumers int, p *Int4, columns int) (n int) {
	least := 0
	for _, blocks := range []int{4, 2, 1} {
		if p.Shape.Run%blocks != 0 {
			continue
		}
		if most := pipeline.CeilDiv(columns/i4.Columns/blocks, consumers) * blocks; least == 0 || most < least {
			n, least = blocks, most
		}
	}
	return n
}

// mostOwnRounds is how many groups of its own a warp stages at most, since all are written out: those of 70B's longest
// vector beside 8 warps.
const mostOwnRounds = 28

// OwnOrder returns the order in which each of the consumer warps stages those groups of m's input that it multiplies,
// as inputInt4 loads them. It returns nil where some warps have more of them than others or more than mostOwnRounds, of
// E2M1, whose tables are made of any unit, and where some CTAs have no tile: their warps would not meet before the CTA
// says that it has read its input (grid.Barrier.Count).
func OwnOrder(consumers int, m *pipeline.MatrixPlan) *grid.Order {
	p := Int4Of(m.Name, m, nil, nil)
	if p == nil || p.Shape.E2M1 || m.K%i4.Columns != 0 || slices.Min(m.Count) == 0 {
		return nil
	}
	o := &grid.Order{Stride: pieceOf(consumers, p, m.ChunkColumns(0))}
	for part := range m.ChunksPerTile {
		columns := m.ChunkColumns(part)
		n := pieceOf(consumers, p, columns)
		if n != o.Stride || columns%(n*consumers*i4.Columns) != 0 {
			return nil
		}
		for piece := 0; piece < columns/i4.Columns; piece += n * consumers {
			for block := range n {
				o.Offsets = append(o.Offsets, part*m.ChunkK/i4.Columns+piece+block)
			}
		}
	}
	if len(o.Offsets) > mostOwnRounds {
		return nil
	}
	return o
}

// pieces is how many parts of n columns the warps share among them: of integers pieces, else tile groups.
func (g *GEMV) pieces(e *grid.Env, columns int) int {
	if p := g.int4(nil); p != nil {
		return columns / i4.Columns / pieceOf(e.Consumers, p, columns)
	}
	return columns / g.M.Format.Columns()
}

// ownPieceAt is pieceAt of the i-th piece of a warp. Where the number of warps is a multiple of a run's pieces, all
// pieces of a warp lie in the same place of their runs, as many bytes apart.
func ownPieceAt(e *grid.Env, p *Int4, base u32, i, n int) (run, first u32) {
	of := p.Shape.Run / n
	if e.Consumers%of != 0 {
		return pieceAt(e, p, base, e.Warp.AddC(i*e.Consumers), n)
	}
	run, first = pieceAt(e, p, base, e.Warp, n)
	return run.AddC(i * e.Consumers / of * p.Shape.RunBytes() / 16), first
}

// pieceAt is where a piece of n blocks lies: its run, from base on, in 16-byte elements, and its first block there.
func pieceAt(e *grid.Env, p *Int4, base, piece u32, n int) (run, first u32) {
	of := p.Shape.Run / n
	if of == 1 {
		return base.Add(piece.MulC(p.Shape.RunBytes() / 16)), e.K.U32(0)
	}
	return base.Add(piece.DivC(of).MulC(p.Shape.RunBytes() / 16)), piece.RemC(of).MulC(n)
}

// mostKept is how many blocks' input a lane keeps in registers over all tiles, 5 a block or with zero points 7, and
// mostKeptE2M1 how many of E2M1, whose tables take registers, too.
const mostKept, mostKeptE2M1 = 16, 4

// keepInputs loads a warp's input for all tiles, of each of their chunks, where all warps have as much of it and it is
// little. Of E2M1, whose input costs most to load, tiles are one chunk then, and warps may have a piece less: they load
// another's in its place.
func (g *GEMV) keepInputs(e *grid.Env) {
	g.kept, g.tables = nil, nil
	if g.Fixed == nil {
		return
	}
	p := g.int4(nil)
	g.tables = p.E2M1Tables(e)
	if !g.keeps(e, p) {
		return
	}
	for part := range g.M.ChunksPerTile {
		chunk, columns := e.K.U32(part), g.M.ChunkColumns(part)
		inputs, pieces := g.inputsAhead(e, p, chunk, columns), g.pieces(e, columns)
		if rest := len(inputs); 0 < rest && rest*e.Consumers < pieces {
			mine := e.Warp.AddC(rest * e.Consumers).MinC(pieces - 1)
			inputs = append(inputs, g.inputInt4(e, p, chunk, mine, pieceOf(e.Consumers, p, columns)))
		}
		g.kept = append(g.kept, inputs)
	}
}

// keeps reports whether keepInputs loads something.
func (g *GEMV) keeps(e *grid.Env, p *Int4) bool {
	most, uneven := mostKept, false
	if p.Shape.E2M1 {
		most, uneven = mostKeptE2M1, g.M.ChunksPerTile == 1
	}
	blocks := 0
	for part := range g.M.ChunksPerTile {
		columns := g.M.ChunkColumns(part)
		pieces := g.pieces(e, columns)
		if pieces%e.Consumers != 0 && !uneven || pieces > maxInputsAhead*e.Consumers {
			return false
		}
		blocks += pipeline.CeilDiv(pieces, e.Consumers) * pieceOf(e.Consumers, p, columns)
	}
	return blocks <= most
}

// inputsAhead loads a warp's first pieces of a chunk which all warps have.
func (g *GEMV) inputsAhead(e *grid.Env, p *Int4, chunk u32, columns int) (inputs []*Int4Input) {
	n := pieceOf(e.Consumers, p, columns)
	for i := range min(maxInputsAhead, g.pieces(e, columns)/e.Consumers) {
		inputs = append(inputs, g.inputInt4(e, p, chunk, e.Warp.AddC(i*e.Consumers), n))
	}
	return inputs
}

// inputsOf returns those of chunk part of a tile, kept or loaded.
func (g *GEMV) inputsOf(e *grid.Env, p *Int4, part int) []*Int4Input {
	if g.kept != nil {
		return g.kept[part]
	}
	return g.inputsAhead(e, p, e.K.U32(part), g.M.ChunkColumns(part))
}

// inputInt4 is the input of a piece of a chunk.
func (g *GEMV) inputInt4(e *grid.Env, p *Int4, chunk, piece u32, n int) *Int4Input {
	return p.Input(e, chunk.MulC(g.M.ChunkK/i4.Columns).Add(piece.MulC(n)), n)
}

// tileInt4 is tile.
func (g *GEMV) tileInt4(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring, held int) []f32 {
	p := g.int4(r)
	s := p.Begin(e)
	first := 0
	if held != noTile {
		first = g.useHeldInt4(e, p, s, held)
	}
	multiply := func(chunk u32, columns int, inputs []*Int4Input) {
		n := pieceOf(e.Consumers, p, columns)
		c.Drain(func(base u32) {
			if len(inputs)*e.Consumers > g.pieces(e, columns) {
				g.multiplyTogether(e, p, s, base, inputs, columns)
				return
			}
			e.OwnGroups(g.pieces(e, columns), func(i int, piece u32) {
				run, block := ownPieceAt(e, p, base, i, n)
				w := p.Load(e, run, block, n)
				if i < len(inputs) {
					dsl.Optional(piece)
					p.Multiply(e, s, w, inputs[i])
				} else {
					p.Multiply(e, s, w, g.inputInt4(e, p, chunk, piece, n))
				}
			})
		})
	}
	if g.kept != nil { // each chunk has registers of its own
		for part := first; part < g.M.ChunksPerTile; part++ {
			multiply(e.K.U32(part), g.M.ChunkColumns(part), g.kept[part])
		}
	} else {
		g.chunksFrom(e.K, first, func(chunk u32, columns int) {
			multiply(chunk, columns, g.inputsAhead(e, p, chunk, columns))
		})
	}
	return []f32{p.Sum(s)}
}

// multiplyTogether multiplies a warp's pieces of a chunk without a branch, so that their products overlap. Some warps
// have a piece less than there are inputs: they multiply their first once more, and forget it.
func (g *GEMV) multiplyTogether(e *grid.Env, p *Int4, s []*dsl.Var[dsl.F32], base u32, inputs []*Int4Input,
	columns int) {
	n, last := pieceOf(e.Consumers, p, columns), len(inputs)-1
	has := e.Warp.LtC(g.pieces(e, columns) - last*e.Consumers)
	var all []*Int4Weights
	for i := range inputs {
		run, first := ownPieceAt(e, p, base, i, n)
		if i == last {
			own, block := ownPieceAt(e, p, base, 0, n)
			run, first = dsl.Select(has, run, own), dsl.Select(has, first, block)
		}
		all = append(all, p.Load(e, run, first, n))
	}
	for i, w := range all {
		before := s[0].Get()
		p.Multiply(e, s, w, inputs[i])
		if i == last {
			s[0].Set(dsl.Select(has, s[0].Get(), before))
		}
	}
}

// takeInt4 is take.
func (g *GEMV) takeInt4(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring, part int, held []*dsl.Var[dsl.BF16x2]) {
	p, columns := g.int4(r), g.M.ChunkColumns(part)
	n := pieceOf(e.Consumers, p, columns)
	c.Drain(func(base u32) {
		e.OwnGroups(g.pieces(e, columns), func(i int, _ u32) {
			run, block := ownPieceAt(e, p, base, i, n)
			for at, w := range p.Load(e, run, block, n).words() {
				held[i*p.Words(n)+at].Set(dsl.Bits[dsl.BF16x2](w))
			}
		})
	})
}

// useHeldInt4 is useHeld.
func (g *GEMV) useHeldInt4(e *grid.Env, p *Int4, s []*dsl.Var[dsl.F32], t int) int {
	for part := range g.heldOf(t) {
		held, columns := g.heldChunk(e, t, part), g.M.ChunkColumns(part)
		n, inputs := pieceOf(e.Consumers, p, columns), g.inputsOf(e, p, part)
		e.OwnGroups(g.pieces(e, columns), func(i int, piece u32) {
			var words []u32
			for _, v := range held[i*p.Words(n):][:p.Words(n)] {
				words = append(words, dsl.Bits[dsl.U32](v.Get()))
			}
			if i < len(inputs) {
				p.Multiply(e, s, p.ofWords(words, n), inputs[i])
			} else {
				p.Multiply(e, s, p.ofWords(words, n), g.inputInt4(e, p, e.K.U32(part), piece, n))
			}
		})
	}
	return g.heldOf(t)
}
