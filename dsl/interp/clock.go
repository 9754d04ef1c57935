package interp

import (
	"math"
	"slices"
)

// Vector clocks. A component is a warp or an mbarrier of one CTA. A warp's epoch
// advances at every release and every warp-level synchronisation; an mbarrier's
// is the number of its phases, and stands for the bulk copies that complete in
// them. Clocks are immutable once made, shared between everyone who knows the
// same, and split by CTA, so that a join inside a CTA costs that CTA's part.

// anyLane is the lane of an access that all lanes of a warp took part in, and of
// components without lanes.
const anyLane = 32

// sub is one CTA's part of a clock: e[i] is the epoch of component i up to which
// all its lanes are known, ahead lists single lanes known further.
type sub struct {
	e     []uint32
	ahead []aheadLane
}

type aheadLane struct {
	comp int32
	lane uint8
	ep   uint32
}

// at is the epoch up to which a component's lane is known.
func (s *sub) at(comp int32, lane uint8) uint32 {
	ep := s.e[comp]
	for i := range s.ahead {
		if a := &s.ahead[i]; a.comp == comp && a.lane == lane && a.ep > ep {
			ep = a.ep
		}
	}
	return ep
}

// covers reports whether s knows everything that t knows.
func (s *sub) covers(t *sub) bool {
	e := s.e[:len(t.e)]
	for i, ep := range t.e {
		if e[i] < ep {
			return false
		}
	}
	for _, a := range t.ahead {
		if s.at(a.comp, a.lane) < a.ep {
			return false
		}
	}
	return true
}

func joinSub(s, t *sub) *sub {
	switch {
	case s == t || t == nil:
		return s
	case s == nil || t.covers(s):
		return t
	case s.covers(t):
		return s
	}
	u := &sub{e: make([]uint32, len(s.e))}
	if n := len(s.ahead) + len(t.ahead); n > 0 {
		u.ahead = make([]aheadLane, 0, n)
	}
	for i := range s.e {
		u.e[i] = max(s.e[i], t.e[i])
	}
	for _, a := range s.ahead {
		u.raise(a)
	}
	for _, a := range t.ahead {
		u.raise(a)
	}
	return u
}

// raise adds what a knows; only for a sub nobody else has seen yet.
func (s *sub) raise(a aheadLane) {
	if s.e[a.comp] >= a.ep {
		return
	}
	if a.lane == anyLane {
		s.e[a.comp] = a.ep
		return
	}
	for i := range s.ahead {
		if b := &s.ahead[i]; b.comp == a.comp && b.lane == a.lane {
			b.ep = max(b.ep, a.ep)
			s.level(a.comp)
			return
		}
	}
	s.ahead = append(s.ahead, a)
	s.level(a.comp)
}

// level turns what is known of each lane of a component into what is known of all, as accesses of all lanes want it.
func (s *sub) level(comp int32) {
	if len(s.ahead) < 32 {
		return
	}
	lanes, least := 0, uint32(math.MaxUint32)
	for _, a := range s.ahead {
		if a.comp == comp {
			lanes, least = lanes+1, min(least, a.ep)
		}
	}
	if lanes == 32 && least > s.e[comp] {
		s.e[comp] = least
		s.ahead = slices.DeleteFunc(s.ahead, func(a aheadLane) bool { return a.comp == comp && a.ep <= least })
	}
}

// clock is a vector clock over the grid, one sub a CTA; nil subs and a nil clock
// know nothing.
type clock struct {
	subs []*sub
}

func (c *clock) knows(cta, comp int32, lane uint8, ep uint32) bool {
	if c == nil || c.subs[cta] == nil {
		return false
	}
	s := c.subs[cta]
	return s.e[comp] >= ep || len(s.ahead) > 0 && s.at(comp, lane) >= ep
}

func joinClock(c, d *clock) *clock {
	switch {
	case c == d || d == nil:
		return c
	case c == nil:
		return d
	}
	var out *clock
	sameAsD := true
	for i, s := range c.subs {
		u := joinSub(s, d.subs[i])
		sameAsD = sameAsD && u == d.subs[i]
		if u != s && out == nil {
			out = &clock{subs: append([]*sub(nil), c.subs...)}
		}
		if out != nil {
			out.subs[i] = u
		}
	}
	switch {
	case out == nil:
		return c
	case sameAsD:
		return d
	}
	return out
}

// only is what c knows of one CTA.
func (c *clock) only(cta int32) *clock {
	if c == nil || c.subs[cta] == nil {
		return nil
	}
	out := &clock{subs: make([]*sub, len(c.subs))}
	out.subs[cta] = c.subs[cta]
	return out
}

// raised is c with one component known further: all lanes up to all, and lane
// (or every lane, for anyLane) up to ep.
func (c *clock) raised(ctas int, comps, cta, comp int32, all uint32, lane uint8, ep uint32) *clock {
	out := &clock{}
	if c == nil {
		out.subs = make([]*sub, ctas)
	} else {
		out.subs = append([]*sub(nil), c.subs...)
	}
	s := &sub{e: make([]uint32, comps)}
	if old := out.subs[cta]; old != nil {
		copy(s.e, old.e)
		s.e[comp] = max(s.e[comp], all)
		s.ahead = make([]aheadLane, 0, len(old.ahead)+1)
		for _, a := range old.ahead {
			s.raise(a)
		}
	}
	s.e[comp] = max(s.e[comp], all)
	s.raise(aheadLane{comp, lane, ep})
	out.subs[cta] = s
	return out
}

