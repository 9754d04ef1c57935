package batch

import (
	"cmp"
	"slices"
)

// A Prefiller's launch has the prompt that had no part in one for longest and, where it takes several sequences, a row
// of each that decodes, and further prompts while there are rows left. Who cannot ride along, since the stepper does
// not choose its token in such a launch, has a part in the next one, which is of a step's rows.

// prefill is such a launch of some of the parts, each with a row so far; nil where there is none to be.
func (s *Scheduler) prefill(parts []part) []part {
	st, ok := s.o.Stepper.(Prefiller)
	if !ok || st.PrefillRows() <= st.Rows() || s.prefilled && len(parts) > 1 {
		return nil
	}
	var prompts, riders []*job
	decodes, decoding := 0, 0 // who decodes, and the tokens they have in the cache
	for _, p := range parts {
		switch {
		case p.j.pending() > 1 && !p.j.scores():
			prompts = append(prompts, p.j)
		case p.j.pending() == 1:
			decodes, decoding = decodes+1, decoding+p.j.cached
			if p.j.rides() && len(riders) < st.PrefillSequences()-1 {
				riders = append(riders, p.j)
			}
		}
	}
	slices.SortStableFunc(prompts, func(a, b *job) int { return cmp.Compare(a.served, b.served) })
	first := slices.IndexFunc(prompts, func(j *job) bool { return j.pending()+len(riders) >= st.PrefillLeast() })
	if first < 0 {
		return nil
	}
	rows, limit := map[*job]int{}, st.PrefillRows()
	for _, j := range riders {
		rows[j] = 1
	}
	used := len(riders)
	for _, j := range slices.Concat(prompts[first:first+1], prompts[:first], prompts[first+1:]) {
		if s.o.Beside != nil && len(parts) > 1 && (decodes > 0 || st.PrefillSequences() == 1) {
			limit = min(limit, max(s.o.Beside(j.cached, decoding), st.Rows()+1))
		}
		if n := min(j.pending(), limit-used); n > 0 && len(rows) < st.PrefillSequences() {
			rows[j] = n
			used += n
		}
	}
	parts = slices.DeleteFunc(parts, func(p part) bool { return rows[p.j] == 0 })
	for i := range parts {
		parts[i].rows = rows[parts[i].j]
	}
	return parts
}

// rides reports whether the job's next token may come from a Prefiller's launch of several sequences: it is the one of
// the highest logit.
func (j *job) rides() bool {
	if j.client.Draws() || j.scores() {
		return false
	}
	rule := j.client.Draw()
	return rule.Modes() == 0
}

// leavesOut reports whether a launch is a Prefiller's and the next one is to be of those that it leaves out: of all
// others where it is of one sequence, else of those that decode.
func (s *Scheduler) leavesOut(parts []part) bool {
	rows, in := 0, map[*job]bool{}
	for _, p := range parts {
		rows, in[p.j] = rows+p.rows, true
	}
	st, ok := s.o.Stepper.(Prefiller)
	if !ok || rows <= st.Rows() {
		return false
	}
	return st.PrefillSequences() == 1 ||
		slices.ContainsFunc(s.running, func(j *job) bool { return !in[j] && j.pending() == 1 })
}
