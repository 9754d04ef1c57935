package interp

import "cmp"

// stepSetMaxReg moves registers between the warps and what is free of the CTA's.
func stepSetMaxReg(m *machine, w *warp, in *inst) {
	if m.grouped(w, in) == nil {
		return
	}
	n := in.attr.N
	w.nreg = cmp.Or(w.nreg, m.p.kernel.LaunchRegisters())
	more := in.attr.Imm == 1
	m.usesRegisters(w, more)
	if more && n < w.nreg || !more && n > w.nreg {
		m.fail(w, in, anyLane, WarpgroupApart, "the warp has %d registers a thread, and asks for %d, want %s", w.nreg, n,
			map[bool]string{true: "more", false: "fewer"}[more])
		return
	}
	if n-w.nreg > w.cta.nreg {
		w.wait = waiting{kind: waitRegisters, in: in}
		w.cta.wanting = append(w.cta.wanting, w)
		w.pc--
		m.sched.block(w)
		return
	}
	w.wait = waiting{}
	if !m.join(w, in, 0, 0) || m.o.races() && !m.metSince(w, in) {
		return
	}
	w.cta.nreg -= n - w.nreg
	w.nreg = n
	for _, other := range w.cta.wanting {
		m.sched.again(other)
	}
	w.cta.wanting = w.cta.wanting[:0]
}

// metSince reports whether all warps of w's warpgroup are known to have executed the setmaxnreg before this one, as PTX
// wants by a barrier between the two.
func (m *machine) metSince(w *warp, in *inst) bool {
	n := len(w.regset)
	w.regset = append(w.regset, pack(w.comp, w.clk.epoch, anyLane, in.pc))
	for _, other := range w.cta.warps[w.wi/4*4:][:4] {
		if n == 0 || other == w || len(other.regset) >= n && m.before(other.regset[n-1], w, anyLane) {
			continue
		}
		m.fail(w, in, anyLane, WarpgroupApart,
			"sets registers again, and nothing says that warp %d of the warpgroup has set them before: a barrier of the "+
				"warpgroup is missing", other.wi).side("before", w, anyLane, &m.p.code[w.regset[n-1].pc()])
		return false
	}
	return true
}

// enoughRegisters reports whether a warp that asks for registers would get them.
func (m *machine) enoughRegisters(w *warp, in *inst) bool {
	return in.attr.N-cmp.Or(w.nreg, m.p.kernel.LaunchRegisters()) <= w.cta.nreg
}

// usesRegisters notes for an exploration that w gives registers up, or gets more. Warps that give may be exchanged, and
// so may those that get: which of two gets what suffices for one is not explored.
func (m *machine) usesRegisters(w *warp, more bool) {
	if m.ex == nil {
		return
	}
	mode := useAdd
	if more {
		mode = useRead
	}
	m.ex.use(objRegisters, mode, w.cta.id, 0, 0, 0)
}

// stepElect chooses one lane a run, by its seed: which one is nothing to rely on.
func stepElect(m *machine, w *warp, in *inst) {
	if !m.converged(w, in) {
		return
	}
	d := &w.regs[in.r[0]]
	*d = row{}
	d[m.o.Seed*0x9e3779b9>>5%32] = 1
}
