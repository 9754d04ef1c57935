package interp

import "github.com/mkgen/mkgen/dsl/ir"

// Strong accesses and weak memory. Every location that is accessed strongly
// keeps the last few values written to it in coherence order. A strong load may
// return any of them that causality and coherence leave open: not older than a
// write or a read of the location that happens before it. A strong store may
// take a place in coherence order before values it does not know. That yields
// the weak outcomes of message passing, store buffering, 2+2W and IRIW; load
// buffering, which would need a load to see the future, it does not yield.

// maxHistory bounds the values kept of a location.
const maxHistory = 8

// gap is the distance between neighbours in coherence order, so that a store
// can be put between them.
const gap = 1 << 32

// message is what a release pattern carries to an acquire pattern: a stamp, and
// the scope and CTA of the pattern's first operation.
type message struct {
	st    stamp
	scope ir.Scope
	cta   int32
}

// value is up to 16 bytes.
type value struct{ lo, hi uint64 }

// entry is one write in a location's coherence order.
type entry struct {
	v     value
	ts    uint64
	rec   record // who wrote it; 0: the value found when the location was first used
	rmw   bool   // nothing may come between it and its predecessor
	scope ir.Scope
	msgs  []message
}

type seenEntry struct {
	rec record
	ts  uint64
}

// loc is a location of a scalar strong access.
type loc struct {
	ents    []entry
	seen    []seenEntry // the newest entry each reader saw
	waiters []*warp
}

// locAt is the location of the scalar at off, made at first use from memory.
func (m *machine) locAt(rg *region, off int64) *loc {
	i := off >> rg.info.gran
	if rg.locs[i] == nil {
		rg.locs[i] = &loc{}
	}
	return rg.locs[i]
}

// fresh makes sure that the newest entry is what memory holds: a write of
// another kind or size in between ends every release sequence.
func (lc *loc) fresh(v value) {
	if n := len(lc.ents); n == 0 || lc.ents[n-1].v != v {
		lc.ents = append(lc.ents[:0], entry{v: v, ts: gap})
		lc.seen = lc.seen[:0]
	}
}

// floor is the oldest place in coherence order that lane may still see.
func (m *machine) floor(lc *loc, w *warp, lane uint8) uint64 {
	ts := lc.ents[0].ts
	for i := range lc.ents {
		if e := &lc.ents[i]; e.rec != 0 && e.ts > ts && m.before(e.rec, w, lane) {
			ts = e.ts
		}
	}
	for i := range lc.seen {
		if s := &lc.seen[i]; s.ts > ts && m.before(s.rec, w, lane) {
			ts = s.ts
		}
	}
	return ts
}

// saw notes that a read the entry at ts.
func (m *machine) saw(lc *loc, a *accessor, ts uint64) {
	for i := range lc.seen {
		s := &lc.seen[i]
		if s.rec.comp() == a.rec.comp() && s.rec.lane() == a.rec.lane() {
			s.rec, s.ts = a.rec, max(ts, s.ts)
			return
		}
	}
	lc.seen = append(lc.seen, seenEntry{a.rec, ts})
}

// strongRead returns what a strong load of the scalar at off sees. newest asks
// for the last value in coherence order.
func (m *machine) strongRead(rg *region, off int64, a *accessor, newest bool) value {
	v := rg.load(off, int64(a.in.size))
	if m.ex != nil && a.in.op != ir.OpRedAdd {
		m.ex.use(objWord, useRead, rg.cta, m.p.rootOf[rg.info.buf], off>>rg.info.gran, 0)
	}
	if !m.o.races() {
		return v
	}
	lc := m.locAt(rg, off)
	lc.fresh(v)
	pick := len(lc.ents) - 1
	if m.ex != nil && pick > 0 && !newest && !a.in.op.Waits() {
		pick -= m.ex.choose(pick - m.oldest(lc, a) + 1)
	} else if pick > 0 && !newest && m.sched.stale > 0 && m.rng.Float64() < m.sched.stale {
		first := m.oldest(lc, a)
		pick = first + m.rng.IntN(pick-first+1)
	}
	e := &lc.ents[pick]
	if pick > 0 || len(lc.ents) > 1 {
		m.saw(lc, a, e.ts)
	}
	m.observe(e, a)
	return e.v
}

// oldest is the first entry that a may still see.
func (m *machine) oldest(lc *loc, a *accessor) int {
	ts, first := m.floor(lc, a.w, a.lane), len(lc.ents)-1
	for first > 0 && lc.ents[first-1].ts >= ts {
		first--
	}
	return first
}

// observe applies an acquire, or keeps what was read for a later fence. The
// write and the read must be morally strong.
func (m *machine) observe(e *entry, a *accessor) {
	if len(e.msgs) == 0 || !m.mutual(e.scope, a.in.scope, m.places[e.rec.comp()].cta, a.w.cta.id) {
		return
	}
	o := a.in.attr.Order
	if o == ir.Acquire || o == ir.AcqRel {
		for _, msg := range e.msgs {
			m.acquire(a.w, 1<<a.lane, msg, a.in.scope)
		}
		return
	}
	if a.in.op == ir.OpRedAdd {
		return // the read inside red forms no acquire pattern
	}
	if a.w.clk.pend == nil {
		a.w.clk.pend = new([32][]message)
	}
	for _, msg := range e.msgs {
		a.w.clk.pend[a.lane] = addMessage(a.w.clk.pend[a.lane], msg)
	}
}

// acquire lets the lanes of mask know what msg carries, if the scopes of its
// first operation and of the acquiring one include each other.
func (m *machine) acquire(w *warp, mask uint32, msg message, scope ir.Scope) {
	if m.mutual(msg.scope, scope, msg.cta, w.cta.id) {
		w.clk.learn(mask, msg.seenFrom(w.cta.id))
	}
}

