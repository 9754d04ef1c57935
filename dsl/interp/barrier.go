package interp

// barrier is one of a CTA's 16 hardware barriers; bar.cta uses number 0.
type barrier struct {
	threads int // of the generation in progress; 0: none
	arrived int
	gen     int64 // generations before
	st      stamp
	own     []stamp // a cluster's: what counts in one of its CTAs only, gl and came
	waiting []*warp
	first   *inst // who opened the generation
	opener  *warp
}

func stepBarCTA(m *machine, w *warp, in *inst) {
	m.arriveBarrier(w, in, 0, 32*len(w.cta.warps), true)
}

func stepBarSync(m *machine, w *warp, in *inst) {
	m.arriveBarrier(w, in, int(in.attr.Imm), in.attr.N, true)
}

func stepBarArrive(m *machine, w *warp, in *inst) {
	m.arriveBarrier(w, in, int(in.attr.Imm), in.attr.N, false)
}

// arriveBarrier counts a warp's 32 threads. bar.sync and bar.arrive synchronise
// with every bar.sync of the same generation; a waiting warp's lanes are ordered
// among themselves as well.
func (m *machine) arriveBarrier(w *warp, in *inst, id, threads int, wait bool) {
	m.meet(w, in, &w.cta.bars[id], id, threads, wait)
}

// clusterBarrier is the id of the one barrier that a cluster has.
const clusterBarrier = -1

// meet counts a warp's 32 threads in at a barrier.
func (m *machine) meet(w *warp, in *inst, b *barrier, id, threads int, wait bool) {
	if !m.whole(w, in) {
		return
	}
	if b.arrived == 0 {
		b.threads, b.first, b.opener = threads, in, w
	}
	if b.threads != threads {
		m.fail(w, in, 0, BarrierCount, "barrier %d is used with %d threads, and in the same generation with %d", id, threads,
			b.threads).
			side("opened with the other count", b.opener, 0, b.first)
		return
	}
	if m.o.races() {
		st := m.released(w, anyLane)
		if id == clusterBarrier {
			if b.own == nil {
				b.own = make([]stamp, m.clusterSize())
			}
			own := &b.own[w.cta.id%m.clusterSize()]
			*own = own.join(stamp{gl: st.gl, came: st.came})
			st.gl, st.came = nil, nil
		}
		b.st = b.st.join(st)
		m.tick(w)
	}
	if m.ex != nil {
		m.ex.meets(w, b, id, wait)
	}
	b.arrived += 32
	full := b.arrived == threads
	if wait && !full {
		b.waiting = append(b.waiting, w)
		w.wait = waiting{kind: waitBarrier, in: in, id: id}
		m.sched.block(w)
		return
	}
	if !full {
		return
	}
	for _, other := range b.waiting {
		other.wait = waiting{}
		m.leaveBarrier(other, b)
		m.sched.wake(other)
	}
	if wait {
		m.leaveBarrier(w, b)
	}
	*b = barrier{waiting: b.waiting[:0], gen: b.gen + 1}
}

func (m *machine) leaveBarrier(w *warp, b *barrier) {
	if m.o.races() {
		s := b.st
		if b.own != nil {
			own := b.own[w.cta.id%m.clusterSize()]
			s.gl, s.came = own.gl, own.came
		}
		w.clk.converge()
		w.clk.learn(fullMask, s)
	}
}
