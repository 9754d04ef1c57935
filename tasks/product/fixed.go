package product

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

type i32 = dsl.Val[dsl.I32]

// FixedInput is the input of a product of integer weights in shared memory: 16-bit fixed point by
// groups of 128 elements, as i4.Fixed has it, in the order of the tensor core's operands.
//
// A group has 256 bytes: [quarter][t][16]. Quarter 2h + p is the high (p = 0) or low
// bytes (p = 1) of half h of the group, and byte 4j + b of its 16-byte unit t is element
// 64h + 16j + 4t + b: what a unit of a block of weights has in its low or high nibbles (package
// i4).
type FixedInput struct {
	K     int              // elements, a multiple of 128
	Bytes dsl.Buf[dsl.U32] // the groups, one behind another
	// [group]: 2^e/16 where weights are 16 times their codes, else 2^e; NaN if an element is none or infinite
	Units dsl.Buf[dsl.F32]
	Wide  bool              // weights have 8 bits, and are their codes
	Sums  *dsl.Buf[dsl.I32] // [group][half][32 columns]: sums of the fixed points, for zero points; nil: none
	// Order, unless nil, is OwnOrder of the product: each warp stages the groups that it multiplies, and waits for no
	// other's.
	Order *grid.Order
}

// order returns Order; nil of no FixedInput.
func (f *FixedInput) order() *grid.Order {
	if f == nil {
		return nil
	}
	return f.Order
}

// wait makes what has been staged visible to those that read it: all consumer warps, or with an Order each its own.
func (f *FixedInput) wait(e *grid.Env) {
	if f.order() != nil {
		e.K.SyncWarp()
		return
	}
	e.Sync()
}

// Groups is the number of groups.
func (f *FixedInput) Groups() int { return f.K / i4.Columns }

// stride is Groups with room for loads of four.
func (f *FixedInput) stride() int { return pipeline.CeilDiv(f.Groups(), 4) * 4 }

// FixedLen are the lengths of Bytes, Units and Sums for k elements.
func FixedLen(k int) (words, units, sums int) {
	f := FixedInput{K: k}
	return 64 * f.Groups(), f.stride(), 4 * f.stride()
}

func (f *FixedInput) problem(name string) string {
	if f == nil {
		return ""
	}
	words, units, sums := FixedLen(f.K)
	return rule.First(
		rule.Need(f.K > 0 && f.K%i4.Columns == 0, "%s: an input of %d elements, want a multiple of %d", name, f.K,
			i4.Columns),
		rule.Need(int(f.Bytes.Len()) >= words, "%s: the input's bytes have %d words, want %d", name, f.Bytes.Len(), words),
		rule.Need(int(f.Units.Len()) >= units, "%s: the input's units have %d elements, want %d", name, f.Units.Len(), units),
		rule.Need(f.Sums == nil || int(f.Sums.Len()) >= sums, "%s: the input's sums have too few elements, want %d", name,
			sums))
}

// magic is 1.5·2²³ + 128: of x + magic, rounded to nearest, the low 16 bits are x + 128 modulo
// 2¹⁶ for |x| under 2²². Their high byte is hi, and the low one lo + 128.
const magic = 0x1.8p23 + 128

// fourMagic is what the bits of four such sums have too much together.
var fourMagic = int(4 * math.Float32bits(magic))

// Stage turns a group into fixed point, x being 2^−shift of its elements. All lanes of a warp call it together: lane l
// has elements 4l … 4l+3. What reads it must wait for those that wrote it.
func (f *FixedInput) Stage(e *grid.Env, group u32, x [4]f32, shift int) {
	k := e.K
	most := k.U32(0)
	for i, v := range x {
		abs := dsl.Bits[dsl.U32](v).AndC(0x7fffffff)
		if i == 0 {
			most = abs
		} else {
			most = most.Max(abs)
		}
	}
	most = dsl.ReduxMax(most)
	exponent, up := fixedUnit(k, most, shift)
	var w [4]u32
	for i, v := range x {
		w[i] = dsl.Bits[dsl.U32](dsl.FMA(v, up, k.F32(magic)))
	}
	hi, lo := fixedBytes(w)
	// Lane 16h + 4j + t has bytes 4j … 4j+3 of unit t of half h.
	half, j, t := e.Lane.DivC(16), e.Lane.DivC(4).RemC(4), e.Lane.RemC(4)
	at := group.MulC(4).Add(half.MulC(2)).MulC(16).Add(t.MulC(4)).Add(j)
	f.Bytes.Store(at, hi)
	f.Bytes.Store(at.AddC(16), lo)
	k.If(e.Lane.EqC(0), func() { f.Units.Store(group, unitOf(k, exponent, most, f.Wide, shift)) })
	if f.Sums != nil {
		f.stageSums(e, group, w)
	}
}

// fixedUnit returns a group's biased exponent, less shift, and 2^(shift − e), which makes 2^−shift of an element fixed
// point. most has the bits of the largest magnitude of 2^−shift of the elements.
func fixedUnit(k *dsl.Kernel, most u32, shift int) (exponent u32, up f32) {
	exponent = most.AddC(i4.OverFixed).ShrC(23).Max(k.U32(i4.LeastExponent - shift))
	return exponent, dsl.Bits[dsl.F32](k.U32(2*127 + 14).Sub(exponent).ShlC(23))
}

// unitOf returns 2^e/16 of what fixedUnit says, or where weights are wide 2^e; NaN where the largest element is none or
// infinite.
func unitOf(k *dsl.Kernel, exponent, most u32, wide bool, shift int) f32 {
	down := 14 + 4
	if wide {
		down = 14
	}
	unit := exponent.SubC(down - shift).ShlC(23)
	return dsl.Bits[dsl.F32](dsl.Select(most.LtC(0x7f800000), unit, k.U32(0x7fc00000)))
}

// fixedBytes are the high and the low bytes of four elements, w being the bits of x·2^−e + magic.
func fixedBytes(w [4]u32) (hi, lo u32) {
	low, high := dsl.Permute(w[0], w[1], 0x5140), dsl.Permute(w[2], w[3], 0x5140)
	return dsl.Permute(low, high, 0x7632), dsl.Permute(low, high, 0x5410).XorC(0x80808080)
}

// stageSums stores the sums of 32 elements, which 8 lanes have.
func (f *FixedInput) stageSums(e *grid.Env, group u32, w [4]u32) {
	sum := w[0].Add(w[1]).Add(w[2]).Add(w[3]).SubC(fourMagic)
	sum = dsl.Butterfly(sum, 8, u32.Add)
	e.K.If(e.Lane.RemC(8).EqC(0), func() {
		f.Sums.Store(group.MulC(4).Add(e.Lane.DivC(8)), dsl.Bits[dsl.I32](sum))
	})
}
