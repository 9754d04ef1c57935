package interp

import "github.com/mkgen/mkgen/dsl/ir"

const (
	fenceGlobalOnly = ir.FenceGlobal
	fenceSharedOnly = ir.FenceShared
)

// fenceRelease is the last release fence each lane executed: what a strong write
// behind it carries.
type fenceRelease struct {
	set   uint32
	scope [32]ir.Scope
	st    [32]stamp
	sync  [32]uint32 // the warp's accesses before this epoch are included
	ep    [32]uint32 // and the lane's own up to this one
}

// message is what lane l's strong writes carry because of the fence.
func (f *fenceRelease) message(m *machine, w *warp, l uint8) message {
	s := f.st[l]
	s.hb = s.hb.raised(m.parts, m.comps, w.cta.id, w.wi, f.sync[l]-1, l, f.ep[l])
	return message{s, f.scope[l], w.cta.id}
}

// stepFence is fence.acq_rel and fence.sc. As an acquire it takes what the
// lane's strong reads saw; as a release it marks what its later strong writes
// carry. fence.sc operations whose scopes include each other are in one order,
// and each synchronises with the next.
func stepFence(m *machine, w *warp, in *inst) {
	if !m.o.races() {
		return
	}
	scope := in.attr.Scope
	if p := w.clk.pend; p != nil {
		for l := range 32 {
			if w.mask>>l&1 != 0 {
				p[l] = m.acquireAll(w, l, p[l], scope)
			}
		}
	}
	if in.attr.Order == ir.SeqCst {
		m.fenceSC(w, scope)
	}
	if w.clk.frel == nil {
		w.clk.frel = new([2]fenceRelease)
	}
	wide := scope >= ir.GPU
	f := &w.clk.frel[0]
	if wide {
		w.clk.frel[0].set &^= w.mask // the wider fence carries at least as much
		f = &w.clk.frel[1]
	}
	for l := uint8(0); l < 32; l++ {
		if w.mask>>l&1 != 0 {
			f.set |= 1 << l
			f.scope[l], f.st[l], f.sync[l], f.ep[l] = scope, w.clk.of(l), w.clk.sync, w.clk.epoch
		}
	}
	m.tick(w)
}

// acquireAll acquires what a fence of that scope can, and returns the rest.
func (m *machine) acquireAll(w *warp, l int, msgs []message, scope ir.Scope) []message {
	rest := msgs[:0]
	for _, msg := range msgs {
		if m.mutual(msg.scope, scope, msg.cta, w.cta.id) {
			w.clk.learn(1<<l, msg.seenFrom(w.cta.id))
		} else {
			rest = append(rest, msg)
		}
	}
	return rest
}

func (m *machine) fenceSC(w *warp, scope ir.Scope) {
	w.clk.learn(w.mask, w.cta.sc)
	if scope >= ir.GPU {
		sc := message{st: m.sc, cta: -1}
		w.clk.learn(w.mask, sc.seenFrom(w.cta.id))
	}
	for l := uint8(0); l < 32; l++ {
		if w.mask>>l&1 == 0 {
			continue
		}
		s := m.released(w, l)
		w.cta.sc = w.cta.sc.join(s)
		if scope >= ir.GPU {
			s.came = nil // of one CTA
			m.sc = m.sc.join(s)
		}
	}
}

// stepFenceProxy is fence.proxy.async.
func stepFenceProxy(m *machine, w *warp, in *inst) {
	if m.o.races() {
		m.proxyFence(w, w.mask, in.attr.Imm)
	}
}

// stepFenceMBar is fence.mbarrier_init: it makes the lane's own mbarrier.init
// operations visible to the async proxy.
func stepFenceMBar(m *machine, w *warp, in *inst) {
	if !m.o.races() {
		return
	}
	for i := range w.cta.mbars {
		b := &w.cta.mbars[i]
		if b.count > 0 && b.init.comp() == w.comp && w.mask>>b.init.lane()&1 != 0 && b.fence == 0 {
			b.fence = pack(w.comp, w.clk.epoch, b.init.lane(), in.pc)
		}
	}
	m.tick(w)
}

// stepSyncWarp orders the memory accesses of a warp's lanes. Shuffles, votes and
// mma do not: PTX gives them no memory ordering.
func stepSyncWarp(m *machine, w *warp, in *inst) {
	if m.converged(w, in) {
		w.clk.converge()
	}
}
