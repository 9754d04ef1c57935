package tasks

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline/i4"
)

// Int4Input is what a lane has of some groups of an input: the same for all row tiles.
type Int4Input struct {
	words [][][][]i32 // [set][group][quarter]: four words; where weights are A only one quarter, the lane's
	units [][]f32     // [set][group]
	sums  [][][]i32   // [set][group]: of its 32 columns, the lane's half only where weights are A
}

// Input loads n groups, 1, 2 or a multiple of 4, of the input from group first on, a multiple of n.
func (p *Int4) Input(e *Env, first u32, n int) *Int4Input {
	if why := p.problem(); why != "" {
		return nil // Begin says it
	}
	x := &Int4Input{}
	if p.weightsAreA() {
		token := e.K.U32(0)
		if p.X.T == 2 {
			token = e.Lane.DivC(16) // B's column is 4 times the token, plus the quarter
		}
		quarter := e.Lane.DivC(4).RemC(4)
		sumsOf := e.K.U32(0)
		if p.X.T == 2 {
			sumsOf = e.Lane.RemC(4).DivC(2)
		}
		half := p.half(e)
		p.load(e, x, first, n, token, sumsOf, []u32{quarter}, &half)
		return x
	}
	for set := range p.sets() {
		token := e.Lane.DivC(4).AddC(8 * set)
		if 8*set+8 > p.X.T { // those that are not there are another's, and nobody looks at them
			token = token.MinC(p.X.T - 1)
		}
		p.load(e, x, first, n, token, token, []u32{e.K.U32(0), e.K.U32(1), e.K.U32(2), e.K.U32(3)}, nil)
	}
	return x
}

// load is what a set has: token's words of some quarters, and of's units and sums, of one half or of both.
func (p *Int4) load(e *Env, x *Int4Input, first u32, n int, token, of u32, quarters []u32, half *u32) {
	var words [][][]i32
	var sums [][]i32
	place := of.MulC(p.X.stride()).Add(first)
	for i := range n {
		var group [][]i32
		for _, q := range quarters {
			at := first.AddC(i).MulC(4).Add(q).MulC(p.X.T).Add(token).MulC(4).Add(e.Lane.RemC(4))
			var four []i32
			for _, w := range p.X.Bytes.LoadN(at.MulC(4), 4) {
				four = append(four, dsl.Bits[dsl.I32](w))
			}
			group = append(group, four)
		}
		words = append(words, group)
		if !p.Shape.Zeros {
			continue
		}
		at := place.AddC(i).MulC(4)
		if half != nil {
			sums = append(sums, p.X.Sums.LoadN(at.Add(half.MulC(2)), 2))
		} else {
			sums = append(sums, p.X.Sums.LoadN(at, 4))
		}
	}
	x.words, x.sums = append(x.words, words), append(x.sums, sums)
	x.units = append(x.units, loadMany(p.X.Units, place, n))
}

// sum is the sum of a group's fixed points over the columns that are summed up to product m of a half.
func (x *Int4Input) sum(set, i, half, m, group int) i32 {
	if len(x.sums[set]) == 0 {
		return i32{}
	}
	s := x.sums[set][i][2*half:]
	if group == 32 {
		return s[m]
	}
	return s[0].Add(s[1])
}

// scale is a scale group's scale and, with zero points, −16 times its zero point.
type scale struct {
	scale f32
	zero  i32
}

// scaleOf is the number, among those that scales has of a row and half, of block i's scale for product m.
func (p *Int4) scaleOf(i, m int) int {
	switch p.Shape.Group {
	case 32:
		return 2*i + m
	case i4.Whole:
		return 0
	}
	return i
}

// scales are those of n blocks from first on: of the lane's row and half where weights are A, else of
// row r and half h at 2r + h.
func (p *Int4) scales(e *Env, run, first u32, n int) (all [][]scale) {
	if p.Shape.Group == i4.Whole {
		return [][]scale{{{}}, {{}}, {{}}, {{}}}
	}
	of := func(row, half u32) []scale {
		at, many := row.MulC(p.Shape.RowEntries()), n
		switch p.Shape.Group {
		case 128:
			at = at.Add(first)
		case 64:
			at = at.Add(half.MulC(p.Shape.Run)).Add(first)
		case 32:
			at, many = at.Add(half.MulC(2*p.Shape.Run)).Add(first.MulC(2)), 2*n
		}
		return p.entries(run, at, many)
	}
	if p.weightsAreA() {
		return [][]scale{of(e.Lane.DivC(4), p.half(e))}
	}
	for _, row := range p.rows(e) {
		for half := range 2 {
			if p.Shape.Group == 128 && half == 1 {
				all = append(all, all[len(all)-1])
				continue
			}
			all = append(all, of(row, e.K.U32(half)))
		}
	}
	return all
}

// entries are n entries of a run from entry at on.
func (p *Int4) entries(run, at u32, n int) (all []scale) {
	behind := p.Shape.Run * i4.BlockBytes
	if !p.Shape.Zeros {
		from := run.MulC(8).AddC(behind / 2).Add(at)
		if p.BF16 {
			return ofHalves(loadMany(dsl.View[dsl.BF16](p.Data), from, n))
		}
		return ofHalves(loadMany(dsl.View[dsl.F16](p.Data), from, n))
	}
	for _, w := range loadMany(dsl.View[dsl.U32](p.Data), run.MulC(4).AddC(behind/4).Add(at), n) {
		s := scale{zero: dsl.Bits[dsl.I32](w).ShrC(16)}
		if p.BF16 {
			s.scale, _ = dsl.Unpack(dsl.Bits[dsl.BF16x2](w))
		} else {
			s.scale, _ = dsl.Unpack(dsl.Bits[dsl.F16x2](w))
		}
		all = append(all, s)
	}
	return all
}

func ofHalves[T dsl.Elem](vs []dsl.Val[T]) (all []scale) {
	for _, v := range vs {
		all = append(all, scale{scale: dsl.Cast[dsl.F32](v)})
	}
	return all
}

// loadMany loads n elements, as many at once as a load can have.
func loadMany[T dsl.Elem](b dsl.Buf[T], at u32, n int) (all []dsl.Val[T]) {
	step := 4
	for n%step != 0 {
		step /= 2
	}
	for i := 0; i < n; i += step {
		all = append(all, b.LoadN(at.AddC(i), step)...)
	}
	return all
}
