package trace

import (
	"fmt"
	"math"
	"slices"
)

// mayHold says which kinds a span may hold. A sync holds what consumers do meanwhile,
// which is the sync's time.
var mayHold = map[Kind][]Kind{
	Phase: {Task, Wait, Sync},
	Task:  {Task, Wait, Sync},
	Wait:  nil,
	Sync:  {Task, Wait},
}

// meanwhile says of each span of a track whether it lies within a sync.
func (t *Trace) meanwhile(tr *Track) []bool {
	in, from := make([]bool, len(tr.Spans)), math.Inf(1)
	for i := len(tr.Spans) - 1; i >= 0; i-- {
		s := &tr.Spans[i]
		if t.kind(s) == Sync {
			from = s.Begin
		} else {
			in[i] = s.Begin >= from
		}
	}
	return in
}

// checkNesting wants spans that lie side by side or one within the other, as
// mayHold has it, and every phase once in a layer of a step. A span of no length
// lies within anything.
func (t *Trace) checkNesting(tr *Track) error {
	var open []*Span // the spans so far that no later one holds, ordered by time
	seen := map[runKey]bool{}
	for i := range tr.Spans {
		s := &tr.Spans[i]
		for len(open) > 0 && open[len(open)-1].Begin >= s.Begin {
			in := open[len(open)-1]
			if in.End > in.Begin && !slices.Contains(mayHold[t.kind(s)], t.kind(in)) {
				return fmt.Errorf("%s lies within %s; want phases around tasks around waits and syncs", t.describe(in),
					t.describe(s))
			}
			open = open[:len(open)-1]
		}
		if len(open) > 0 && open[len(open)-1].End > s.Begin {
			return fmt.Errorf("%s and %s overlap; want one within the other, or neither", t.describe(open[len(open)-1]),
				t.describe(s))
		}
		open = append(open, s)
		if t.kind(s) != Phase {
			continue
		}
		if seen[t.key(s)] {
			return fmt.Errorf("%s is there twice in step %d, layer %d; want it once", t.describe(s), s.Step, s.Layer)
		}
		seen[t.key(s)] = true
	}
	return nil
}

// describe names a span in an error.
func (t *Trace) describe(s *Span) string {
	site := &t.Sites[s.Site]
	return fmt.Sprintf("%s %q (%g to %g)", site.Kind, site.Name, s.Begin, s.End)
}

// runKey is one run of what sites of a name are of: in a layer of a step.
type runKey struct {
	name        string
	step, layer int
}

func (t *Trace) key(s *Span) runKey { return runKey{t.Sites[s.Site].Name, s.Step, s.Layer} }

// checkSyncs wants every sync once in the consumers' tracks of all SMs, or in
// none; tracks that dropped spans may lack those behind their end.
func (t *Trace) checkSyncs() error {
	tracks := t.role(Consumers)
	arrived, whole := map[runKey]int{}, 0 // of SMs that dropped nothing
	for _, tr := range tracks {
		if tr.Dropped == 0 {
			whole++
		}
		own, err := t.arrivals(tr)
		if err != nil {
			return err
		}
		if tr.Dropped == 0 {
			for _, k := range own {
				arrived[k]++
			}
		}
	}
	for _, tr := range tracks {
		own, err := t.arrivals(tr)
		if err != nil {
			return err
		}
		for _, k := range own {
			if arrived[k] != whole {
				return fmt.Errorf("trace: %q of step %d, layer %d is in the track of SM %d, but only in %d of the %d that dropped no spans, not in that of SM %d; want it in all, as all arrive",
					k.name, k.step, k.layer, tr.SM, arrived[k], whole, t.without(k))
			}
		}
	}
	return nil
}

// arrivals are a track's syncs in order.
func (t *Trace) arrivals(tr *Track) (all []runKey, err error) {
	seen := map[runKey]bool{}
	for i := range tr.Spans {
		s := &tr.Spans[i]
		if t.kind(s) != Sync {
			continue
		}
		k := t.key(s)
		if seen[k] {
			return nil, fmt.Errorf("trace: SM %d: %q is there twice in step %d, layer %d; want it once", tr.SM, k.name, s.Step,
				s.Layer)
		}
		seen[k] = true
		all = append(all, k)
	}
	return all, nil
}

// without is the first SM that dropped no spans and lacks a sync, -1 if none.
func (t *Trace) without(k runKey) int {
	for _, tr := range t.role(Consumers) {
		own, err := t.arrivals(tr)
		if err == nil && tr.Dropped == 0 && !slices.Contains(own, k) {
			return tr.SM
		}
	}
	return -1
}
