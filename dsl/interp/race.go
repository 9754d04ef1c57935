package interp

import (
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

// Shadow memory: for each granule the accesses that a later one may conflict
// with. A record packs the accessing component, its epoch, its lane and the
// program counter; 0 is none, and epoch 0 marks a reference to a set.
const (
	pcBits   = 20
	laneBits = 6
	epBits   = 24
	maxEpoch = 1 << epBits
	maxComp  = 1 << (64 - pcBits - laneBits - epBits)
)

type record uint64

func pack(comp int32, ep uint32, lane uint8, pc int32) record {
	return record(uint64(comp)<<(pcBits+laneBits+epBits) | uint64(ep)<<(pcBits+laneBits) | uint64(lane)<<pcBits |
		uint64(pc))
}

func (r record) comp() int32   { return int32(r >> (pcBits + laneBits + epBits)) }
func (r record) epoch() uint32 { return uint32(r>>(pcBits+laneBits)) & (maxEpoch - 1) }
func (r record) lane() uint8   { return uint8(r>>pcBits) & (1<<laneBits - 1) }
func (r record) pc() int32     { return int32(r) & (1<<pcBits - 1) }
func (r record) isSet() bool   { return r != 0 && r.epoch() == 0 }
func (r record) setIndex() int { return int(r) - 1 }

// repeats reports whether s, a later record, is the same instruction's in the same lane.
func (r record) repeats(s record) bool { return (r^s)&^((maxEpoch-1)<<(pcBits+laneBits)) == 0 }

// cell is a granule's shadow: its last writes and the reads since.
type cell struct {
	w, r record
}

// accSet holds the records of a granule that more than one concurrent access
// reached.
type accSet struct {
	list []record
}

// view is the list of records behind r.
func (rg *region) view(r record, one *[1]record) []record {
	switch {
	case r == 0:
		return nil
	case r.isSet():
		return rg.sets[r.setIndex()].list
	}
	one[0] = r
	return one[:]
}

func (rg *region) drop(r record) {
	if r.isSet() {
		i := r.setIndex()
		rg.sets[i].list = rg.sets[i].list[:0]
		rg.free = append(rg.free, int32(i))
	}
}

func (rg *region) newSet(recs ...record) record {
	var i int
	if n := len(rg.free); n > 0 {
		i = int(rg.free[n-1])
		rg.free = rg.free[:n-1]
	} else {
		i = len(rg.sets)
		rg.sets = append(rg.sets, accSet{})
	}
	rg.sets[i].list = append(rg.sets[i].list, recs...)
	return record(i + 1)
}

// accessor is who makes an access and how.
type accessor struct {
	w     *warp
	in    *inst
	lane  uint8
	write bool
	async bool   // a bulk copy's access, made in the async proxy
	rec   record // what it leaves behind
	ok    record // a write that has been found to come before this access in every lane; 0: none
}

// all is the record of this access by all lanes of the warp.
func (a *accessor) all() record { return a.rec&^((1<<laneBits-1)<<pcBits) | anyLane<<pcBits }

// compPlace is the place of a clock component: its CTA, and its number there.
type compPlace struct{ cta, wi int32 }

// splitComp is a record's CTA and its component in that CTA.
func (m *machine) splitComp(comp int32) (cta, wi int32) {
	p := &m.places[comp]
	return p.cta, p.wi
}

// isAsync reports whether a record was left in the async proxy, by a bulk copy or a wgmma.
func (m *machine) isAsync(r record) bool {
	wi := m.places[r.comp()].wi
	return wi >= m.warpsPer && wi < m.firstCopy
}

// before reports whether the access behind r happens before a (base causality
// order: program order, warp-level synchronisation, and what a knows).
func (m *machine) before(r record, w *warp, lane uint8) bool {
	comp := r.comp()
	if comp == w.comp && (r.epoch() < w.clk.sync || r.lane() == lane && lane != anyLane) {
		return true
	}
	p := &m.places[comp]
	hb := w.clk.base.hb
	if w.clk.ahead != 0 {
		hb = w.clk.of(lane).hb
	}
	return hb.knows(p.cta, p.wi, r.lane(), r.epoch())
}

// fenced reports whether the proxy fences lie between the access behind r and a
// bulk copy's that a thread of w's lane issues: one that the copy's CTA executes,
// and for global memory that another CTA of this launch accessed, one that that CTA
// executes, too.
func (m *machine) fenced(r record, rg *region, w *warp, lane uint8) bool {
	cta, wi := m.splitComp(r.comp())
	s := w.clk.of(lane)
	if rg.cta >= 0 {
		return s.sh.knows(cta, wi, r.lane(), r.epoch())
	}
	return s.gl.knows(cta, wi, r.lane(), r.epoch()) &&
		(cta == w.cta.id || m.isPrior(r) || s.out.knows(cta, wi, r.lane(), r.epoch()))
}

// mutual reports whether scopes s and t, of operations executed in CTAs c and d,
// each include the other's thread.
func (m *machine) mutual(s, t ir.Scope, c, d int32) bool {
	if c == d {
		return true
	}
	n := min(s, t)
	size := int32(max(m.p.kernel.ClusterSize, 1))
	return n >= ir.GPU || n == ir.Cluster && c/size == d/size
}

// morallyStrong: both strong, scopes that include each other, the same bytes.
func (m *machine) morallyStrong(r record, a *accessor) bool {
	if a.async || !a.in.strong || m.isAsync(r) || m.isPrior(r) {
		return false
	}
	old := &m.p.code[r.pc()]
	return old.strong && old.size == a.in.size && m.mutual(old.scope, a.in.scope, m.places[r.comp()].cta, a.w.cta.id)
}

// conflict is why r and a race, if they do.
func (m *machine) conflict(r record, rg *region, a *accessor) (Kind, bool) {
	if m.morallyStrong(r, a) {
		return 0, false
	}
	if !m.before(r, a.w, a.lane) {
		if old := &m.p.code[r.pc()]; !m.isPrior(r) && !a.async && a.in.strong && !m.isAsync(r) && old.strong &&
			old.size == a.in.size {
			return ScopeRace, true
		}
		return DataRace, true
	}
	if a.async && !m.isAsync(r) && !m.fenced(r, rg, a.w, a.lane) {
		return ProxyRace, true
	}
	return 0, false
}

// touch checks an access to n bytes at off against the shadow and records it.
// It reports whether the access may go on.
func (m *machine) touch(rg *region, off, n int64, a *accessor) bool {
	g := rg.info.gran
	var ok cell // the last granule's before this access, found in order: most have the same
	for i := off >> g; i < (off+n+1<<g-1)>>g; i++ {
		c := &rg.shadow[i]
		was := *c
		if a.write {
			if was != ok && was != (cell{}) && !m.checkWrite(rg, c, i<<g, a) {
				return false
			}
			m.recordWrite(rg, c, a)
		} else {
			if was.w != ok.w && !m.checkRead(rg, was.w, i<<g, a) {
				return false
			}
			m.recordRead(rg, c, a)
		}
		if ok = was; was.w.isSet() || was.r.isSet() { // a set is one granule's
			ok = cell{}
		}
	}
	return true
}

func (m *machine) checkWrite(rg *region, c *cell, off int64, a *accessor) bool {
	return m.checkAll(rg, c.w, true, off, a) && m.checkAll(rg, c.r, false, off, a)
}

// checkRead checks a read against the writes behind r. One that is found to come before every lane is not looked at
// again in this access.
func (m *machine) checkRead(rg *region, r record, off int64, a *accessor) bool {
	if r == 0 || r == a.ok {
		return true
	}
	if !m.checkAll(rg, r, true, off, a) {
		return false
	}
	if k := &a.w.clk; k.ahead == 0 && !a.async && !r.isSet() && (r.comp() != a.w.comp || r.epoch() < k.sync) {
		a.ok = r
	}
	return true
}

func (m *machine) checkAll(rg *region, r record, wrote bool, off int64, a *accessor) bool {
	if m.void {
		return true
	}
	var one [1]record
	for _, old := range rg.view(r, &one) {
		if kind, bad := m.conflict(old, rg, a); bad {
			m.race(kind, rg, off, old, wrote, a)
			return false
		}
	}
	return true
}

// recordRead keeps a read for later writes to be checked against. A read that
// happens after an older one of the same kind replaces it; a granule that all
// lanes of a warp read in one step has one record for them.
func (m *machine) recordRead(rg *region, c *cell, a *accessor) {
	switch {
	case c.r == 0:
		c.r = a.rec
	case c.r.isSet():
		s := &rg.sets[c.r.setIndex()]
		s.list = m.insert(s.list, a, a.w.mask == fullMask)
	case c.r == a.all():
	case c.r.repeats(a.rec) || m.replaces(c.r, a):
		c.r = a.rec
	case m.joins(c.r, a, a.w.mask == fullMask):
		c.r = a.all()
	default:
		c.r = rg.newSet(m.insert([]record{c.r}, a, false)...)
	}
}

// joins reports whether a and the read behind r, by another lane of the warp in
// this step or not ordered before it, can share a record of all lanes.
func (m *machine) joins(r record, a *accessor, full bool) bool {
	return full && r.comp() == a.rec.comp() && m.sameKind(r, a)
}

// insert adds a's record to a list kept in order of components, in place of a
// record of the same component that it replaces.
func (m *machine) insert(list []record, a *accessor, full bool) []record {
	comp := a.rec.comp()
	lo, hi := 0, len(list)
	for lo < hi {
		if mid := (lo + hi) / 2; list[mid].comp() < comp {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	for i := lo; i < len(list) && list[i].comp() == comp; i++ {
		switch r := list[i]; {
		case r == a.all():
			return list
		case r.repeats(a.rec) || m.replaces(r, a):
			list[i] = a.rec
			return list
		case m.joins(r, a, full):
			list[i] = a.all()
			return list
		}
	}
	return slices.Insert(list, lo, a.rec)
}

// recordWrite keeps a write. A weak one has just been found to follow everything
// before it and stands for all of that; a strong one may be concurrent.
func (m *machine) recordWrite(rg *region, c *cell, a *accessor) {
	if !a.in.strong || a.async {
		rg.drop(c.w)
		rg.drop(c.r)
		c.w, c.r = a.rec, 0
		return
	}
	switch {
	case c.w == 0 || !c.w.isSet() && m.replaces(c.w, a):
		c.w = a.rec
	case c.w.isSet():
		s := &rg.sets[c.w.setIndex()]
		s.list = m.insert(s.list, a, false)
	default:
		c.w = rg.newSet(m.insert([]record{c.w}, a, false)...)
	}
}

// sameKind reports whether whatever races with the access behind r, and is not
// ordered after a, races with a as well.
func (m *machine) sameKind(r record, a *accessor) bool {
	if m.isPrior(r) {
		return false // which says nothing of how it was made
	}
	if a.async || m.isAsync(r) {
		return a.async == m.isAsync(r)
	}
	old := &m.p.code[r.pc()]
	return !a.in.strong || old.strong && old.scope >= a.in.scope && old.size == a.in.size
}

// replaces reports whether a's record says all that r does.
func (m *machine) replaces(r record, a *accessor) bool {
	return (r.comp() == a.rec.comp() && r.lane() == a.rec.lane() || m.before(r, a.w, a.lane)) && m.sameKind(r, a)
}
