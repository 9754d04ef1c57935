package product

import (
	"math"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/grid"
)

// Weights of e4m3 are multiplied in f16, of which every e4m3 value is one: widening two is one
// instruction, and nothing is rounded. So is their input, which has 11 bits there and not 8, but
// must be small: it is inputScale of what it is, so that 2²⁰ is the largest, and results are made
// up for it. What lies below 2⁻¹⁰ loses digits, down to steps of 2⁻²⁰. In registers and shared
// memory pairs of f16 are passed around as pairs of bf16.

// inputScale is what the input of a product of weights of 4 or 8 bits is multiplied by where it is f16: 2^−inputShift.
const (
	inputScale = 1.0 / (1 << inputShift)
	inputShift = 4
)

// inHalf is whether a format is multiplied in f16.
func inHalf(f pipeline.Format) bool { return f == pipeline.FormatE4M3 || f.Blocks() }

// inFixed is whether it is multiplied in integers, with its input in fixed point (FixedInput).
func inFixed(f pipeline.Format) bool { return f.Integers() }

// passedInHalf is whether vectors that go through memory on their way to products of a format do so in
// f16, an inputScale of what they are: input that is to be fixed point, too.
func passedInHalf(f pipeline.Format) bool { return inHalf(f) || inFixed(f) }

// InputType names the type in which a product of one row keeps its input in shared memory: "bf16", "f16" (an inputScale
// of what it is) or "16-bit fixed point" (FixedInput).
func InputType(f pipeline.Format) string {
	switch {
	case inFixed(f):
		return "16-bit fixed point"
	case inHalf(f):
		return "f16"
	}
	return "bf16"
}

// InputOf are two elements of a product's input in the type in which it goes through memory.
func InputOf(k *dsl.Kernel, f pipeline.Format, lo, hi f32) pair {
	if !passedInHalf(f) {
		return dsl.Pack[dsl.BF16x2](lo, hi)
	}
	scale := k.F32(inputScale)
	return dsl.Bits[dsl.BF16x2](dsl.Pack[dsl.F16x2](lo.Mul(scale), hi.Mul(scale)))
}

// inputElement is one element of a product's input.
func inputElement(k *dsl.Kernel, f pipeline.Format, v f32) dsl.Val[dsl.BF16] {
	if !passedInHalf(f) {
		return dsl.Cast[dsl.BF16](v)
	}
	lo, _ := dsl.Halves(dsl.Bits[dsl.U32](InputOf(k, f, v, v)))
	return dsl.Bits[dsl.BF16](lo)
}

// RoundInput rounds the input of a product of a format's weights as the kernel does, in place: what the
// format means in float64. Passed is whether it has gone through memory in 16 bits.
func RoundInput(f pipeline.Format, v []float64, passed bool) {
	for i, x := range v {
		switch {
		case inHalf(f) || inFixed(f) && passed:
			v[i] = nearest(x*inputScale, 11, -14) / inputScale
		case !inFixed(f):
			v[i] = nearest(x, 8, -126)
		}
	}
	if inFixed(f) {
		for group := range slices.Chunk(v, i4.Columns) {
			roundFixed(group)
		}
	}
}

// RoundColumns is RoundInput of a GEMM's input, which has gone through memory as that of a format passed's; of weights
// of 4 bits it stays f16.
func RoundColumns(passed, own pipeline.Format, v []float64) {
	half := pipeline.FormatE4M3 // whose input is f16
	if passedInHalf(passed) {
		passed = half
	}
	if inNibbles(own) {
		own = half
	}
	RoundInput(passed, v, true)
	RoundInput(own, v, true)
}

// roundFixed rounds a group to fixed point, in place.
func roundFixed(group []float64) {
	x := make([]float32, len(group))
	for i, v := range group {
		x[i] = float32(v)
	}
	q, unit := i4.Fixed(x)
	for i := range group {
		group[i] = float64(q[i]) * float64(unit)
	}
}

// InputValue is an element of a product's input by its 16 bits in memory.
func InputValue(f pipeline.Format, bits uint16) float64 {
	if passedInHalf(f) {
		return float64(half.F16(bits).Float32()) / inputScale
	}
	return float64(half.BF16(bits).Float32())
}

// nearest rounds to the nearest number of n significant bits whose smallest normal is 2^least,
// ties to even; what is beyond the largest stays.
func nearest(x float64, bits, least int) float64 {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return x
	}
	unit := math.Ldexp(1, max(math.Ilogb(x), least)-bits+1)
	return math.RoundToEven(x/unit) * unit
}

// inputAs is a pair of the input of products of one format's weights as that of another's: the LM
// head's is bf16, and is written with the layers'.
func inputAs(k *dsl.Kernel, from, to pipeline.Format, p pair) pair {
	switch {
	case passedInHalf(from) == passedInHalf(to):
		return p
	case passedInHalf(to):
		lo, hi := dsl.Unpack(p)
		return InputOf(k, to, lo, hi)
	}
	lo, hi := passedValues(k, from, p)
	return InputOf(k, to, lo, hi)
}

