package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
)

// VectorPackets is a vector that all SMs pass to all in LL packets, a pair of elements in
// each: a reader waits for its packets as they come, and for no barrier.
type VectorPackets struct {
	LL    *grid.LL
	Buf   dsl.Buf[dsl.B128] // [Planes][Pairs/Planes]: pair i is packet i / Planes of plane i mod Planes
	Pairs int               // a multiple of Planes
	// Planes is how many neighbouring pairs a thread takes when all consumers read the
	// vector, 2 or 4; so a warp's loads of one of them are one stretch.
	Planes int
	What   string // that is waited for, with %d for the packet
}

// Payload is a packet's first two words: two f32 of the residual vector, or a pair of bf16 and 0.
type Payload [2]u32

func (h *VectorPackets) at(i u32) u32 {
	return i.RemC(h.Planes).MulC(h.Pairs / h.Planes).Add(i.DivC(h.Planes))
}

// Store writes pair i.
func (h *VectorPackets) Store(e *grid.Env, i u32, p Payload) {
	h.Buf.Store(h.at(i), dsl.Join(p[0], p[1], e.K.U32(0), h.LL.Flag()), dsl.Relaxed(dsl.GPUScope))
}

// Keep writes a residual vector's sums, of rows row and row + 1 at a time.
func (h *VectorPackets) Keep(e *grid.Env) func(row u32, sum []f32) {
	return func(row u32, sum []f32) {
		bits := dsl.Bits[dsl.U32, dsl.F32]
		h.Store(e, row.DivC(2), Payload{bits(sum[0]), bits(sum[1])})
	}
}

// Vector waits for elements one pair after another, each time they are read: for a few.
func (h *VectorPackets) Vector(e *grid.Env) Vector {
	return func(at u32, n int) (out []f32) {
		for i := range n / 2 {
			out = append(out, floats(h.LL.Load(e, h.Buf, h.at(at.DivC(2).AddC(i)), h.What))...)
		}
		return out
	}
}

// floats are the elements of a packet of f32, whose third part is 0.
func floats(v dsl.Val[dsl.B128]) []f32 {
	w := dsl.Split(v)
	return []f32{dsl.Bits[dsl.F32](w[0].Or(w[2])), dsl.Bits[dsl.F32](w[1])}
}

// Single is the first part of a packet whose second and third are 0.
//
// Like floats it uses them all the same: of a load whose middle nobody uses ptxas makes
// two, and then the flag may come with data from before.
func Single(v dsl.Val[dsl.B128]) u32 {
	w := dsl.Split(v)
	return w[0].Or(w[1].Or(w[2]))
}

// polled is how many packets a thread polls at once: a packet is four registers.
const polled = 8

// each calls begin in the consumer threads for the first n groups of Planes pairs, i = Tid,
// Tid + Threads, …, and what that returns with their packets when they have come.
func (h *VectorPackets) each(e *grid.Env, n int, begin func(i u32) func(packets []dsl.Val[dsl.B128])) {
	e.EachOf(n, polled/h.Planes, func(groups []u32, _ []int, mine func(int, func())) {
		var at []u32
		var use []func([]dsl.Val[dsl.B128])
		for _, i := range groups {
			use = append(use, begin(i))
			for p := range h.Planes {
				at = append(at, i.AddC(p*(h.Pairs/h.Planes)))
			}
		}
		packets := h.LL.All(e, h.Buf, at, h.What)
		for n := range groups {
			mine(n, func() { use[n](packets[n*h.Planes:][:h.Planes]) })
		}
	})
}

// elements makes it a Source of f32.
func (h *VectorPackets) elements(e *grid.Env, n int, begin func(i u32) func(x []f32)) {
	if h.Planes != 2 || n%4 != 0 || 2*h.Pairs < n {
		e.K.Require(false, "vector packets: %d pairs in %d planes, want 2 of %d elements", h.Pairs, h.Planes, n)
		return
	}
	h.each(e, n/4, func(i u32) func([]dsl.Val[dsl.B128]) {
		use := begin(i)
		return func(packets []dsl.Val[dsl.B128]) { use(append(floats(packets[0]), floats(packets[1])...)) }
	})
}

// fours are the packets of elements 4i to 4i + 3, of 2 planes.
func (h *VectorPackets) fours(e *grid.Env, i u32) []dsl.Val[dsl.B128] {
	return h.LL.All(e, h.Buf, []u32{i, i.AddC(h.Pairs / h.Planes)}, h.What)
}

func (h *VectorPackets) four(e *grid.Env, i u32) []f32 {
	packets := h.fours(e, i)
	return append(floats(packets[0]), floats(packets[1])...)
}
