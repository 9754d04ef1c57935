package sass

import (
	"slices"
)

// take moves a set of places over one instruction. Without a place that allows it there is a finding.
func (w *walk) take(s state, in *instruction) (set int, ok bool) {
	if in.kind == "" {
		return s.set, true
	}
	labels := w.labels[s.at]
	if in.plain {
		for _, at := range w.members[s.set] {
			_, plains := w.p.follow(at)
			for pl := range plains {
				if w.p.places[pl].kind == in.kind && (len(labels) == 0 || w.labelled(labels, pl)) {
					return s.set, true
				}
			}
		}
		w.report(s, in)
		return 0, false
	}
	var to []int
	for _, at := range w.members[s.set] {
		events, _ := w.p.follow(at)
		for _, e := range events {
			if stands(in.kind, w.p.places[e].kind) {
				to = append(to, e)
			}
		}
	}
	all := to
	polls := slices.ContainsFunc(to, func(e int) bool { return w.p.places[e].in != nil && w.p.places[e].in.Op.Waits() })
	if near := slices.DeleteFunc(slices.Clone(to),
		func(e int) bool { return !slices.Contains(labels, e) }); len(near) > 0 && !polls {
		to = near
	}
	for _, e := range to {
		w.matched[e] = true
		w.merge(s.at, e, all)
	}
	if spare(in.kind) {
		to = append(to, w.members[s.set]...)
	}
	if len(to) == 0 {
		w.report(s, in)
		return 0, false
	}
	return w.number(to), true
}

// labelled says whether labels lead to plain access pl: to it itself, or to one by the same line of a template on the
// other side of a condition. Of two such accesses the compiler may make one behind the condition, whose notes lead to
// one side.
func (w *walk) labelled(labels []int, pl int) bool {
	return slices.ContainsFunc(labels, func(l int) bool { return l == pl || w.p.sameLine(l, pl) && w.p.apart(l, pl) })
}

// merge notes the events that the instruction at stands for besides e, where it and one beside it are what a condition
// decides between: copies of e's statement on the other side of a condition of the program. Of such a pair the
// compiler's notes lead to one side only.
func (w *walk) merge(at, e int, next []int) {
	if !w.paired(at) {
		return
	}
	for _, other := range next {
		if w.p.sameStatement(e, other) && w.p.apart(e, other) {
			w.matched[other] = true
		}
	}
}

// paired says whether an instruction has one of its kind beside it, with the opposite guard and no event or branch
// between them.
func (w *walk) paired(at int) bool {
	in := &w.c.ins[at]
	if in.guard == "" {
		return false
	}
	for _, step := range []int{-1, 1} {
		for i := at + step; i >= 0 && i < len(w.c.ins); i += step {
			other := &w.c.ins[i]
			if other.kind == in.kind && other.guard == in.guard && other.negated != in.negated {
				return true
			}
			if other.kind != "" && !other.plain || other.target >= 0 {
				break
			}
		}
	}
	return false
}
