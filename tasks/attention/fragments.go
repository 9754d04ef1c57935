package attention

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/product"
)

// spot is where a lane reads its matrix rows of a block: the 16-byte element of
// its token's first unit, and what permutes the units.
type spot struct {
	buf      dsl.Buf[dsl.B128]
	row, key u32
	matrix   u32 // of the four that ldmatrix reads, the one whose rows this lane names
}

// spot is token tok's of a block. Tokens from n on are replaced by the last
// valid one: their weight is 0, and 0 times what uninitialised memory may hold
// must not become NaN.
func (st *state) spot(b tokens, matrix, tok u32) spot {
	if b.whole { // it begins at a multiple of 16 tokens, which the permutation does not tell apart
		return spot{b.buf, b.base.Add(tok.MulC(st.t.KV.TokenUnits())), dsl.Optional(tok), dsl.Optional(matrix)}
	}
	tok = tok.Min(b.n.SubC(1))
	return spot{b.buf, b.base.Add(tok.MulC(st.t.KV.TokenUnits())), dsl.Optional(b.first.Add(tok)), dsl.Optional(matrix)}
}

// keySpots and valueSpots are where this lane reads its rows of keyFragments and
// valueFragments, for each slice of a block.
func (st *state) keySpots(b tokens) []spot {
	matrix := st.e.Lane.DivC(8)
	return st.spots(b, matrix, st.e.Lane.RemC(8).Add(matrix.DivC(2).MulC(8)))
}

func (st *state) valueSpots(b tokens) []spot {
	matrix := st.e.Lane.DivC(8)
	return st.spots(b, matrix, st.e.Lane.RemC(8).Add(matrix.AndC(1).MulC(8)))
}

// spots are the spots of token tok of each slice.
func (st *state) spots(b tokens, matrix, tok u32) (at []spot) {
	for slice := range b.slices {
		at = append(at, st.spot(b, matrix, tok.AddC(slice*blockTokens)))
	}
	return at
}

// keyFragments are K as the B operand of Q·Kᵀ, for keySlices slices of 16
// dimensions from slice first on: each of tokens 0–7, and of 8–15. A lane holds
// elements 2c, 2c + 1 (register 0) and 8 more (register 1) of a slice of token
// lane/4, where c = lane mod 4; of e4m3 elements 4c, 4c + 1 and 4c + 2, 4c + 3.
//
// ldmatrix gives a lane of 8 tokens × 16 bytes the bytes 4c … 4c + 3 of token
// lane/4: a register of bf16, or both registers of e4m3.
func (st *state) keyFragments(at spot, first int) [][2][2]pair {
	l := st.t.KV
	u, n := l.twoUnits(st.e, 0, func() u32 { return at.matrix.AndC(1) }, first*16/l.unitDims(), at.key)
	f := dsl.LoadMatrix(at.buf, at.row.Add(u), false)
	if !l.e4m3() {
		return [][2][2]pair{{{f[0], f[1]}, {f[2], f[3]}}}
	}
	var out [][2][2]pair
	for i := range n {
		out = append(out, [2][2]pair{product.Widen(dsl.Bits[dsl.U32](f[i])), product.Widen(dsl.Bits[dsl.U32](f[2+i]))})
	}
	return out
}

// valueFragments are V as the B operand of P·V, for the tiles of 8 dimensions
// (see tileDim) of two 16-byte units from unit first, an even number, on. A lane
// holds tokens 2c, 2c+1 (register 0) and 8 more (register 1) of its dimension.
//
// Transposed, ldmatrix gives a lane two bytes each of tokens 2c and 2c + 1: an
// element of bf16, or two of e4m3, the first for one tile and the second for another.
func (st *state) valueFragments(at spot, first int) [][2]pair {
	l := st.t.KV
	u, n := l.twoUnits(st.e, 1, func() u32 { return at.matrix.DivC(2) }, first, at.key)
	f := dsl.LoadMatrix(at.buf, at.row.Add(u), true)
	if !l.e4m3() {
		return [][2]pair{{f[0], f[1]}, {f[2], f[3]}}
	}
	var out [][2]pair
	apart := func(p pair) [2]pair {
		w := dsl.Bits[dsl.U32](p)
		return product.Widen(dsl.Permute(w, w, 0x3120))
	}
	for i := range n {
		a, b := apart(f[2*i]), apart(f[2*i+1])
		out = append(out, [2]pair{a[0], b[0]}, [2]pair{a[1], b[1]})
	}
	return out
}

// scores is Q·Kᵀ: the C fragments of the block's tokens, 8 by 8.
func (st *state) scores(b tokens) [][4]f32 {
	zero := st.e.K.F32(0)
	s := make([][4]f32, 2*b.slices)
	for nt := range s {
		s[nt] = [4]f32{zero, zero, zero, zero}
	}
	st.eachKeyFragment(b, func(slice, i int, f [2][2]pair) {
		for nt := range f {
			s[2*slice+nt] = st.t.KV.product(st.q[i], f[nt], s[2*slice+nt])
		}
	})
	if st.t.KV.e4m3() && !st.t.hooksKeys() {
		for nt := range s {
			for x := range 2 * st.rows {
				s[nt][x] = s[nt][x].Mul(st.keyScale)
			}
		}
	}
	return s
}

// weigh adds P·V to the output.
func (st *state) weigh(b tokens, p [][4]pair) {
	at, value, tile := st.valueSpots(b), st.valueTransform(b), 0
	for u := 0; u < st.t.KV.keyUnits(); u += 2 {
		n := 0
		for slice := range at {
			f := st.valueFragments(at[slice], u)
			for i, v := range f {
				st.addProduct(tile+i, p[slice], value(slice, tile+i, v))
			}
			n = len(f)
		}
		tile += n
	}
}

// addProduct adds the product of weights and a tile of values to the output.
func (st *state) addProduct(tile int, a [4]pair, v [2]pair) {
	o, zero := st.o[tile], st.e.K.F32(0)
	c := [4]f32{zero, zero, zero, zero} // rows not in use stay 0
	for x := range o {
		c[x] = o[x].Get()
	}
	d := st.t.KV.product(a, v, c)
	for x := range o {
		o[x].Set(d[x])
	}
}
