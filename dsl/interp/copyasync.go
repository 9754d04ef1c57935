package interp

// A cp.async is an access of the generic proxy that happens at some time between its issue and the cp.async.wait that
// covers its group. So it has a clock component of the warp's own, whose epochs are the groups: who wants to touch the
// place it writes, or to write what it reads, must know, by way of that wait, that the group has ended. The bytes move
// when it is issued: a program without faults cannot tell. A wait is told of its own lane's copies alone.

// copyState is what a warp's lanes have under way: they commit and wait together.
type copyState struct {
	open   bool   // copies since the last commit
	groups uint32 // committed
	done   uint32 // groups that the warp has waited for
}

// stepCopyAsync issues cp.async.cg.shared.global of 16 bytes a lane.
func stepCopyAsync(m *machine, w *warp, in *inst) {
	for l := range 32 {
		if w.mask>>l&1 != 0 && !m.copyUnit(w, in, l) {
			return
		}
	}
	w.copies.open = true
}

func (m *machine) copyUnit(w *warp, in *inst, l int) bool {
	const n = 16
	dst, dstOff, ok := m.copySide(w, in, &in.mem[0], l, n)
	if !ok {
		return false
	}
	src, srcOff, ok := m.copySide(w, in, &in.mem[1], l, n)
	if !ok {
		return false
	}
	if m.o.races() {
		rec := pack(w.cta.id*m.comps+m.copyComp(w), w.copies.groups+1, uint8(l), in.pc)
		a := accessor{w: w, in: in, lane: uint8(l), rec: rec}
		if src.shadow != nil && !m.touch(src, srcOff, n, &a) {
			return false
		}
		if a.write = true; !m.touch(dst, dstOff, n, &a) {
			return false
		}
	}
	if dst.locs != nil {
		m.weakWrite(dst, dstOff, n)
	}
	dst.moveFrom(src, dstOff, srcOff, n)
	if m.o.Watch != nil {
		err := m.o.Watch.Copied(accessOf(w, in, l, src, srcOff, n), dst.info.buf.Name, dstOff)
		return !m.unexpected(w, in, l, src, srcOff, err)
	}
	return true
}

// copyComp is the number in its CTA of the clock component of w's cp.asyncs.
func (m *machine) copyComp(w *warp) int32 { return m.firstCopy + w.wi }

func stepCopyCommit(m *machine, w *warp, in *inst) {
	if m.converged(w, in) {
		w.copies.open = false
		w.copies.groups++
	}
}

// stepCopyWait waits until all groups but the last few have ended.
func stepCopyWait(m *machine, w *warp, in *inst) {
	if !m.converged(w, in) {
		return
	}
	c := &w.copies
	end := c.groups - min(c.groups, uint32(in.attr.N))
	if end <= c.done {
		return
	}
	c.done = end
	if !m.o.races() || !m.p.copies {
		return
	}
	for l := range uint8(32) {
		knows := (*clock)(nil).raised(m.parts, m.comps, w.cta.id, m.copyComp(w), 0, l, end)
		w.clk.learn(1<<l, stamp{hb: knows})
	}
}

// leaveCopies looks at what a warp leaves under way.
func (m *machine) leaveCopies(w *warp, in *inst) {
	if c := &w.copies; !m.void && (c.open || c.groups > c.done) {
		m.fail(w, in, anyLane, ExitPending, "the warp ends with cp.asyncs under way: %d groups not waited for, and more "+
			"not committed: %t", c.groups-c.done, c.open)
	}
}
