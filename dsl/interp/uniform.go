package interp

import "github.com/mkgen/mkgen/dsl/ir"

// uniformLog remembers the values that uniform saw, by dynamic instance: the
// instruction and how often each loop around it has begun. It keeps the last two
// generations of maxUniform instances, so a warp that is further behind than
// that is compared with nobody.
type uniformLog struct {
	young, old map[uniformKey]uniformSeen
}

const maxUniform = 1 << 14

type uniformKey struct {
	pc   int32
	iter uint64
}

type uniformSeen struct {
	v value
	w *warp
	l int
}

// stepUniform checks that the active lanes agree, and for wider scopes that all
// warps that reach the same instance do.
func stepUniform(m *machine, w *warp, in *inst) {
	a := m.in(w, in.a[0])
	w.regs[in.r[0]] = *a
	high := &row{} // of b128
	if in.t == ir.B128 {
		high = m.in2(w, in.a[0])
		w.regs[in.r[0]+1] = *high
	}
	wide := in.attr.Scope > ir.Warp && !m.void
	first := firstLane(w.mask)
	v := value{a[first], high[first]}
	for l := first; l < 32; l++ {
		if w.mask>>l&1 != 0 && (value{a[l], high[l]}) != v {
			m.fail(w, in, l, NotUniform, "lane %d has %d and lane %d has %d, the value is said to be the same over the %s",
				first, v.lo, l, a[l], in.attr.Scope)
			return
		}
	}
	if !wide {
		return
	}
	log := &w.cta.unif
	if in.attr.Scope >= ir.GPU {
		log = &m.unif
	}
	key := uniformKey{pc: in.pc}
	for _, fr := range w.frames {
		key.iter = key.iter*1000003 + uint64(fr.iter)
	}
	seen := log.compare(key, uniformSeen{v, w, first})
	if seen.v != v {
		m.fail(w, in, first, NotUniform, "has %d where another warp has %d, the value is said to be the same over the %s",
			v.lo, seen.v.lo, in.attr.Scope).
			side("other value", seen.w, seen.l, in)
	}
}

// compare returns what was seen first for key, s itself if nothing was.
func (g *uniformLog) compare(key uniformKey, s uniformSeen) uniformSeen {
	if o, ok := g.young[key]; ok {
		return o
	}
	if o, ok := g.old[key]; ok {
		return o
	}
	if g.young == nil || len(g.young) >= maxUniform {
		g.old, g.young = g.young, map[uniformKey]uniformSeen{}
	}
	g.young[key] = s
	return s
}
