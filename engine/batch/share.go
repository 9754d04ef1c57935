package batch

import (
	"slices"
	"sort"

	"github.com/mkgen/mkgen/tasks/draw"
)

// part is what a job does in a launch.
type part struct {
	j      *job
	rows   int   // those of drafts, too
	drafts []int // fed behind the job's last token
}

// chooses reports whether the part ends with the job's last token.
func (p *part) chooses() bool { return p.rows == p.j.pending()+len(p.drafts) }

// share gives every running job its rows of the next step, in order. Those that
// wait for another one get none and are left out.
func (s *Scheduler) share() []part {
	if s.o.Piece > 0 {
		return s.sharePieces()
	}
	parts, short := make([]part, 0, len(s.running)), s.turnOfShort()
	for _, j := range s.running {
		if j.short == short && !s.waits(j, parts) {
			parts = append(parts, part{j: j, rows: 1})
		}
	}
	if all := s.prefill(parts); all != nil {
		return all
	}
	left := s.o.Stepper.Rows() - len(parts)
	for i := 0; left > 0; i++ {
		before := left
		for k := range parts {
			p := &parts[(k+s.turn)%len(parts)]
			if left > 0 && p.rows < p.j.pending() {
				p.rows++
				left--
			}
		}
		if left == before {
			break
		}
	}
	if s.o.DraftRows > 0 {
		s.draft(parts)
	}
	return parts
}

// waits reports whether one of the parts before computes the page that the job
// would have to compute next, so that it can have it afterwards.
func (s *Scheduler) waits(j *job, parts []part) bool {
	end := j.cached + s.o.Page
	if j.cached != len(j.pages)*s.o.Page || end >= len(j.tokens) || end > j.toScore() {
		return false
	}
	return slices.ContainsFunc(parts, func(p part) bool {
		return p.j.cursor.Same(&j.cursor) && len(p.j.tokens) >= end &&
			slices.Equal(p.j.tokens[j.cached:end], j.tokens[j.cached:end])
	})
}

// plan decides the next launch and takes the pages for it; jobs for which there are
// none are sent back.
func (s *Scheduler) plan() (parts []part, steps int) {
	for {
		parts = s.share()
		steps = s.steps(parts)
		if s.reserve(parts, steps) || undraft(parts) && s.reserve(parts, steps) {
			if s.turn++; s.beyondStep(parts) {
				s.prefills++
			}
			s.prefilled = s.leavesOut(parts)
			return parts, steps
		}
		s.preempt()
	}
}

// steps is how many steps a launch of these parts can have: several when each
// feeds the token that it chose, as long as none can have enough before the end, and
// there are pages.
func (s *Scheduler) steps(parts []part) int {
	n := s.o.StepsPerLaunch
	if s.o.Piece > 0 && len(parts) < len(s.running) {
		return 1 // others have none of its rows
	}
	if _, mixed := s.kinds(); mixed {
		return 1
	}
	for _, p := range parts {
		if p.j.pending() > 1 || len(p.drafts) > 0 || p.j.client.Draws() {
			return 1
		}
		rule := p.j.client.Draw()
		if rule.Tops() >= 0 {
			n = min(n, draw.ScoredSteps)
		}
		n = min(n, p.j.client.Want(), s.limit-p.j.cached, s.room(p.j)+1)
	}
	there := s.available()
	return max(1, sort.Search(n, func(i int) bool { return s.need(parts, i+1) > there }))
}

// need is how many pages more a launch takes.
func (s *Scheduler) need(parts []part, steps int) int {
	n := 0
	for _, p := range parts {
		n += max(0, s.pagesOf(p.j.cached+p.rows+steps-1)-len(p.j.pages))
	}
	return n
}

// reserve takes the pages for a launch, all or none.
func (s *Scheduler) reserve(parts []part, steps int) bool {
	need := s.need(parts, steps)
	if need > s.available() {
		return false
	}
	s.tree.Evict(need - s.pool.Free())
	for _, p := range parts {
		taken, err := s.pool.Take(max(0, s.pagesOf(p.j.cached+p.rows+steps-1)-len(p.j.pages)))
		if err != nil {
			panic("BUG: " + err.Error())
		}
		p.j.pages = append(p.j.pages, taken...)
	}
	return true
}
