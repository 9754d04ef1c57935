package gate

import (
	"fmt"
	"maps"
	"slices"
)

// PrefillLaunches counts the launches of prefill kernels that a gate judges in one run over the reference's sequences.
type PrefillLaunches struct {
	One       int   `json:"one"`              // of one sequence
	Several   int   `json:"several"`          // of several
	Mixed     int   `json:"mixed"`            // of those of several, some that decode beside some of more tokens
	Tokens    int   `json:"tokens"`           // of the largest
	Sequences int   `json:"sequences"`        // that a launch may have
	Chunks    []int `json:"chunks,omitempty"` // sizes of those that some sequences came in, ascending
}

// Count counts a launch of these parts.
func (l *PrefillLaunches) Count(step []Part) {
	decodes, prompts := 0, 0
	for _, p := range step {
		switch {
		case p.To-p.From > 1:
			prompts++
		case p.From > 0:
			decodes++
		}
	}
	if len(step) == 1 {
		l.One++
	} else {
		l.Several++
	}
	if decodes > 0 && prompts > 0 {
		l.Mixed++
	}
	l.Tokens = max(l.Tokens, rowsOf(step))
}

// Problems says which kinds of launches are missing that such kernels have.
func (l *PrefillLaunches) Problems() (all []string) {
	if l.One == 0 {
		all = append(all, "no launch of a prefill kernel has one sequence")
	}
	const more = ": want more sequences in the reference, of different lengths"
	switch {
	case l.Sequences < 2 || l.Mixed > 0:
	case l.Several == 0:
		all = append(all, fmt.Sprintf("no launch of a prefill kernel has several sequences, of up to %d", l.Sequences)+more)
	default:
		all = append(all, "no launch of a prefill kernel has sequences that decode beside a prompt"+more)
	}
	return all
}

// launches are those so far, of these steps; nil where they are not counted.
func (s *RaggedSubject) launches(ref *Reference, steps [][]Part) *PrefillLaunches {
	if s.Launches == nil {
		return nil
	}
	l, chunks, came := s.Launches(), prefillChunks(lengths(ref)), map[int]bool{}
	for _, p := range slices.Concat(steps...) {
		if n := p.To - p.From; n == min(chunks[p.Sequence], s.Rows) {
			came[n] = true
		}
	}
	l.Chunks = slices.Sorted(maps.Keys(came))
	return &l
}

// withLaunches adds them to a record, which does not pass where a kind of them is missing.
func (r *Record) withLaunches(l *PrefillLaunches) {
	if l == nil {
		return
	}
	r.Launches = l
	r.Reasons = append(r.Reasons, l.Problems()...)
	r.Passed = r.Passed && len(r.Reasons) == 0
}
