package interp

import (
	"math"
	"math/bits"

	"github.com/mkgen/mkgen/dsl/ir"
)

func widen(t ir.Type, bits uint64) int64 {
	if t == ir.I32 {
		return int64(int32(bits))
	}
	return int64(uint32(bits))
}

// loopEnd is the largest value of a loop counter.
func loopEnd(t ir.Type) int64 {
	if t == ir.I32 {
		return math.MaxInt32
	}
	return math.MaxUint32
}

// stepForBegin starts a loop in the lanes whose range is not empty.
func stepForBegin(m *machine, w *warp, in *inst) {
	lo, hi, i := m.in(w, in.a[0]), m.in(w, in.a[1]), &w.regs[in.r[0]]
	var on uint32
	for l := range 32 {
		if w.mask>>l&1 != 0 {
			i[l] = lo[l]
			if widen(in.t, lo[l]) < widen(in.t, hi[l]) {
				on |= 1 << l
			}
		}
	}
	if on == 0 {
		w.pc = in.target
		return
	}
	w.frames = append(w.frames, frame{mask: w.mask, iter: 1})
	w.mask = on
}

// stepForNext begins the next iteration in the lanes that have one. A counter
// that would pass its type's end and then go on is a fault: a u32 wraps and the
// loop runs for ever, and C++ leaves open what an i32 does.
func stepForNext(m *machine, w *warp, in *inst) {
	i, hi := &w.regs[in.r[0]], m.in(w, in.a[1])
	var on uint32
	for l := range 32 {
		if w.mask>>l&1 != 0 {
			next := widen(in.t, i[l]) + in.step
			if next < widen(in.t, hi[l]) {
				i[l] = uint64(uint32(next))
				on |= 1 << l
			} else if next > loopEnd(in.t) && (in.t == ir.I32 || int64(uint32(next)) < widen(in.t, hi[l])) {
				m.fail(w, in, l, LoopOverflow,
					"the counter is %d and steps by %d, the bound is %d: the counter wraps before it gets there", widen(in.t, i[l]),
					in.step, widen(in.t, hi[l]))
				return
			}
		}
	}
	top := len(w.frames) - 1
	if on == 0 {
		w.mask = w.frames[top].mask
		w.frames = w.frames[:top]
		return
	}
	w.frames[top].iter++
	w.mask = on
	w.pc = in.target
}

func stepIf(m *machine, w *warp, in *inst) {
	c := m.in(w, in.a[0])
	var on uint32
	for l := range 32 {
		on |= uint32(c[l]&1) << l
	}
	on &= w.mask
	w.frames = append(w.frames, frame{mask: w.mask, rest: w.mask &^ on})
	w.mask = on
	if on == 0 {
		w.pc = in.target // the else node, which has lanes to run
	}
}

func stepElse(m *machine, w *warp, in *inst) {
	w.mask = w.frames[len(w.frames)-1].rest
	if w.mask == 0 {
		w.pc = in.target
	}
}

func stepEndIf(m *machine, w *warp, in *inst) {
	top := len(w.frames) - 1
	w.mask = w.frames[top].mask
	w.frames = w.frames[:top]
}

func stepRole(m *machine, w *warp, in *inst) {
	first, end := int32(in.imm>>32), int32(uint32(in.imm))
	if w.wi < first || w.wi >= end {
		w.pc = in.target
	}
}

func stepExit(m *machine, w *warp, in *inst) {
	if m.ex != nil {
		m.ex.use(objEnd, useRead, w.cta.id, 0, 0, 0)
	}
	w.state = exited
	w.cta.live--
	m.live--
	m.sched.stop(w)
	m.leaveGroup(w, in)
	m.leaveCopies(w, in)
	if w.cta.live == 0 {
		m.checkExit(w, in)
	}
}

// firstLane is the lowest lane in mask.
func firstLane(mask uint32) int { return bits.TrailingZeros32(mask) }
