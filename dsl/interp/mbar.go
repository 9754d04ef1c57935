package interp

import "github.com/mkgen/mkgen/dsl/ir"

// maxCount bounds an mbarrier's arrival and transaction counts (PTX: contents of
// the mbarrier object).
const maxCount = 1<<20 - 1

// mbar is one mbarrier of one CTA.
type mbar struct {
	buf     *ir.Buf
	index   int
	count   int64 // arrivals a phase; 0: not initialised
	pending int64
	tx      int64 // transaction bytes expected and not yet complete
	total   int64
	phase   uint32 // completed phases
	acc     stamp  // of the arrivals of the phase in progress, and how far lanes had come that issued its copies
	done    stamp  // of the last completed phase: what its waiters acquire
	init    record // who initialised it
	fence   record // the initialising lane's fence.mbarrier_init
	copied  uint32 // 1 + the last phase a bulk copy completed in
	waited  uint32 // 1 + the last phase that somebody waited for
	seen    []waiterMark
	lastIn  *inst // the latest arrival, for reports
	lastW   *warp
	waiters []*warp
}

// waiterMark is a wait that saw the last completed phase.
type waiterMark struct {
	comp int32
	ep   uint32
	mask uint32
	pc   int32
}

func (b *mbar) name(buf *ir.Buf, index int) { b.buf, b.index = buf, index }

// mbarAt is lane l's mbarrier, after the checks of bounds and of initialisation.
func (m *machine) mbarAt(w *warp, in *inst, r *memRef, l int) (*mbar, int32) {
	return m.mbarIn(w.cta, w, in, r, l)
}

// mbarIn is mbarAt of the same place in another CTA of the cluster.
func (m *machine) mbarIn(c *cta, w *warp, in *inst, r *memRef, l int) (*mbar, int32) {
	i := m.index(w, r, l)
	if i < 0 || i >= r.length {
		m.fail(w, in, l, OutOfBounds, "mbarrier %s of %s, which has %d", m.shownIndex(w, r, l), r.buf, r.length).at(r.buf, i)
		return nil, 0
	}
	n := m.p.roots[r.root].mbar0 + int32(i)
	return &c.mbars[n], int32(len(c.warps)) + n
}

// ready checks that b is initialised and that the initialisation happens before
// lane l's use; async asks for its visibility to the async proxy too.
func (m *machine) ready(w *warp, in *inst, b *mbar, l int, async bool) bool {
	if b.count == 0 {
		m.fail(w, in, l, MBarrierMisuse, "mbarrier %d of %s is used before it is initialised", b.index, b.buf).at(b.buf,
			int64(b.index))
		return false
	}
	if !m.o.races() {
		return true
	}
	if !m.before(b.init, w, uint8(l)) {
		m.fail(w, in, l, DataRace, "the initialisation of mbarrier %d of %s is not ordered before this use", b.index, b.buf).
			at(b.buf, int64(b.index)).record(m, "initialised", b.init)
		return false
	}
	if !async || b.fence != 0 && m.before(b.fence, w, uint8(l)) {
		return true
	}
	cta, wi := m.splitComp(b.init.comp())
	if !w.clk.of(uint8(l)).sh.knows(cta, wi, b.init.lane(), b.init.epoch()) {
		m.fail(w, in, l, ProxyRace,
			"the initialisation of mbarrier %d of %s is not visible to the async proxy: fence.mbarrier_init is missing behind it", b.index, b.buf).
			at(b.buf, int64(b.index)).record(m, "initialised", b.init)
		return false
	}
	return true
}

