package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// Int4 multiplies weights of 4 or 8 bits (package i4) by an input in fixed point, one row tile at a time.
//
// Columns of a scale group are summed in integers, of a block at most: exactly. Then one fma adds them in f32, in order
// of the columns. So the results are the same bits on every machine, whatever the other tokens are.
//
// With scale groups of 16 columns, of E2M1, B's columns 4 to 7 are the token's, too: of these two k halves of a product
// columns 0 to 3 have the first and zeros, and 4 to 7 the second, so that both groups' sums come out at once. That is
// of one token; a GEMM multiplies codes of 4 bits in f16.
//
// Of one token (a GEMV) weights are the A operand of m16n8k32: low nibbles, one half of the block's columns,
// are rows 0 to 7, and high nibbles, the other half, rows 8 to 15; the high and low bytes of both halves
// of the input are four of B's eight columns. Two products are a whole block. Its halves are summed apart from
// each other, and these two sums are added last. With several
// tokens (a GEMM) weights of 8 bits are B, and the high bytes of eight tokens A's rows 0 to 7, the low ones 8 to 15: a
// block takes four products for eight tokens, and a lane has all columns of two rows in one sum each. The bytes of a
// block are the same. Of 8 bits the first half's bytes are where low nibbles are, and the other's where high ones are.
type Int4 struct {
	Name  string
	Shape i4.Shape
	BF16  bool              // whether scales are bfloat16, and not binary16
	Data  dsl.Buf[dsl.B128] // where runs of weights are
	X     *FixedInput       // of one token; nil where the input is of several, in registers (GEMM)
	Half  bool              // products are in f16, and weights two tiles' rows: see GEMM.multiplyNibbles
	// Exchanged plants a fault: high bytes of the input count as low ones, and low ones as high ones; with Half the two
	// halves of a block have each other's input.
	Exchanged bool
	// Tables are what E2M1Tables says, where weights are A and E2M1; not given, Begin makes them.
	Tables []u32
}

// weightsAreA is whether weights are the operand A.
func (p *Int4) weightsAreA() bool { return p.X != nil }

// Sixteen is whether scale groups are of 16 columns, half of what a product sums.
func (p *Int4) Sixteen() bool { return p.Shape.Group == 16 }

// Spread is whether the two k halves of a block are of different columns of B, 0 to 3 and 4 to 7, where the other half
// has zeros: then the sums of a block's four scale groups of 32 columns come out at once, one to each lane of four.
func (p *Int4) Spread() bool {
	return p.Shape.Group == 32 && !p.Shape.Zeros && p.weightsAreA()
}

func (p *Int4) problem() string {
	return rule.First(
		rule.Need(p.Shape.Problem() == "", "%s: %s", p.Name, p.Shape.Problem()),
		rule.Sound(p.X.problem(p.Name)),
		rule.Need(!p.Shape.Zeros || p.X == nil || p.X.Sums != nil, "%s: zero points want the sums of the input", p.Name))
}

// Begin makes a lane's part of a new tile's sums of one token: of half a row's columns, see Sum. It is nil where the
// product is not sound; the kernel's error says why.
func (p *Int4) Begin(e *grid.Env) []*dsl.Var[dsl.F32] {
	if why := p.problem(); why != "" {
		e.K.Require(false, "%s", why)
		return nil
	}
	y := dsl.NewArray(e.K.F32(0), 1, "y")
	if p.Tables == nil {
		p.Tables = p.E2M1Tables(e)
	}
	return y
}

// rows are the rows whose sums a lane has: A's row is lane/4, and two of B's columns are
// neighbours.
func (p *Int4) rows(e *grid.Env) []u32 {
	if p.weightsAreA() || p.Half {
		return []u32{e.Lane.DivC(4)}
	}
	row := e.Lane.RemC(4).MulC(2)
	return []u32{row, row.AddC(1)}
}

// half is which half's sums a lane has where weights are A: of columns 2t and 2t + 1.
func (p *Int4) half(e *grid.Env) u32 { return dsl.Optional(e.Lane.AndC(1)) }