// seenFrom is what msg tells a thread of CTA cta. That a proxy fence lies behind an
// access counts only in the CTA that executes it, so it is forgotten on the way;
// what a CTA has fenced of its own accesses is not. See docs/memory-model.md. How far
// lanes have come is told in their own CTA only.
func (msg *message) seenFrom(cta int32) stamp {
	st := msg.st
	if msg.cta != cta {
		st.gl, st.came = nil, nil
	}
	return st
}

// addMessage joins messages that go to the same threads.
func addMessage(list []message, msg message) []message {
	for i := range list {
		if l := &list[i]; l.scope == msg.scope && (l.cta == msg.cta || l.scope >= ir.GPU) {
			if l.cta != msg.cta {
				l.st.came, msg.st.came = nil, nil // of two CTAs
			}
			if l.st = l.st.join(msg.st); l.cta != msg.cta {
				l.st.gl = nil // see seenFrom
			}
			return list
		}
	}
	return append(list, msg)
}

// outgoing lists the messages of a strong write by a: its own release, the
// release fences before it, and an earlier release of the same lane on the same
// location.
func (m *machine) outgoing(lc *loc, a *accessor) []message {
	var out []message
	if o := a.in.attr.Order; o == ir.Release || o == ir.AcqRel {
		out = append(out, message{m.released(a.w, a.lane), a.in.scope, a.w.cta.id})
	}
	if f := a.w.clk.frel; f != nil {
		for i := range f {
			if f[i].set>>a.lane&1 != 0 {
				out = addMessage(out, f[i].message(m, a.w, a.lane))
			}
		}
	}
	for i := len(lc.ents) - 1; i >= 0; i-- {
		if e := &lc.ents[i]; e.rec != 0 && e.rec.comp() == a.w.comp && e.rec.lane() == a.lane {
			for _, msg := range e.msgs {
				if msg.cta == a.w.cta.id {
					out = addMessage(out, msg)
				}
			}
			break
		}
	}
	return out
}

// strongWrite makes v the value of the scalar at off, at the end of coherence
// order or, for a plain store, possibly before values the lane does not know.
func (m *machine) strongWrite(rg *region, off int64, v value, a *accessor) {
	if m.ex != nil {
		mode := useWrite
		if a.in.op == ir.OpRedAdd {
			mode = useAdd
		}
		m.ex.use(objWord, mode, rg.cta, m.p.rootOf[rg.info.buf], off>>rg.info.gran, 0)
	}
	if !m.o.races() {
		rg.store(off, int64(a.in.size), v)
		m.wakeAt(rg, off)
		return
	}
	lc := m.locAt(rg, off)
	lc.fresh(rg.load(off, int64(a.in.size)))
	e := entry{v: v, rec: a.rec, scope: a.in.scope, rmw: isAtomic(a.in.op), msgs: m.outgoing(lc, a)}
	last := len(lc.ents) - 1
	if e.rmw {
		if old := &lc.ents[last]; len(old.msgs) > 0 && m.mutual(old.scope, a.in.scope, m.places[old.rec.comp()].cta,
			a.w.cta.id) {
			for _, msg := range old.msgs {
				e.msgs = addMessage(e.msgs, msg)
			}
		}
	}
	at := last + 1
	if m.ex != nil && !e.rmw {
		at -= m.ex.choose(at - m.first(lc, a) + 1)
	} else if !e.rmw && m.sched.stale > 0 && m.rng.Float64() < m.sched.stale/2 {
		at = m.place(lc, a)
	}
	e.ts = lc.ents[last].ts + gap
	if at <= last {
		e.ts = (lc.ents[at-1].ts + lc.ents[at].ts) / 2
	}
	lc.ents = append(lc.ents, entry{})
	copy(lc.ents[at+1:], lc.ents[at:])
	lc.ents[at] = e
	if at == last+1 {
		rg.store(off, int64(a.in.size), v)
	}
	if len(lc.ents) > maxHistory {
		lc.ents = append(lc.ents[:0], lc.ents[1:]...)
	}
	m.saw(lc, a, e.ts)
	if o := a.in.attr.Order; o == ir.Release || o == ir.AcqRel {
		m.tick(a.w)
	}
	m.wakeAt(rg, off)
}

// place draws a position in coherence order for a store: behind everything its
// lane knows, and not between an atomic operation and what that read.
func (m *machine) place(lc *loc, a *accessor) int {
	first := m.first(lc, a)
	return first + m.rng.IntN(len(lc.ents)-first+1)
}

// first is the first position that a store of a may take.
func (m *machine) first(lc *loc, a *accessor) int {
	ts := m.floor(lc, a.w, a.lane)
	first := len(lc.ents)
	for first > 1 && lc.ents[first-1].ts > ts && !lc.ents[first-1].rmw && lc.ents[first-1].ts-lc.ents[first-2].ts > 1 {
		first--
	}
	return first
}

// wakeAt makes the warps waiting on a location poll it again.
func (m *machine) wakeAt(rg *region, off int64) {
	if rg.locs == nil {
		return
	}
	lc := rg.locs[off>>rg.info.gran]
	if lc == nil {
		return
	}
	for _, w := range lc.waiters {
		m.sched.again(w)
	}
	lc.waiters = lc.waiters[:0]
}

// weakWrite tells the locations under a weak write or a bulk copy that their
// history is over.
func (m *machine) weakWrite(rg *region, off, n int64) {
	g := rg.info.gran
	for i := off >> g; i < (off+n+1<<g-1)>>g; i++ {
		if lc := rg.locs[i]; lc != nil {
			lc.ents, lc.seen = lc.ents[:0], lc.seen[:0]
			m.wakeAt(rg, i<<g)
		}
	}
}