// stamp is what a thread knows: hb, everything that happens before it; of that
// sh and gl, the part that a proxy fence lies behind, on a path of its own, for
// shared and for global memory; and out, the accesses to global memory behind
// which a thread of the CTA that made them has fenced; and came, how far the
// lanes of its own CTA have come at least, whose memory accesses may be unordered
// (lanes.go).
type stamp struct {
	hb, sh, gl, out *clock
	came            *sub
}

func (s stamp) join(t stamp) stamp {
	out := stamp{hb: joinClock(s.hb, t.hb), sh: joinClock(s.sh, t.sh), out: joinClock(s.out, t.out),
		came: joinSub(s.came, t.came)}
	if s.sh == s.gl && t.sh == t.gl {
		out.gl = out.sh
	} else {
		out.gl = joinClock(s.gl, t.gl)
	}
	return out
}

// warpClock is a warp's own part: its stamp, the lanes that know more than the
// warp, and the fences and reads that later operations build patterns with.
type warpClock struct {
	epoch uint32 // of the next access
	sync  uint32 // accesses before this epoch are ordered before every lane
	base  stamp
	extra [32]stamp // valid where ahead has a bit; includes base
	ahead uint32
	apart bool             // lanes have waited or learnt something since they were together last
	come  uint32           // what the warp's lanes did before this epoch is behind them, in every lane
	frel  *[2]fenceRelease // release fences: narrower than gpu, gpu and wider
	pend  *[32][]message   // messages read by relaxed loads, for a later fence
}

func (k *warpClock) init() { k.epoch, k.sync, k.come = 1, 1, 1 }

// of is what lane l knows; anyLane asks for what every lane knows.
func (k *warpClock) of(l uint8) stamp {
	if l < 32 && k.ahead>>l&1 != 0 {
		return k.extra[l]
	}
	return k.base
}

// learn adds s to what the lanes of mask know.
func (k *warpClock) learn(mask uint32, s stamp) {
	if mask == fullMask {
		k.base = k.base.join(s)
		mask = k.ahead
	} else {
		k.apart = true
	}
	for l := uint8(0); mask != 0; l, mask = l+1, mask>>1 {
		if mask&1 != 0 {
			k.extra[l] = k.of(l).join(s)
			k.ahead |= 1 << l
		}
	}
}

// converge is a warp-level synchronisation: every lane now knows what any knew.
func (k *warpClock) converge() {
	for l := uint8(0); k.ahead != 0; l++ {
		if k.ahead>>l&1 != 0 {
			k.base = k.base.join(k.extra[l])
			k.ahead &^= 1 << l
		}
	}
	k.epoch++
	k.sync = k.epoch
	k.apart = false // what comes before this epoch is in each lane's releases
}

// released is what a release by lane l (anyLane: by every lane) carries: what it
// knows, the warp's accesses up to the last warp-level synchronisation, and the
// lane's own up to now.
func (m *machine) released(w *warp, l uint8) stamp {
	k := &w.clk
	s := k.of(l)
	if l == anyLane {
		for i := range k.extra {
			if k.ahead>>i&1 != 0 {
				s = s.join(k.extra[i])
			}
		}
	}
	s.hb = s.hb.raised(m.parts, m.comps, w.cta.id, w.wi, k.sync-1, l, k.epoch)
	if k.come > k.sync {
		s.came = s.came.raisedTo(m.comps, aheadLane{w.wi, anyLane, k.come - 1})
	}
	return s
}

// tick begins a new epoch; accesses from here on are not covered by releases
// before.
func (m *machine) tick(w *warp) {
	w.clk.epoch++
	if w.clk.epoch >= maxEpoch {
		m.fail(w, &m.p.code[w.pc-1], 0, Limit, "warp has passed %d epochs, the most an access record can hold", maxEpoch)
	}
}

// proxyFence is fence.proxy.async by the lanes of mask: all they know, and their
// own accesses so far, has now a proxy fence behind it.
func (m *machine) proxyFence(w *warp, mask uint32, space int64) {
	apply := func(s stamp, r stamp) stamp {
		if space != fenceGlobalOnly {
			s.sh = joinClock(s.sh, r.hb)
		}
		if space != fenceSharedOnly {
			s.gl, s.out = joinClock(s.gl, r.hb), joinClock(s.out, r.hb.only(w.cta.id))
		}
		return s
	}
	k := &w.clk
	lanes := mask
	if mask == fullMask {
		s := k.base
		s.hb = s.hb.raised(m.parts, m.comps, w.cta.id, w.wi, k.sync-1, anyLane, k.epoch)
		k.base, lanes = apply(k.base, s), k.ahead
	}
	for l := uint8(0); l < 32; l++ {
		if lanes>>l&1 != 0 {
			k.learn(1<<l, apply(k.of(l), m.released(w, l)))
		}
	}
	m.tick(w)
}