// operands are the four pairs of each k group of what a lane has of a tile group: the words of its units.
func operands(f pipeline.Format, words []pair) [][]pair {
	if !inHalf(f) {
		return [][]pair{words}
	}
	var all [][]pair
	for part := range f.Parts() {
		var four []pair
		for _, w := range words[2*part : 2*part+2] {
			wide := Widen(dsl.Bits[dsl.U32](w))
			four = append(four, wide[:]...)
		}
		all = append(all, four)
	}
	return all
}

// productOf is A·B + C of operands of a format.
func productOf(f pipeline.Format, a [4]pair, b [2]pair, c [4]f32) [4]f32 {
	if !inHalf(f) {
		return dsl.MMA(a, b, c)
	}
	return InHalf(a, b, c)
}

// passedValues are two elements of what InputOf has made for a format.
func passedValues(k *dsl.Kernel, f pipeline.Format, p pair) (lo, hi f32) {
	if !passedInHalf(f) {
		return dsl.Unpack(p)
	}
	lo, hi = dsl.Unpack(dsl.Bits[dsl.F16x2](p))
	back := k.F32(1 / inputScale)
	return lo.Mul(back), hi.Mul(back)
}

// RowScales are the scales of a matrix's rows, two at a time from an even row on: weights are the
// packed weights, in which the matrix begins at from, in 16-byte elements. It is nil where the format has none. They
// are returned as they lie in memory: whatever were computed of them here would wait for the load (see scaled).
func RowScales(k *dsl.Kernel, m *pipeline.MatrixPlan, weights dsl.Buf[dsl.B128],
	from dsl.Val[dsl.U64]) func(row u32) []f32 {
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

// scalesAhead loads the scales of the rows, each at a time, that this thread finishes of a batch of n tiles, while the
// batch is multiplied. It returns nil where they come later, since a thread may have more of them, or not at all.
func (g *GEMV) scalesAhead(e *grid.Env, share Share, batch, tiles u32, each int) []*dsl.Var[dsl.F32] {
	if g.Scales == nil || batchTiles*pipeline.TileRows/each > e.Threads() {
		return nil
	}
	k := e.K
	scales := dsl.NewArray(k.F32(0), each, "scale")
	k.If(e.Tid.Lt(tiles.MulC(pipeline.TileRows/each)), func() {
		first := share.First.Add(batch).MulC(pipeline.TileRows).Add(e.Tid.MulC(each))
		for i := 0; i < each; i += 2 {
			for j, v := range g.Scales(first.AddC(i)) {
				scales[i+j].Set(v)
			}
		}
	})
	return scales
}

// scaled are the dot products of rows from row on times their scales.
func (g *GEMV) scaled(k *dsl.Kernel, ahead []*dsl.Var[dsl.F32], row u32, y []f32) (out []f32) {
	for i := 0; i < len(y); i += 2 {
		scales := g.Scales
		if ahead != nil {
			scales = func(u32) []f32 { return []f32{ahead[i].Get(), ahead[i+1].Get()} }
		}
		y0, y1 := scaled(k, g.M.Format, scales, dsl.Optional(row.AddC(i)), y[i], y[i+1])
		out = append(out, y0, y1)
	}
	return out
}

// scaled returns the dot products y0 and y1 of rows row and row+1 of a format's weights times the rows' scales, where
// scales is not nil, and divided by inputScale where the input was multiplied by it. Scales are multiplied nowhere
// before: where they are loaded ahead, a multiplication would wait for the load.
func scaled(k *dsl.Kernel, f pipeline.Format, scales func(row u32) []f32, row u32, y0, y1 f32) (f32, f32) {
	if scales == nil && !inHalf(f) {
		return y0, y1
	}
	if scales == nil { // those of blocks came with the codes
		back := k.F32(1 / inputScale)
		return y0.Mul(back), y1.Mul(back)
	}
	v := scales(row)
	if inHalf(f) {
		back := k.F32(1 / inputScale)
		v = []f32{v[0].Mul(back), v[1].Mul(back)}
	}
	return y0.Mul(v[0]), y1.Mul(v[1])
}

// InHalf is A·B + C of f16.
func InHalf(a [4]pair, b [2]pair, c [4]f32) [4]f32 {
	f16 := func(p pair) dsl.Val[dsl.F16x2] { return dsl.Bits[dsl.F16x2](p) }
	return dsl.MMA([4]dsl.Val[dsl.F16x2]{f16(a[0]), f16(a[1]), f16(a[2]), f16(a[3])},
		[2]dsl.Val[dsl.F16x2]{f16(b[0]), f16(b[1])}, c)
}

// Widen is four e4m3 as two registers of f16.
func Widen(w u32) [2]pair {
	lo, hi := dsl.Halves(w)
	return [2]pair{widenTwo(lo), widenTwo(hi)}
}

// widenTwo is two e4m3 as a register of f16.
func widenTwo(h dsl.Val[dsl.U16]) pair {
	return dsl.Bits[dsl.BF16x2](dsl.Cast[dsl.F16x2](dsl.Bits[dsl.E4M3x2](h)))
}
