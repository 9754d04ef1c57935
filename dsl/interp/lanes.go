package interp

import "math/bits"

// Lanes of a warp run in step here and need not on a GPU: a lane may still be in a wait that another has passed. A wait
// for an mbarrier's phase by its parity tells only the running phase and the one before apart. So a lane that is late
// when the next phase completes waits for ever, and each lane's wait must end before that.
//
// How far lanes have come is more than what happens before in the memory model. Whoever is behind a shuffle, a vote or
// a product of matrices is behind all that the warp's other lanes did before it, although it orders no accesses; and
// bytes that a copy brings are behind its issue. stamp.came holds what base causality order does not.

// together is a collective that all lanes of w wait for each other at.
func (m *machine) together(w *warp) {
	k := &w.clk
	if !k.apart || !m.o.races() {
		return
	}
	m.tick(w)
	k.apart, k.come = false, k.epoch
	if k.ahead == 0 {
		return
	}
	came := k.base.came
	for mask := k.ahead; mask != 0; mask &= mask - 1 {
		came = joinSub(came, k.extra[bits.TrailingZeros32(mask)].cameIn(w.cta))
	}
	k.base.came = came
	for mask := k.ahead; mask != 0; mask &= mask - 1 {
		k.extra[bits.TrailingZeros32(mask)].came = came
	}
}

// cameIn is how far lanes of c, the CTA that s is of, have come as s tells.
func (s *stamp) cameIn(c *cta) *sub {
	if s.hb == nil {
		return s.came
	}
	return joinSub(s.came, s.hb.subs[c.id])
}

// cameBy is how far lanes of c have come when lane l of w does the next thing. Of another CTA than w's it is what
// happens before.
func (m *machine) cameBy(w *warp, l uint8, c *cta) *sub {
	k := &w.clk
	s := k.of(l)
	if c != w.cta {
		s.came = nil
		return s.cameIn(c)
	}
	return s.cameIn(c).raisedTo(m.comps, aheadLane{w.wi, anyLane, max(k.sync, k.come) - 1}, aheadLane{w.wi, l, k.epoch})
}

// raisedTo is s with more lanes known further. s stays what it is.
func (s *sub) raisedTo(comps int32, to ...aheadLane) *sub {
	out := &sub{e: make([]uint32, comps)}
	if s != nil {
		copy(out.e, s.e)
		for _, a := range s.ahead {
			out.raise(a)
		}
	}
	for _, a := range to {
		out.raise(a)
	}
	return out
}

// allSaw checks that each lane that has waited for the last completed phase of b had done so before the running phase
// could complete: before an arrival of this phase, or before a copy was issued whose bytes are of this phase.
func (m *machine) allSaw(b *mbar) bool {
	for _, s := range b.seen {
		cta, wi := m.splitComp(s.comp)
		for mask := s.mask; mask != 0; mask &= mask - 1 {
			l := uint8(bits.TrailingZeros32(mask))
			if b.acc.hb.knows(cta, wi, l, s.ep) || b.acc.came != nil && b.acc.came.at(wi, l) >= s.ep {
				continue
			}
			m.phaseMissed(b, s, l)
			return m.fault == nil
		}
	}
	return true
}

func (m *machine) phaseMissed(b *mbar, s waiterMark, l uint8) {
	cta, wi := m.splitComp(s.comp)
	waiter := m.ctas[cta].warps[wi]
	m.fail(waiter, &m.p.code[s.pc], int(l), PhaseSkipped,
		"may still wait for phase %d of mbarrier %d of %s when phase %d completes, and miss it: "+
			"no syncwarp or other wait of all lanes comes between the wait and an arrival of phase %d",
		int64(b.phase)-1, b.index, b.buf, b.phase, b.phase).
		at(b.buf, int64(b.index)).side("latest arrival", b.lastW, 0, b.lastIn)
}
