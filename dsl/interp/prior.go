package interp

// Programmatic dependent launches. Such a launch may start before those before it on the
// same Memory have ended. The executor runs them one after another all the same; what a
// launch that may not have ended has read and written is marked in the next one's shadow
// memory as accesses of one more component, the prior, which a thread knows of once
// griddep.wait has let it go on. An access that comes earlier and conflicts is a data race.
//
// The launch before may run until griddep.wait. Of those before that one all have ended,
// unless it let its dependents start (griddep.launch) before it had waited itself.

// touched says which bytes of a buffer launches have read and written, a bit a byte.
type touched struct{ read, written []uint64 }

// unsettled is what launches that may not have ended have accessed.
type unsettled struct {
	kernel string // of the last of them
	bufs   map[string]*touched
}

func (u *unsettled) of(name string, bytes int) *touched {
	t := u.bufs[name]
	if t == nil {
		t = &touched{make([]uint64, (bytes+63)/64), make([]uint64, (bytes+63)/64)}
		u.bufs[name] = t
	}
	return t
}

func mark(set []uint64, off, n int64) {
	for i := off; i < off+n && i>>6 < int64(len(set)); i++ {
		set[i>>6] |= 1 << (i & 63)
	}
}

func marked(set []uint64, off, n int64) bool {
	for i := off; i < off+n && i>>6 < int64(len(set)); i++ {
		if set[i>>6]>>(i&63)&1 != 0 {
			return true
		}
	}
	return false
}

// priorRecord is what the prior leaves behind.
func (m *machine) priorRecord() record { return pack(m.prior*m.comps, 1, anyLane, 0) }

// isPrior reports whether a record is the prior's.
func (m *machine) isPrior(r record) bool { return m.prior >= 0 && r.comp()/m.comps == m.prior }

// meetPrior marks what the prior has accessed.
func (m *machine) meetPrior(u *unsettled) {
	if m.prior < 0 {
		return
	}
	m.settled = stamp{hb: (*clock)(nil).raised(m.parts, m.comps, m.prior, 0, 1, anyLane, 1)}
	for _, rg := range m.global {
		if rg == nil || rg.shadow == nil {
			continue
		}
		t, g := u.bufs[rg.info.buf.Name], rg.info.gran
		if t == nil {
			continue
		}
		for i := range rg.shadow {
			off := int64(i) << g
			if marked(t.written, off, 1<<g) {
				rg.shadow[i].w = m.priorRecord()
			}
			if marked(t.read, off, 1<<g) {
				rg.shadow[i].r = m.priorRecord()
			}
		}
	}
}

// leave notes in mem what the run, which may still be under way when the next one
// starts, has accessed.
func (m *machine) leave(mem *Memory) {
	before := mem.prior
	mem.prior = nil
	if !m.p.overlaps || !m.o.races() {
		return
	}
	u := &unsettled{bufs: map[string]*touched{}}
	if m.prior >= 0 && m.early {
		u = before
	}
	u.kernel, mem.prior = m.p.kernel.Name, u
	for _, rg := range m.global {
		if rg == nil || rg.shadow == nil {
			continue
		}
		t, g := u.of(rg.info.buf.Name, len(rg.data)), rg.info.gran
		for i := range rg.shadow {
			if c := &rg.shadow[i]; c.w != 0 || c.r != 0 {
				m.keep(rg, c.w, t.written, int64(i)<<g)
				m.keep(rg, c.r, t.read, int64(i)<<g)
			}
		}
	}
}

// keep marks a granule in set if this run has left a record of it.
func (m *machine) keep(rg *region, r record, set []uint64, off int64) {
	var one [1]record
	for _, r := range rg.view(r, &one) {
		if !m.isPrior(r) {
			mark(set, off, 1<<rg.info.gran)
			return
		}
	}
}

// stepGridWait is griddep.wait: the lanes know of all that the prior did. It fences no
// proxy: PTX's text names none.
func stepGridWait(m *machine, w *warp, _ *inst) {
	m.waited = true
	if m.prior >= 0 {
		w.clk.learn(w.mask, m.settled)
	}
}

// stepGridLaunch is griddep.launch, which orders nothing.
func stepGridLaunch(m *machine, w *warp, _ *inst) {
	if m.prior < 0 {
		return
	}
	for l := uint8(0); l < 32; l++ {
		if w.mask>>l&1 != 0 && !w.clk.of(l).hb.knows(m.prior, 0, anyLane, 1) {
			m.early = true
		}
	}
}

// checkWaited reports a dependent launch in which nobody has waited: it may end before
// those before it, and who waits for it later takes those for ended, too.
func (m *machine) checkWaited() {
	if m.fault == nil && m.o.Dependent && !m.waited {
		m.fault = &Fault{Kind: NeverWaited,
			Text: "the launch is a programmatic dependent one, and no thread has come to griddep.wait: it may end before those before it, for which it stands"}
	}
}