// Multiply adds the products of what Load has read to y: what Begin made, or of several tokens two sums for each eight
// of them, of two rows.
func (p *Int4) Multiply(e *grid.Env, y []*dsl.Var[dsl.F32], w *Int4Weights, x *Int4Input) {
	if y == nil {
		return // Begin says why
	}
	scales := p.Scales(e, w)
	for i, codes := range w.codes {
		if p.weightsAreA() {
			p.addAsA(e, y[0], codes, x, i, scales)
		} else {
			p.addAsB(e, y, codes, x, i, scales)
		}
	}
}

// Bytes are the codes of word j of a half of a block, as bytes of Shape.Times as much.
func (p *Int4) Bytes(k *dsl.Kernel, w []u32, j, half int) i32 {
	if p.Shape.Wide {
		return dsl.Bits[dsl.I32](w[4*half+j])
	}
	v := w[j]
	if p.Shape.E2M1 {
		return e2m1Bytes(k, v, half)
	}
	if half == 0 {
		v = v.ShlC(4)
	}
	return dsl.Bits[dsl.I32](v.AndC(0xf0f0f0f0))
}

// Sixteen times the magnitudes of E2M1, 0, 0.5, 1, 1.5; 2, 3, 4 and 6.
const e2m1Low, e2m1High = 0x18100800, 0x60403020

// e2m1Bytes are the four codes of E2M1 in a half of a word, as bytes of 16 times what they stand for. A code's lower
// three bits pick its magnitude in the table. With its sign bit prmt gives the magnitude's sign instead, 0: so a
// negative code is 0 here, and a positive one after the sign bits are turned. The byte-wise difference needs no borrow
// from a byte with its top bit set.
func e2m1Bytes(k *dsl.Kernel, w u32, half int) i32 {
	if half == 1 {
		w = w.ShrC(16)
	}
	low, high := k.U32(e2m1Low), k.U32(e2m1High)
	positive, negative := dsl.PermuteBy(low, high, w), dsl.PermuteBy(low, high, w.XorC(0x8888))
	return dsl.Bits[dsl.I32](positive.AddC(0x80808080).Sub(negative).XorC(0x80808080))
}

func fourZeros(k *dsl.Kernel) [4]i32 { return [4]i32{k.I32(0), k.I32(0), k.I32(0), k.I32(0)} }

// addAsA is a block with weights as A.
func (p *Int4) addAsA(e *grid.Env, y *dsl.Var[dsl.F32], w []u32, x *Int4Input, i int, scales [][]Scale) {
	d, first := fourZeros(e.K), 0 // of quarters of the block, of the lane's half
	odd := p.half(e).EqC(1)
	for m := range 2 {
		b := x.words[0][i][0]
		for _, a := range p.asA(e.K, w, m) {
			d = dsl.MMABytes(a, [2]i32{b[2*m], b[2*m+1]}, d)
		}
		if m == 0 && (p.Spread() || p.Shape.Group != 32 && !p.Sixteen()) {
			continue
		}
		if p.Exchanged {
			d = [4]i32{d[1], d[0], d[3], d[2]}
		}
		var v i32
		if p.Shape.E2M1 { // one select, since its pipe has the look-ups, and one more product, whose has time
			v = dsl.Select(odd, d[2].ShlC(8).Add(d[3]), d[0].ShlC(8).Add(d[1]))
		} else {
			v = dsl.Select(odd, d[2], d[0]).ShlC(8).Add(dsl.Select(odd, d[3], d[1]))
		}
		p.add(y, v, x.units[0][i], scales[0][p.scaleOf(i, m)], x.sum(0, i, first, m+1))
		d, first = fourZeros(e.K), m+1
	}
}

// asA are operands A of product m of a block, each times the same B: two of E2M1, see e2m1Twice.
func (p *Int4) asA(k *dsl.Kernel, w []u32, m int) [][4]i32 {
	if !p.Shape.E2M1 {
		return [][4]i32{{p.Bytes(k, w, 2*m, 0), p.Bytes(k, w, 2*m, 1), p.Bytes(k, w, 2*m+1, 0), p.Bytes(k, w, 2*m+1, 1)}}
	}
	all0, positive0 := p.e2m1Twice(k, w[2*m])
	all1, positive1 := p.e2m1Twice(k, w[2*m+1])
	return [][4]i32{{all0[0], all0[1], all1[0], all1[1]}, {positive0[0], positive0[1], positive1[0], positive1[1]}}
}