func stepMBarInit(m *machine, w *warp, in *inst) {
	a := m.in(w, in.a[0])
	for l := range 32 {
		if w.mask>>l&1 == 0 {
			continue
		}
		b, comp := m.mbarAt(w, in, &in.mem[0], l)
		if b == nil {
			return
		}
		n := int64(a[l])
		switch {
		case b.count != 0:
			m.fail(w, in, l, MBarrierMisuse, "mbarrier %d of %s is initialised a second time", b.index, b.buf).
				at(b.buf, int64(b.index)).record(m, "initialised first", b.init)
			return
		case n < 1 || n > maxCount:
			m.fail(w, in, l, MBarrierMisuse, "mbarrier %d of %s is given a count of %d, want 1 to %d", b.index, b.buf, n,
				maxCount).at(b.buf, int64(b.index))
			return
		}
		m.usesMBar(w.cta, comp, useWrite, b.phase)
		b.count, b.pending = n, n
		b.init = pack(w.comp, w.clk.epoch, uint8(l), in.pc)
	}
}

func stepMBarArrive(m *machine, w *warp, in *inst) { m.arriveLanes(w, in, arrival{}) }

func stepMBarArriveN(m *machine, w *warp, in *inst) {
	m.arriveLanes(w, in, arrival{times: m.in(w, in.a[0])})
}

func stepMBarExpect(m *machine, w *warp, in *inst) {
	m.arriveLanes(w, in, arrival{bytes: m.in(w, in.a[0])})
}

// arrival says how lanes arrive: how often, if not once, after raising the expected transaction bytes by
// how many, and in which CTA of the cluster, if not in their own.
type arrival struct{ times, bytes, rank *row }

// arriveLanes arrives for every active lane. All 32 lanes arriving on one mbarrier release as one.
func (m *machine) arriveLanes(w *warp, in *inst, how arrival) {
	together := w.mask == fullMask && how.rank == nil && m.sameMBar(w, in)
	var st stamp
	if together && m.o.races() {
		st = m.released(w, anyLane)
	}
	for l := range 32 {
		if w.mask>>l&1 == 0 {
			continue
		}
		c := w.cta
		if how.rank != nil {
			if c = m.peer(w, in, l, int64(how.rank[l])); c == nil {
				return
			}
		}
		b, comp := m.mbarIn(c, w, in, &in.mem[0], l)
		if b == nil || !m.ready(w, in, b, l, false) {
			return
		}
		m.usesMBar(c, comp, useAdd, b.phase)
		times := int64(1)
		if how.times != nil {
			times = int64(how.times[l])
		}
		if !m.mayArrive(w, in, b, l, times) {
			if m.fault != nil {
				return
			}
			times = min(max(times, 0), b.pending) // the launch is void
		}
		if how.bytes != nil {
			if b.tx += int64(how.bytes[l]); b.tx > maxCount {
				m.fail(w, in, l, TxOverflow, "mbarrier %d of %s expects %d bytes in one phase, at most %d are possible", b.index,
					b.buf, b.tx, maxCount).at(b.buf, int64(b.index))
				return
			}
		}
		if m.o.races() {
			if !together {
				st = m.released(w, uint8(l))
			}
			if c != w.cta {
				st.gl, st.came = nil, nil // see message.seenFrom
			}
			b.acc = b.acc.join(st)
		}
		b.pending -= times
		b.lastIn, b.lastW = in, w
		m.advance(c, b, comp)
	}
	if m.o.races() {
		m.tick(w)
	}
}

func (m *machine) sameMBar(w *warp, in *inst) bool {
	r := &in.mem[0]
	if r.none || r.index < 0 {
		return true
	}
	x := m.in(w, r.index)
	for l := 1; l < 32; l++ {
		if x[l] != x[0] {
			return false
		}
	}
	return true
}

