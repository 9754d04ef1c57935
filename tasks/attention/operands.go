package attention

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

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
	return product.InHalf(a, b, c)
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

// keySlices is the number of slices of 16 dimensions in two units of K: what one
// ldmatrix of 16 tokens brings.
func (l KVLayout) keySlices() int { return l.unitDims() / 8 }

// twoUnits is where unit first, an even number, of K (v = 0) or V (v = 1) lies in a
// token for the lanes for which which is 0, and the next for those with 1, and how many
// units these are: the last of an odd number has no next. What does not depend on the
// lane is a constant behind it, so that few addresses are to be kept. t is as unit has it.
func (l KVLayout) twoUnits(e *grid.Env, v int, which func() u32, first int, t u32) (u u32, n int) {
	low := first
	if _, m := l.permutation(); m > 1 && l.keyUnits()%m == 0 {
		low = first % m
	}
	if first+1 < l.keyUnits() {
		return l.unit(v, which().AddC(low), t).AddC(first - low), 2
	}
	return l.unit(v, e.K.U32(low), t).AddC(first - low), 1
}

// unpack is the two floats of an operand.
func (l KVLayout) unpack(p pair) (lo, hi f32) {
	if l.e4m3() {
		return dsl.Unpack(dsl.Bits[dsl.F16x2](p))
	}
	return dsl.Unpack(p)
}

// tileDim is the dimension of V that column n (under 8) of a tile is: tiles are 8
// dimensions that follow one another, but of e4m3 each two tiles are the even and
// the odd ones of 16.
func (l KVLayout) tileDim(tile int, n u32) u32 {
	if l.e4m3() {
		return n.MulC(2).AddC(tile/2*16 + tile%2)
	}
	return n.AddC(8 * tile)
}

// run is a part of the output that a lane holds of one row: neighbouring
// dimensions from first plus column on, which are elements [tile, j] of its
// fragments, j 0 or 1.
type run struct {
	first int
	at    [][2]int
}

// runs are all of a lane's, of n dimensions over all lanes each.
func (l KVLayout) runs() (runs []run, dims int) {
	dims = 8 * l.keySlices()
	for i := 0; i < l.D/8; i += l.keySlices() {
		at := [][2]int{{i, 0}, {i, 1}}
		if l.e4m3() {
			at = [][2]int{{i, 0}, {i + 1, 0}, {i, 1}, {i + 1, 1}}
		}
		runs = append(runs, run{8 * i, at})
	}
	return runs, dims
}

// column is how many dimensions a lane's runs begin behind the first lane's.
func (l KVLayout) column(e *grid.Env) u32 { return e.Lane.RemC(4).MulC(2 * l.keySlices()) }
