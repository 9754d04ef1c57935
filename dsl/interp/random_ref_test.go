package interp_test

// eventSet is a set of numbered events.
type eventSet map[int]bool

func (s eventSet) add(t eventSet) {
	for e := range t {
		s[e] = true
	}
}

func (s eventSet) copied() eventSet {
	out := eventSet{}
	out.add(s)
	return out
}

// knowledge is what happens before a thread's next event; the part of it
// that a proxy fence lies behind, for shared and for global memory; and the part
// behind which the CTA of the event has fenced global memory.
type knowledge struct {
	hb, sh, gl, out eventSet
	cta             int // where it comes from
}

func newKnowledge(cta int) knowledge {
	return knowledge{eventSet{}, eventSet{}, eventSet{}, eventSet{}, cta}
}

// add takes over what k says; proxy fences for global memory of others' accesses
// stay in their CTA.
func (s knowledge) add(k knowledge) {
	s.hb.add(k.hb)
	s.sh.add(k.sh)
	s.out.add(k.out)
	if s.cta == k.cta {
		s.gl.add(k.gl)
	}
}

func (s knowledge) copied() knowledge {
	return knowledge{s.hb.copied(), s.sh.copied(), s.gl.copied(), s.out.copied(), s.cta}
}

// reference keeps, for every thread, what happens before its next event.
type reference struct {
	knows    [rpThreads]knowledge
	fenced   [rpThreads]knowledge   // at the last release fence
	pending  [rpThreads][]knowledge // read by relaxed waits
	accesses map[place][]access
	flags    map[int]knowledge
	events   int
	by       map[int]int    // each event's CTA
	last     [rpThreads]int // each thread's latest event
	racy     bool
}

// place is a word of global memory (cta −1) or of a CTA's stage.
type place struct{ cta, word int }

type access struct {
	event, thread int
	write, async  bool
}

func newReference() *reference {
	r := &reference{by: map[int]int{}, flags: map[int]knowledge{}, accesses: map[place][]access{}}
	for t := range rpThreads {
		r.knows[t], r.fenced[t] = newKnowledge(ctaOf(t)), newKnowledge(ctaOf(t))
	}
	return r
}

func ctaOf(t int) int { return t / (rpWarps * rpLanes) }

// racing lists the earlier accesses that one by t, or by a copy that t issues,
// would race with.
func (r *reference) racing(t int, at place, write, async bool) (out []access) {
	k := r.knows[t]
	for _, a := range r.accesses[at] {
		fenced := k.gl[a.event] && (ctaOf(a.thread) == ctaOf(t) || k.out[a.event])
		if at.cta >= 0 {
			fenced = k.sh[a.event]
		}
		if (a.write || write) && (!k.hb[a.event] || async && !a.async && !fenced) {
			out = append(out, a)
		}
	}
	return out
}

// nearMiss reports whether a careless executor would take the access for
// ordered: another lane of t's warp knows enough, or t knows what another lane
// of the earlier warp did later, or only a proxy fence is missing.
func (r *reference) nearMiss(t int, at place, write, async bool) bool {
	for _, a := range r.racing(t, at, write, async) {
		if r.knows[t].hb[a.event] {
			return true
		}
		for l := range rpLanes {
			if r.knows[t/rpLanes*rpLanes+l].hb[a.event] {
				return true
			}
			if v := r.last[a.thread/rpLanes*rpLanes+l]; v > a.event && r.knows[t].hb[v] {
				return true
			}
		}
	}
	return false
}

// access records one and returns its event.
func (r *reference) access(t int, at place, write, async bool) int {
	r.racy = r.racy || len(r.racing(t, at, write, async)) > 0
	r.events++
	r.by[r.events] = ctaOf(t)
	if !async {
		r.knows[t].hb[r.events] = true
		r.last[t] = r.events
	}
	r.accesses[at] = append(r.accesses[at], access{r.events, t, write, async})
	return r.events
}

// mark records an event of t that is no access: a release or a fence.
func (r *reference) mark(t int) {
	r.events++
	r.by[r.events] = ctaOf(t)
	r.knows[t].hb[r.events] = true
	r.last[t] = r.events
}

func (r *reference) join(threads []int) {
	all := newKnowledge(ctaOf(threads[0]))
	for _, t := range threads {
		all.add(r.knows[t])
	}
	for _, t := range threads {
		r.knows[t].add(all)
	}
}
