package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/grid"
)

// stageVector turns a vector of n elements, a multiple of 4, into fixed point, of which from has 2^−shift: use says of
// which elements, as begin of Source does. A warp's lanes have a group; of one that is not whole the others
// are zeros.
func (f *FixedInput) stageVector(e *grid.Env, from Source, n, shift int, use func(i u32) func(x []f32) [4]f32) {
	k, whole := e.K, n/i4.Columns*i4.Columns
	e.WholeWarps = true
	e.WithOrder(f.Order, func() {
		from.elements(e, whole, func(i u32) func(x []f32) {
			made := use(i)
			return func(x []f32) { f.Stage(e, e.GroupOf(i), made(x), shift) }
		})
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
		f.Stage(e, k.U32(group), [4]f32{x[0].Get(), x[1].Get(), x[2].Get(), x[3].Get()}, shift)
	})
}

// passed returns a vector that went through memory on its way to products of weights of integers: inputScale of it, in
// f16 (InputOf).
func (t *PlainInput) passed(e *grid.Env) Source {
	if t.Packets != nil {
		return packetSource{t.Packets, func(packet dsl.Val[dsl.B128]) []f32 {
			pairs := pairsOf(packet)
			return halves(pairs[:])
		}}
	}
	return pairsInMemory{dsl.View[dsl.U32](t.X), t.from(e)}
}

// halves returns what pairs of f16 hold.
func halves(pairs []u32) (x []f32) {
	for _, p := range pairs {
		lo, hi := dsl.Unpack(dsl.Bits[dsl.F16x2](p))
		x = append(x, lo, hi)
	}
	return x
}

// pairsInMemory is a vector of pairs of f16 in global memory, from pair from on.
type pairsInMemory struct {
	pairs dsl.Buf[dsl.U32]
	from  u32
}

// mostLoaded is how many times four elements a thread has loaded at most when it comes to the first: all of 8B's
// longest vector, half of 70B's, with 8 warps.
const mostLoaded = 14

// elements loads ahead, at constant distances from one address. Where a thread loaded four elements and went on with
// them before it loaded the next, ptxas would have few loads under way.
func (v pairsInMemory) elements(e *grid.Env, n int, begin func(i u32) func(x []f32)) {
	e.EachOf(n/4, mostLoaded, func(is []u32, behind []int, mine func(int, func())) {
		first := v.at(is[0])
		var loaded [][]u32
		for j, i := range is {
			at := v.at(i)
			if j < len(behind) {
				at = first.AddC(2 * behind[j])
			}
			loaded = append(loaded, v.pairs.LoadN(at, 2))
		}
		for j, i := range is {
			mine(j, func() { begin(i)(halves(loaded[j])) })
		}
	})
}

// at returns the index of elements 4i to 4i + 3.
func (v pairsInMemory) at(i u32) dsl.Val[dsl.U64] {
	return dsl.Optional(dsl.Cast[dsl.U64](v.from.Add(i.MulC(2))))
}

func (v pairsInMemory) four(_ *grid.Env, i u32) []f32 { return halves(v.pairs.LoadN(v.at(i), 2)) }

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
