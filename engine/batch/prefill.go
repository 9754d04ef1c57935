package batch

import (
	"cmp"
	"slices"
)

// A Prefiller's launch has the prompt with the fewest tokens left, so that first tokens come as early as they can on
// average. Every fourth one has the oldest prompt instead, which no others can hold up. Where it takes several
// sequences it has a row of each that decodes, too, and further prompts while there are rows left. With Options.Piece
// it has one piece alone (sharePieces). Who cannot ride along, since the stepper does not choose its token in such a
// launch, has a part in the next one, which is of a step's rows. There a prompt's last token is fed, too, where the
// token behind it is drawn, has log-probabilities, penalties or a mask: the kernel chooses in a step, while the host
// takes 2 to 10 ms for all logits of a large vocabulary.

// oldestFirst is of how many launches of prompts the oldest prompt comes first in one.
const oldestFirst = 4

// prefill is such a launch of some of the parts, each with a row so far; nil where there is none to be.
func (s *Scheduler) prefill(parts []part) []part {
	st, ok := s.o.Stepper.(Prefiller)
	if !ok || st.PrefillRows() <= st.Rows() || s.prefilled && len(parts) > 1 {
		return nil
	}
	feeds := func(j *job) int { return j.pending() - j.held(st) }
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
	if s.prefills%oldestFirst < oldestFirst-1 { // else in the order of Add
		slices.SortStableFunc(prompts, func(a, b *job) int { return cmp.Compare(a.pending(), b.pending()) })
	}
	first := slices.IndexFunc(prompts, func(j *job) bool { return feeds(j)+len(riders) >= st.PrefillLeast() })
	if first < 0 {
		return nil
	}
	rows, limit := map[*job]int{}, st.PrefillRows()
	for _, j := range riders {
		rows[j] = 1
	}
	used := len(riders)
	for _, j := range slices.Concat(prompts[first:first+1], prompts[:first], prompts[first+1:]) {
		if used >= limit || len(rows) == st.PrefillSequences() {
			break
		}
		if s.o.Beside != nil && len(parts) > 1 && (decodes > 0 || st.PrefillSequences() == 1) {
			limit = min(limit, max(s.o.Beside(j.cached, decoding, decodes > len(riders)), st.Rows()+1))
		}
		if n := min(feeds(j), limit-used); n > 0 {
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
func (j *job) rides() bool { return !j.client.Draws() && !j.scores() && j.highest() }

// highest reports whether the job's next token is the one of the highest logit, and nothing else is wanted of it.
func (j *job) highest() bool {
	rule := j.client.Draw()
	return rule.Modes() == 0
}

// held is how many of the job's last tokens a Prefiller's launch leaves to a step of rows.
func (j *job) held(st Prefiller) int {
	if st.PrefillDraws() || j.client.Draws() || j.highest() {
		return 0
	}
	return 1
}

// beyondStep reports whether a launch has more rows than a step: it is a Prefiller's.
func (s *Scheduler) beyondStep(parts []part) bool {
	rows := 0
	for _, p := range parts {
		rows += p.rows
	}
	return rows > s.o.Stepper.Rows()
}

// leavesOut reports whether a launch is a Prefiller's and the next one is to be of those that it leaves out: of all
// others where it is of one sequence, else of those that decode or have one token left to feed.
func (s *Scheduler) leavesOut(parts []part) bool {
	in := map[*job]int{}
	for _, p := range parts {
		in[p.j] = p.rows
	}
	st, ok := s.o.Stepper.(Prefiller)
	if !ok || !s.beyondStep(parts) {
		return false
	}
	return st.PrefillSequences() == 1 ||
		slices.ContainsFunc(s.running, func(j *job) bool { return j.pending()-in[j] == 1 })
}
