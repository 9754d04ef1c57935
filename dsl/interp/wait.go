package interp

import (
	"math"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

type waitKind uint8

const (
	waitNone waitKind = iota
	waitBarrier
	waitMBar
	waitMem
	waitTag
	waitGroup     // the other warps of the warpgroup
	waitRegisters // other warps to give up registers
)

// waiting is what a warp waits for. A wait of several lanes goes on when every
// lane has seen its condition.
type waiting struct {
	kind   waitKind
	in     *inst
	id     int    // barrier
	passed uint32 // lanes that are done
	abort  uint32 // lanes that left because of the abort flag
	since  [32]uint32
	tags   row // that lanes want, of a tagged wait: its results may lie where they were
	begun  bool
}

func condHolds(c ir.Cond, word, want uint32) bool {
	switch c {
	case ir.CondEQ:
		return word == want
	case ir.CondNE:
		return word != want
	}
	return int32(word-want) >= 0
}

// begin starts a wait, or finds it begun.
func (w *warp) begin(kind waitKind, in *inst) *waiting {
	if w.wait.kind != kind || w.wait.in != in || !w.wait.begun {
		w.wait = waiting{kind: kind, in: in, begun: true}
	}
	return &w.wait
}

// settle ends a step of a wait: on, when every active lane is done, or again
// later. poll says that another try may succeed although nothing changes.
func (m *machine) settle(w *warp, in *inst, poll bool) {
	if w.wait.passed&w.mask == w.mask {
		if len(in.r) > 0 && w.wait.kind != waitTag {
			d := &w.regs[in.r[0]]
			for l := range d {
				d[l] = uint64(w.wait.abort >> l & 1)
			}
		}
		w.wait = waiting{}
		return
	}
	w.pc--
	if !poll {
		m.sched.block(w)
	}
}

// stepWaitMem polls a word for every active lane that is not done.
func stepWaitMem(m *machine, w *warp, in *inst) {
	wt := w.begin(waitMem, in)
	want := m.in(w, in.a[0])
	r := &in.mem[0]
	rg := m.region(w, r)
	a := accessorFor(w, in, false)
	poll := false
	for l := range 32 {
		if (w.mask&^wt.passed)>>l&1 == 0 {
			continue
		}
		off, ok := m.locate(w, in, r, rg, l, 1)
		if !ok || !m.readable(w, in, r, rg, l, off, 4) {
			return
		}
		if a.by(l); rg.shadow != nil && !m.touch(rg, off, 4, &a) {
			return
		}
		if v := m.strongRead(rg, off, &a, false); condHolds(in.attr.Cond, uint32(v.lo), uint32(want[l])) {
			wt.passed |= 1 << l
			continue
		}
		poll = poll || condHolds(in.attr.Cond, uint32(rg.load(off, 4).lo), uint32(want[l]))
		m.locAt(rg, off).await(w)
		if m.aborted(w, in, wt, l, &poll); m.fault != nil {
			return
		}
	}
	m.settle(w, in, poll)
}

// stepWaitTag polls 128 bits for every active lane that was not given them with the
// tag it wants, nor has read them so. A lane's result is what it has read last.
func stepWaitTag(m *machine, w *warp, in *inst) {
	begun := w.wait.kind == waitTag && w.wait.in == in && w.wait.begun
	wt := w.begin(waitTag, in)
	want := m.in(w, in.a[0])
	lo, hi := &w.regs[in.r[0]], &w.regs[in.r[0]+1]
	tagged := func(l int) bool { return hi[l]>>32 == want[l]&math.MaxUint32 }
	if !begun {
		first, rest := *m.in(w, in.a[1]), *m.in2(w, in.a[1])
		wt.tags = *want
		assign(w.mask, lo, &first)
		assign(w.mask, hi, &rest)
	}
	want = &wt.tags
	r := &in.mem[0]
	rg := m.region(w, r)
	a := accessorFor(w, in, false)
	poll := false
	for l := range 32 {
		if (w.mask&^wt.passed)>>l&1 == 0 {
			continue
		}
		if tagged(l) {
			if wt.passed |= 1 << l; !m.watchTag(w, in, l, want[l]) {
				return
			}
			continue
		}
		off, ok := m.locate(w, in, r, rg, l, 1)
		if !ok || !m.readable(w, in, r, rg, l, off, 16) {
			return
		}
		if a.by(l); rg.shadow != nil && !m.touch(rg, off, 16, &a) {
			return
		}
		v := m.strongRead(rg, off, &a, false)
		if lo[l], hi[l] = v.lo, v.hi; tagged(l) {
			if wt.passed |= 1 << l; !m.watchTag(w, in, l, want[l]) {
				return
			}
			continue
		}
		poll = poll || rg.load(off, 16) != v
		m.locAt(rg, off).await(w)
		if m.aborted(w, in, wt, l, &poll); m.fault != nil {
			return
		}
	}
	m.settle(w, in, poll)
}

// aborted polls the abort flag of a wait, a relaxed read at system scope.
func (m *machine) aborted(w *warp, in *inst, wt *waiting, l int, poll *bool) {
	if len(in.mem) < 2 {
		return
	}
	r := &in.mem[1]
	rg := m.region(w, r)
	off, ok := m.locate(w, in, r, rg, l, 1)
	if !ok || !m.readable(w, in, r, rg, l, off, 4) {
		return
	}
	flag := in.flag
	a := accessorFor(w, flag, false)
	if a.by(l); rg.shadow != nil && !m.touch(rg, off, 4, &a) {
		return
	}
	if m.strongRead(rg, off, &a, false).lo != 0 {
		wt.passed |= 1 << l
		wt.abort |= 1 << l
		m.abandon()
		if l == 0 && len(in.mem) > 2 {
			m.note(w, in)
		}
		return
	}
	*poll = *poll || rg.load(off, 4).lo != 0
	m.locAt(rg, off).await(w)
}

// note writes the warp's note, unless it has one.
func (m *machine) note(w *warp, in *inst) {
	rg, at := m.region(w, &in.mem[2]), int64(w.wi)*4*ir.NoteWords
	if rg.isValid(at, 4) && rg.load(at, 4).lo != 0 {
		return
	}
	own := len(in.a) - 2
	for i, v := range []uint64{uint64(in.attr.N), m.in(w, in.a[own])[0], m.in(w, in.a[own+1])[0],
		uint64(uint32(m.since + m.steps))} {
		rg.store(at+4*int64(i), 4, value{lo: v})
	}
	rg.setValid(at, 4*ir.NoteWords)
}

// await makes w poll again when the location is written.
func (lc *loc) await(w *warp) {
	if !slices.Contains(lc.waiters, w) {
		lc.waiters = append(lc.waiters, w)
	}
}

// stepWaitMBar waits until the phase of the given parity has completed
// (mbarrier.try_wait.parity). It acquires what the arrivals of that phase
// released, and the bulk copies that completed in it.
func stepWaitMBar(m *machine, w *warp, in *inst) {
	wt := w.begin(waitMBar, in)
	parity := m.in(w, in.a[0])
	poll := false
	var group *mbar // lanes that have just seen the same mbarrier's phase
	var lanes uint32
	for l := range 32 {
		if (w.mask&^wt.passed)>>l&1 == 0 {
			continue
		}
		b, comp := m.mbarAt(w, in, &in.mem[0], l)
		if b == nil || !m.ready(w, in, b, l, false) {
			return
		}
		m.usesMBar(w.cta, comp, useRead, b.phase-1)
		if parity[l] > 1 {
			m.fail(w, in, l, MBarrierMisuse, "waits for parity %d of mbarrier %d of %s, want 0 or 1", parity[l], b.index,
				b.buf).at(b.buf, int64(b.index))
			return
		}
		if wt.since[l] == 0 {
			wt.since[l] = b.phase + 1
		}
		if b.phase+1 >= wt.since[l]+2 {
			m.fail(w, in, l, PhaseSkipped, "waits for phase %d of mbarrier %d of %s and has missed it: %d phases are complete",
				wt.since[l]-1, b.index, b.buf, b.phase).
				at(b.buf, int64(b.index)).side("latest arrival", b.lastW, 0, b.lastIn)
			if m.fault != nil {
				return
			}
			wt.passed |= 1 << l // the launch is void, and on a GPU the parity decides
			continue
		}
		if uint64(b.phase&1) != parity[l] {
			wt.passed |= 1 << l
			if group != b {
				m.sawPhase(w, group, lanes)
				group, lanes = b, 0
			}
			lanes |= 1 << l
			continue
		}
		if !slices.Contains(b.waiters, w) {
			b.waiters = append(b.waiters, w)
		}
		if m.aborted(w, in, wt, l, &poll); m.fault != nil {
			return
		}
	}
	m.sawPhase(w, group, lanes)
	m.settle(w, in, poll)
}

// sawPhase notes that the lanes of mask have passed a wait for b's last completed phase, which they acquire. Of a phase
// before the first there is nothing to acquire.
func (m *machine) sawPhase(w *warp, b *mbar, mask uint32) {
	if b == nil {
		return
	}
	b.waited = b.phase
	if !m.o.races() {
		return
	}
	b.seen = append(b.seen, waiterMark{comp: w.comp, ep: w.clk.epoch, mask: mask, pc: w.wait.in.pc})
	if w.clk.apart = true; b.phase > 0 {
		w.clk.learn(mask, b.done)
	}
}