// e2m1Twice are the eight codes of E2M1 in a word, four in each half, as the sum of two bytes each, 8 times what they
// stand for: −8 times the magnitude of all codes, which their lower three bits pick in a table, and 16 times that of
// positive ones. With a code's sign bit prmt gives the sign of the table's byte instead, 0. The high half is moved down
// by the pipe that multiplies: look-ups and masks leave the other one no time.
func (p *Int4) e2m1Twice(k *dsl.Kernel, w u32) (all, positive [2]i32) {
	magnitudes := w.AndC(0x77777777)
	for half := range 2 {
		if half == 1 {
			w, magnitudes = dsl.Dot2(w, 0, 1, k.U32(0)), dsl.Dot2(magnitudes, 0, 1, k.U32(0))
		}
		all[half] = dsl.Bits[dsl.I32](dsl.PermuteBy(p.Tables[0], k.U32(0xd0e0e8f0), magnitudes))
		positive[half] = dsl.Bits[dsl.I32](dsl.PermuteBy(p.Tables[1], k.U32(e2m1High), w))
	}
	return all, positive
}

// E2M1Tables are the low halves of e2m1Twice's tables, in registers. nvcc keeps a constant in a uniform register, which
// prmt cannot read there, and moves it for each use. So they are made of a number of each lane that it does not know,
// the sign of a unit, which is 0.
func (p *Int4) E2M1Tables(e *grid.Env) []u32 {
	if !p.Shape.E2M1 || !p.weightsAreA() {
		return nil
	}
	none := dsl.Bits[dsl.U32](p.X.Units.Load(e.Lane.MinC(p.X.Groups() - 1))).ShrC(31)
	// 0, −4, −8, −12; −16, −24, −32 and −48 are the other half
	return []u32{none.Xor(e.K.U32(0xf4f8fc00)).Named("down"), none.Xor(e.K.U32(e2m1Low)).Named("up")}
}

// addAsB is a block with weights as B.
func (p *Int4) addAsB(e *grid.Env, y []*dsl.Var[dsl.F32], w []u32, x *Int4Input, i int, scales [][]Scale) {
	for set := range x.words {
		d, first := fourZeros(e.K), 0 // of quarters of the block
		for q := range 4 {
			half, m := q/2, q%2
			hi, lo := x.words[set][i][2*half], x.words[set][i][2*half+1]
			a := [4]i32{hi[2*m], lo[2*m], hi[2*m+1], lo[2*m+1]}
			d = dsl.MMABytes(a, [2]i32{p.Bytes(e.K, w, 2*m, half), p.Bytes(e.K, w, 2*m+1, half)}, d)
			if columns := 32 * (q + 1 - first); columns < i4.Columns && columns != p.Shape.Group {
				continue
			}
			for r := range 2 {
				hi, lo := d[r], d[2+r]
				if p.Exchanged {
					hi, lo = lo, hi
				}
				v := hi.ShlC(8).Add(lo)
				p.add(y[2*set+r], v, x.units[set][i], scales[2*r+half][p.scaleOf(i, m)], x.sum(set, i, first, q+1))
			}
			d, first = fourZeros(e.K), q+1
		}
	}
}

// add adds an integer sum times its scale to y.
func (p *Int4) add(y *dsl.Var[dsl.F32], v i32, unit f32, by Scale, sum i32) {
	if p.Shape.Zeros {
		v = v.Add(by.Zero.Mul(sum))
	}
	if p.Shape.Group != i4.Whole {
		unit = unit.Mul(by.Scale)
	}
	y.Set(dsl.FMA(dsl.Cast[dsl.F32](v), unit, y.Get()))
}

// Sum is the sum of a row of a tile of one token: lanes 4r and 4r + 1 have row r's. With scale groups of 16 columns all
// four lanes have a part, of every other group of a half. Where a row is one scale group, it is yet to be multiplied by
// the row's scale.
func (p *Int4) Sum(s []*dsl.Var[dsl.F32]) f32 {
	y := s[0].Get()
	y = y.Add(dsl.ShflXor(y, 1))
	if p.Sixteen() || p.Spread() {
		y = y.Add(dsl.ShflXor(y, 2))
	}
	return y
}
