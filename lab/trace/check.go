package trace

import (
	"fmt"
	"math"
)

// Check says what is wrong with a trace: the first thing found, and what is wanted.
// All that renders a trace wants one that passes; an empty one does.
func (t *Trace) Check() error {
	if t.Unit != Nanoseconds && t.Unit != Steps {
		return fmt.Errorf("trace: the unit is %q; want %q or %q", t.Unit, Nanoseconds, Steps)
	}
	if t.Layers < 0 {
		return fmt.Errorf("trace: %d layers; want 0 or more", t.Layers)
	}
	if t.Stages < 0 {
		return fmt.Errorf("trace: %d stages; want 0 or more", t.Stages)
	}
	for i, s := range t.Sites {
		if err := s.check(); err != nil {
			return fmt.Errorf("trace: site %d (%q): %w", i, s.Name, err)
		}
	}
	for i := range t.Tracks {
		if err := t.checkTrack(i); err != nil {
			return err
		}
	}
	return t.checkSyncs()
}

func (s *Site) check() error {
	switch s.Kind {
	case Phase, Sync, Wait, Task:
	default:
		return fmt.Errorf("its kind is %q; want %q, %q, %q or %q", s.Kind, Phase, Sync, Wait, Task)
	}
	if s.Name == "" {
		return fmt.Errorf("it has no name; want one")
	}
	return checkRole(s.Role)
}

func checkRole(role string) error {
	if role != Consumers && role != Producer {
		return fmt.Errorf("its role is %q; want %q or %q", role, Consumers, Producer)
	}
	return nil
}

// checkTrack looks at track i alone, and at its place behind track i−1.
func (t *Trace) checkTrack(i int) error {
	tr := &t.Tracks[i]
	fault := func(format string, args ...any) error {
		return fmt.Errorf("trace: SM %d, %s: %w", tr.SM, tr.Role, fmt.Errorf(format, args...))
	}
	if err := checkRole(tr.Role); err != nil {
		return fault("%w", err)
	}
	if tr.SM < 0 || tr.Dropped < 0 {
		return fault("SM %d, %d spans dropped; want neither below 0", tr.SM, tr.Dropped)
	}
	if i > 0 {
		if before := &t.Tracks[i-1]; before.SM > tr.SM || before.SM == tr.SM && before.Role >= tr.Role {
			return fault("this track is behind that of SM %d, %s; want them sorted by SM, then consumers before producer, each once", before.SM, before.Role)
		}
	}
	for n := range tr.Spans {
		if err := t.checkSpan(tr, n); err != nil {
			return fault("span %d: %w", n, err)
		}
	}
	if err := t.checkNesting(tr); err != nil {
		return fault("%w", err)
	}
	return nil
}

// checkSpan looks at span n of a track alone, and at its End behind span n−1's.
func (t *Trace) checkSpan(tr *Track, n int) error {
	s := &tr.Spans[n]
	if s.Site < 0 || s.Site >= len(t.Sites) {
		return fmt.Errorf("its site is %d; want 0 to %d", s.Site, len(t.Sites)-1)
	}
	site := &t.Sites[s.Site]
	switch {
	case site.Role != tr.Role:
		return fmt.Errorf("%q is a site of the role %q; want one of the track's", site.Name, site.Role)
	case !(s.Begin >= 0) || !(s.End >= s.Begin) || math.IsInf(s.End, 1): // NaN, too
		return fmt.Errorf("%q lasts from %g to %g; want 0 ≤ begin ≤ end", site.Name, s.Begin, s.End)
	case s.Step < 0 || s.Layer < -1 || s.Layer > t.Layers:
		return fmt.Errorf("%q is of step %d, layer %d; want a step of 0 or more and a layer of -1 to %d", site.Name, s.Step,
			s.Layer, t.Layers)
	case n > 0 && tr.Spans[n-1].End > s.End:
		return fmt.Errorf("%q ends at %g, the span before it at %g; want spans ordered by their end", site.Name, s.End,
			tr.Spans[n-1].End)
	}
	return nil
}