// mayArrive checks PTX's rule for phases: before an arrive-on operation in a
// phase, a wait must have seen the phase before complete. It must happen before
// the arrival, or another schedule would break the rule.
func (m *machine) mayArrive(w *warp, in *inst, b *mbar, l int, times int64) bool {
	if times < 1 || times > maxCount {
		m.fail(w, in, l, MBarrierMisuse, "arrives %d times on mbarrier %d of %s, want 1 to %d", times, b.index, b.buf,
			maxCount).at(b.buf, int64(b.index))
		return false
	}
	if times > b.pending {
		m.fail(w, in, l, ArrivalOverflow,
			"mbarrier %d of %s has had %d of the %d arrivals of phase %d (%d bytes are outstanding), %d more are too many",
			b.index, b.buf, b.count-b.pending, b.count, b.phase, b.tx, times).
			at(b.buf, int64(b.index)).side("latest arrival before", b.lastW, 0, b.lastIn)
		return false
	}
	if b.phase == 0 || !m.o.races() {
		return true
	}
	if b.waited < b.phase {
		m.fail(w, in, l, PhaseSkipped, "arrives in phase %d of mbarrier %d of %s, but nobody has waited for phase %d",
			b.phase, b.index, b.buf, b.phase-1).
			at(b.buf, int64(b.index)).side("latest arrival before", b.lastW, 0, b.lastIn)
		return false
	}
	if in.op == ir.OpMBarArriveAt {
		return true // what orders the two is a copy that the waiter has issued: no release, but it cannot come before
	}
	for _, s := range b.seen {
		if m.markBefore(s, w, uint8(l)) {
			return true
		}
	}
	m.fail(w, in, l, PhaseSkipped,
		"arrives in phase %d of mbarrier %d of %s, but no wait for phase %d happens before it: an arrival too many, or a wait missing", b.phase, b.index, b.buf, b.phase-1).
		at(b.buf, int64(b.index)).side("latest arrival before", b.lastW, 0, b.lastIn)
	return false
}

func (m *machine) markBefore(s waiterMark, w *warp, lane uint8) bool {
	if s.comp == w.comp && (s.mask>>lane&1 != 0 || s.ep < w.clk.sync) {
		return true
	}
	cta, wi := m.splitComp(s.comp)
	hb := w.clk.of(lane).hb
	if hb == nil || hb.subs[cta] == nil {
		return false
	}
	for l := uint8(0); l < 32; l++ {
		if s.mask>>l&1 != 0 && hb.knows(cta, wi, l, s.ep) {
			return true
		}
	}
	return false
}

// advance completes the phase when nothing is pending: no arrivals and no bytes.
func (m *machine) advance(c *cta, b *mbar, comp int32) {
	if b.pending != 0 || b.tx != 0 {
		return
	}
	for _, f := range m.flight {
		if f.bar == b {
			m.fail(f.w, f.in, int(f.lane), TxMismatch,
				"phase %d of mbarrier %d of %s completes while this copy of %d bytes, which signals it, is in flight: fewer bytes are expected than copied", b.phase, b.index, b.buf, f.n).
				at(b.buf, int64(b.index)).side("latest arrival", b.lastW, 0, b.lastIn)
			return
		}
	}
	if m.o.races() && !m.allSaw(b) {
		return
	}
	b.done, b.acc = b.acc, stamp{}
	b.phase++
	if m.o.races() {
		b.done.hb = b.done.hb.raised(m.parts, m.comps, c.id, comp, 0, anyLane, b.phase)
	}
	b.pending = b.count
	b.seen = b.seen[:0]
	for _, w := range b.waiters {
		m.sched.again(w)
	}
	b.waiters = b.waiters[:0]
}

// stepMBarTest says whether the phase of a parity has completed, as far as the lane
// sees now (mbarrier.test_wait.parity, of whose acquire nothing is made).
func stepMBarTest(m *machine, w *warp, in *inst) {
	parity, d := *m.in(w, in.a[0]), &w.regs[in.r[0]]
	for l := range 32 {
		if w.mask>>l&1 == 0 {
			continue
		}
		b, comp := m.mbarAt(w, in, &in.mem[0], l)
		if b == nil || !m.ready(w, in, b, l, false) {
			return
		}
		m.usesMBar(w.cta, comp, useRead, b.phase) // whatever it sees
		if parity[l] > 1 {
			m.fail(w, in, l, MBarrierMisuse, "asks for parity %d of mbarrier %d of %s, want 0 or 1", parity[l], b.index,
				b.buf).at(b.buf, int64(b.index))
			return
		}
		d[l] = uint64(b.phase&1) ^ parity[l]
	}
}
