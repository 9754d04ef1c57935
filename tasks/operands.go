package tasks

import "github.com/mkgen/mkgen/dsl"

// How a cache's elements become operands of the tensor core. A bf16 cache is
// multiplied in bf16. An e4m3 cache is multiplied in f16, of which every e4m3
// value is one: widening two elements is one instruction, and nothing is
// rounded. A register of f16 is passed around as a pair all the same.
//
// Counts of an m16n8k16 product's share, two elements of K or V a lane and
// register: K 1 cvt, V 1 cvt and half a prmt; bf16 needs none.

// weightShift is added to the exponents of an e4m3 cache's softmax weights: f16
// holds 2⁻²⁴ to 65504, and weights lie between 0 and 1.
const weightShift = 15

// shift is what the weights' exponents are larger by than the softmax's.
func (l KVLayout) shift() float64 {
	if l.e4m3() {
		return weightShift
	}
	return 0
}

// pack rounds two floats to the format of the operands.
func (l KVLayout) pack(lo, hi f32) pair {
	if l.e4m3() {
		return dsl.Bits[dsl.BF16x2](dsl.Pack[dsl.F16x2](lo, hi))
	}
	return dsl.Pack[dsl.BF16x2](lo, hi)
}

// product is A·B + C.
func (l KVLayout) product(a [4]pair, b [2]pair, c [4]f32) [4]f32 {
	if !l.e4m3() {
		return dsl.MMA(a, b, c)
	}
	f16 := func(p pair) dsl.Val[dsl.F16x2] { return dsl.Bits[dsl.F16x2](p) }
	return dsl.MMA([4]dsl.Val[dsl.F16x2]{f16(a[0]), f16(a[1]), f16(a[2]), f16(a[3])}, [2]dsl.Val[dsl.F16x2]{f16(b[0]), f16(b[1])}, c)
}

// queryPair says which pair of a query is register x (0 or 1) of lane t's row of
// A for a slice of 16 dimensions: in k, elements 2t, 2t+1 and 2t+8, 2t+9. In e4m3 the
// slice's k are permuted so that a lane has elements 4t to 4t+3 of it, as
// keyFragments has them of K.
func (l KVLayout) queryPair(t u32, slice, x int) u32 {
	if l.e4m3() {
		return t.MulC(2).AddC(8*slice + x)
	}
	return t.AddC(8*slice + 4*x)
}

// operand is a pair of bf16 as an operand. In f16 what is beyond 65504 becomes
// infinite, and below 2⁻¹⁴ digits are lost.
func (l KVLayout) operand(p pair) pair {
	if l.e4m3() {
		return l.pack(dsl.Unpack(p))
	}
	return p
}

// keySlices is the number of slices of 16 dimensions that keyFragments loads at once.
func (l KVLayout) keySlices() int { return l.unitDims() / 8 }

// keyFragments loads the B fragments of K for 16 tokens and the slices of 16
// dimensions from first, a multiple of keySlices, on: [slice][tokens 0–7, 8–15].
// row is the 16-byte element of the row of the token this lane addresses, token
// its position: tokens 0–7 for lanes 0–15, 8–15 for the others.
//
// ldmatrix gives a lane of every 8 tokens × 16 bytes the bytes 4t to 4t+3 of
// token lane/4: two elements of bf16, which is a register of B, or four of e4m3,
// which are both.
func (l KVLayout) keyFragments(e *Env, buf dsl.Buf[dsl.B128], row, token u32, first int) [][2][2]pair {
	u, n := l.twoUnits(e, 8, first*16/l.unitDims())
	m := dsl.LoadMatrix(buf, row.Add(l.unit(0, u, token)), false)
	if !l.e4m3() {
		return [][2][2]pair{{{m[0], m[1]}, {m[2], m[3]}}}
	}
	var out [][2][2]pair
	for i := range n {
		out = append(out, [2][2]pair{widen(dsl.Bits[dsl.U32](m[i])), widen(dsl.Bits[dsl.U32](m[2+i]))})
	}
	return out
}

// valueFragments loads the B fragments of V for 16 tokens and the units of V
// from first, an even number, on: two for each tile of 8 output dimensions, see
// outputDim. row and token are as for keyFragments, but lanes 0–7 and 16–23
// address tokens 0–7.
//
// Transposed, ldmatrix gives a lane two bytes of tokens 2t and 2t+1 each: one
// element of bf16, or two of e4m3, the first of which go to one tile and the
// second to another.
func (l KVLayout) valueFragments(e *Env, buf dsl.Buf[dsl.B128], row, token u32, first int) [][2]pair {
	u, n := l.twoUnits(e, 16, first)
	m := dsl.LoadMatrix(buf, row.Add(l.unit(1, u, token)), true)
	if !l.e4m3() {
		return [][2]pair{{m[0], m[1]}, {m[2], m[3]}}
	}
	var out [][2]pair
	for i := range n {
		apart := func(p pair) [2]pair {
			w := dsl.Bits[dsl.U32](p)
			return widen(dsl.Permute(w, w, 0x3120))
		}
		a, b := apart(m[2*i]), apart(m[2*i+1])
		out = append(out, [2]pair{a[0], b[0]}, [2]pair{a[1], b[1]})
	}
	return out
}

// twoUnits is unit first and the next, each for so many lanes in turn, and how
// many units these are: the last of an odd number has no next.
func (l KVLayout) twoUnits(e *Env, lanes, first int) (u u32, n int) {
	if first+1 == l.keyUnits() {
		return e.K.U32(first), 1
	}
	u = e.Lane.DivC(lanes)
	if 2*lanes < dsl.WarpSize {
		u = u.AndC(1)
	}
	return u.AddC(first), 2
}

// widen is four e4m3 as two registers of f16.
func widen(w u32) [2]pair {
	two := func(w u32) pair {
		return dsl.Bits[dsl.BF16x2](dsl.Cast[dsl.F16x2](dsl.Bits[dsl.E4M3x2](dsl.Cast[dsl.U16](w))))
	}
	return [2]pair{two(w), two(w.ShrC(16))}
}

// outputs gives the output that lane t (of 4) has of one row, tile by tile two,
// in runs of neighbouring dimensions: at(tile, j) is element j of a tile, put
// gets the first dimension of a run less what t adds, per, to it.
func (l KVLayout) outputs(at func(tile, j int) f32, put func(first, per int, vs []f32)) {
	for i := 0; i < l.D/8; i += l.keySlices() {
		if l.e4m3() {
			put(8*i, 4, []f32{at(i, 0), at(i+1, 0), at(i, 1), at(i+1, 1)})
		} else {
			put(8*i, 2, []f32{at(i, 0), at(i, 1)})
		}
	}
}
