package runtime

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mkgen/mkgen/pipeline"
)

// HangError says that a launch made no step for too long and was given up. The
// session goes on from the position at which that launch began; the tokens of
// the launch are lost.
type HangError struct {
	After time.Duration // without a step
	Pos   int           // the position whose step did not end
	// Stuck is, for each SM and role, the first of its warps that gave up a wait,
	// by SM and then by role.
	Stuck []pipeline.Stuck
}

// Error is a headline and a line for each wait, with the SMs that stood in it.
func (e *HangError) Error() string {
	text := fmt.Sprintf("the kernel made no step for %v and was given up at position %d", e.After, e.Pos)
	for _, g := range e.groups() {
		text += "\n  " + g.String()
	}
	return text
}

// waitGroup is SMs that wait for the same in the same place.
type waitGroup struct {
	first pipeline.Stuck
	sms   []int
}

func (g waitGroup) String() string {
	s := g.first
	return fmt.Sprintf("SM %s: %s in %s, layer %d, %s (%s)", ranges(g.sms), s.Site.Role, where(s.Site), s.Layer, s.Waits(),
		s.Site.Line)
}

// where is the phase and the task around a wait.
func where(s pipeline.Site) string {
	if len(s.Regions) == 0 {
		return "the step's frame"
	}
	return fmt.Sprintf("%q", strings.Join(s.Regions, " / "))
}

// groups orders the waits: those of the fewest SMs first, since they differ from
// what all others wait for.
func (e *HangError) groups() []waitGroup {
	var out []waitGroup
	for _, s := range e.Stuck {
		i := slices.IndexFunc(out, func(g waitGroup) bool {
			f := g.first
			return f.Site.Role == s.Site.Role && f.Layer == s.Layer && f.Waits() == s.Waits() && where(f.Site) == where(s.Site)
		})
		if i < 0 {
			out = append(out, waitGroup{first: s})
			i = len(out) - 1
		}
		out[i].sms = append(out[i].sms, s.SM)
	}
	slices.SortStableFunc(out, func(a, b waitGroup) int { return cmp.Compare(len(a.sms), len(b.sms)) })
	return out
}

// ranges writes ascending numbers as "0-3, 7".
func ranges(ns []int) string {
	var parts []string
	for i := 0; i < len(ns); {
		j := i
		for j+1 < len(ns) && ns[j+1] == ns[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(ns[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", ns[i], ns[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

// firstOfRoles keeps for each SM and role the warp that gave up first: others of
// the role may only have waited for it.
func firstOfRoles(all []pipeline.Stuck) []pipeline.Stuck {
	var out []pipeline.Stuck
	for _, s := range all {
		i := slices.IndexFunc(out, func(o pipeline.Stuck) bool { return o.SM == s.SM && o.Site.Role == s.Site.Role })
		if i < 0 {
			out = append(out, s)
		} else if int32(s.Time-out[i].Time) < 0 {
			out[i] = s
		}
	}
	slices.SortStableFunc(out, func(a, b pipeline.Stuck) int {
		return cmp.Or(cmp.Compare(a.SM, b.SM), cmp.Compare(a.Site.Role, b.Site.Role))
	})
	return out
}

// recover reads the records of an abandoned launch and puts the buffers back so
// that the next launch finds a grid barrier that nobody has passed.
func (s *runner) recover(l *launch) error {
	n := s.mk.Options.SMs * s.warps() * pipeline.RecordWords
	records, err := s.read("records", 0, n)
	if err != nil {
		return s.fail(err)
	}
	if err := s.zero(append(s.zeroed(), "records", "barrier", "epoch")...); err != nil {
		return s.fail(err)
	}
	for i := range pipeline.AbortWords {
		if err := s.dev.Poke("abort", i, 0); err != nil {
			return s.fail(err)
		}
	}
	return &HangError{After: s.HangTimeout, Pos: l.at, Stuck: firstOfRoles(pipeline.Decode(records, s.warps(), s.sites()))}
}
