package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/grid"
)

// stageVector turns a vector of n elements, a multiple of 4, into fixed point: use says of
// which elements, as begin of Source does. A warp's lanes have a group; of one that is not whole the others
// are zeros.
func (f *FixedInput) stageVector(e *grid.Env, from Source, n int, use func(i u32) func(x []f32) [4]f32) {
	k, whole := e.K, n/i4.Columns*i4.Columns
	e.WholeWarps = true
	from.elements(e, whole, func(i u32) func(x []f32) {
		made := use(i)
		return func(x []f32) { f.Stage(e, i.DivC(dsl.WarpSize), made(x)) }
	})
	e.WholeWarps = false
	if whole == n {
		return
	}
	group := whole / i4.Columns
	k.If(e.Warp.EqC(group%e.Consumers), func() {
		x := dsl.NewArray(k.F32(0), 4, "x")
		k.If(e.Lane.LtC((n-whole)/4), func() {
			i := e.Lane.AddC(whole / 4)
			made := use(i)
			for j, v := range made(from.four(e, i)) {
				x[j].Set(v)
			}
		})
		f.Stage(e, k.U32(group), [4]f32{x[0].Get(), x[1].Get(), x[2].Get(), x[3].Get()})
	})
}

// passed is a vector that went through memory on its way to products of a format's weights (InputOf).
func (t *PlainInput) passed(e *grid.Env) Source {
	values := func(words []u32) (x []f32) {
		for _, w := range words {
			lo, hi := passedValues(e.K, t.Format, dsl.Bits[dsl.BF16x2](w))
			x = append(x, lo, hi)
		}
		return x
	}
	if t.Packets != nil {
		return pairPackets{t.Packets, values}
	}
	words, from := dsl.View[dsl.U32](t.X), t.from(e)
	return Vector(func(at u32, n int) []f32 { return values(words.LoadN(from.Add(at.DivC(2)), n/2)) })
}

// pairPackets is a vector of pairs of 16 bits each that came in LL packets.
type pairPackets struct {
	*VectorPackets
	values func(pairs []u32) []f32
}

func (h pairPackets) elements(e *grid.Env, n int, begin func(i u32) func(x []f32)) {
	h.each(e, n/4, func(i u32) func([]dsl.Val[dsl.B128]) {
		use := begin(i)
		return func(words []dsl.Val[dsl.B128]) { use(h.values([]u32{Single(words[0]), Single(words[1])})) }
	})
}

func (h pairPackets) four(e *grid.Env, i u32) []f32 {
	words := h.fours(e, i)
	return h.values([]u32{Single(words[0]), Single(words[1])})
}

// CopyFours stores a vector's elements 4i to 4i + 3 to global memory, whose element at, an even number, is the vector's
// first, in the type in which a format's input goes through memory. One CTA does.
func CopyFours(e *grid.Env, format pipeline.Format, to dsl.Buf[dsl.BF16], at u32) func(i u32, x []f32) {
	out := dsl.View[dsl.BF16x2](to)
	return func(i u32, x []f32) {
		e.K.If(e.CTA.EqC(0), func() {
			first := at.DivC(2).Add(i.MulC(2))
			out.Store(first, InputOf(e.K, format, x[0], x[1]))
			out.Store(first.AddC(1), InputOf(e.K, format, x[2], x[3]))
		})
	}
}
