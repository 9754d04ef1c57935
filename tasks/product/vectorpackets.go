package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
)

// VectorPackets is a vector that all SMs pass to all in LL packets, four elements in each: a reader waits for its
// packets as they come, and for no barrier. Of a residual vector they are f32 of 24 bits, rounded to nearest, half away
// from zero: 16 significant bits, 256 times as fine as bf16. Of a product's input they are two pairs as InputOf makes
// them.
type VectorPackets struct {
	LL   *grid.LL
	Buf  dsl.Buf[dsl.B128] // [N/4]: packet i has elements 4i to 4i + 3
	N    int               // a multiple of 4
	What string            // that is waited for, with %d for the packet
}

func (h *VectorPackets) store(i u32, w [3]u32) {
	h.Buf.Store(i, dsl.Join(w[0], w[1], w[2], h.LL.Flag()), dsl.Relaxed(dsl.GPUScope))
}

// StorePairs writes elements 4i to 4i + 3 of a product's input.
func (h *VectorPackets) StorePairs(e *grid.Env, i u32, first, second pair) {
	h.store(i, [3]u32{dsl.Bits[dsl.U32](first), dsl.Bits[dsl.U32](second), e.K.U32(0)})
}

// ResidualError bounds the relative rounding error of a residual vector's element in a packet; subnormal numbers
// excepted.
const ResidualError = 0x1p-16

// pairsOf are those of a packet, whose third word is 0. It is used all the same: of a load of which nobody uses a part
// ptxas makes two, and then the flag may come with data from before.
func pairsOf(v dsl.Val[dsl.B128]) [2]u32 {
	w := dsl.Split(v)
	return [2]u32{w[0], w[1].Or(w[2])}
}

// upperBytes are those of an element of a residual vector. Word j of a packet has element j's, and in its lowest byte
// byte j + 1 of element 3.
const upperBytes = 0xffffff00

// rounded returns an element whose upper bytes count. Infinities stay, and the NaN that arithmetic makes; one whose
// payload is in its lowest byte alone becomes infinite.
func rounded(x f32) u32 {
	bits := dsl.Bits[dsl.U32](x)
	return dsl.Select(bits.AndC(0x7fffffff).LtC(0x7f800000), bits.AddC(0x80), bits).Named("rounded")
}

// StoreFour writes elements 4i to 4i + 3 of a residual vector. Each of also gets them as they are passed.
func (h *VectorPackets) StoreFour(e *grid.Env, i u32, x []f32, also ...Keep) {
	e.K.Note("four elements of 24 bits in a packet, rounded to nearest: the fourth's bytes are the lowest of the words")
	var r [4]u32
	for j, v := range x {
		r[j] = rounded(v)
	}
	h.store(i, [3]u32{dsl.Permute(r[0], r[3], 0x3215), dsl.Permute(r[1], r[3], 0x3216),
		dsl.Permute(r[2], r[3], 0x3217)})
	for _, keep := range also {
		var out []f32
		for _, v := range r {
			out = append(out, dsl.Bits[dsl.F32](v.AndC(upperBytes)))
		}
		keep(i.MulC(4), out)
	}
}

// fourOf are a packet's elements of a residual vector.
func fourOf(v dsl.Val[dsl.B128]) (x []f32) {
	w := dsl.Split(v)
	last := dsl.Permute(dsl.Permute(w[0], w[1], 0x0400), w[2], 0x4210).Named("fourth")
	for _, bits := range []u32{w[0], w[1], w[2], last} {
		x = append(x, dsl.Bits[dsl.F32](bits.AndC(upperBytes)))
	}
	return x
}

// Single is the first part of a packet whose second and third are 0, and are used as pairsOf says.
func Single(v dsl.Val[dsl.B128]) u32 {
	w := dsl.Split(v)
	return w[0].Or(w[1].Or(w[2]))
}

// polled is how many packets a thread polls at once: a packet is four registers.
const polled = 8

// each calls begin in the consumer threads for the first n packets, i = Tid, Tid + Threads, …, and what that returns
// with the packet when it has come.
func (h *VectorPackets) each(e *grid.Env, n int, begin func(i u32) func(packet dsl.Val[dsl.B128])) {
	e.EachOf(n, polled, func(at []u32, _ []int, mine func(int, func())) {
		var use []func(dsl.Val[dsl.B128])
		for _, i := range at {
			use = append(use, begin(i))
		}
		packets := h.LL.All(e, h.Buf, at, h.What)
		for n := range at {
			mine(n, func() { use[n](packets[n]) })
		}
	})
}

// packetSource is a Source of elements that of makes of a packet.
type packetSource struct {
	*VectorPackets
	of func(packet dsl.Val[dsl.B128]) []f32
}

func (h packetSource) elements(e *grid.Env, n int, begin func(i u32) func(x []f32)) {
	if n%4 != 0 || h.N < n {
		e.K.Require(false, "vector packets: %d elements, want %d or more, a multiple of 4", h.N, n)
		return
	}
	h.each(e, n/4, func(i u32) func(dsl.Val[dsl.B128]) {
		use := begin(i)
		return func(packet dsl.Val[dsl.B128]) { use(h.of(packet)) }
	})
}

func (h packetSource) four(e *grid.Env, i u32) []f32 { return h.of(h.LL.Load(e, h.Buf, i, h.What)) }

// Residual is the vector, a residual vector, for all consumers.
func (h *VectorPackets) Residual() Source { return packetSource{h, fourOf} }

// Vector is a residual vector of which a few elements are waited for each time they are read.
func (h *VectorPackets) Vector(e *grid.Env) Vector {
	return func(at u32) []f32 { return packetSource{h, fourOf}.four(e, at.DivC(4)) }
}

// HandResidual is AddResidual whose sums are passed in LL packets. Each of also gets them as they are passed.
func HandResidual(e *grid.Env, x *VectorPackets, old Vector, also ...Keep) FourRows {
	return func(row u32, y []f32) { x.StoreFour(e, row.DivC(4), added(old(row), y), also...) }
}
