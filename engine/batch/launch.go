package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/kv"
)

// Step runs one launch, if there are jobs. It returns ctx's error when ctx ended,
// with which no job ends, or why the launch failed, with which all jobs ended that
// ran; those in the queue go on. A job whose next token is too much for the kernel even
// alone ends with the stepper's error, and Step returns nil.
func (s *Scheduler) Step(ctx context.Context) error {
	if s.closed {
		panic("BUG: a step of a closed scheduler")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.sweep()
	s.outgrow()
	s.admit()
	if len(s.running) == 0 {
		s.handOut()
		return nil
	}
	for _, j := range s.running {
		s.follow(j)
	}
	l, chosen, err := s.run(ctx)
	if tooMuch(err) {
		s.leave(l.parts[0].j, fmt.Errorf("batch: %w", err))
		return nil
	} else if err != nil && !ended(ctx, err) {
		s.fail(fmt.Errorf("batch: a launch of %d sequences failed: %w", len(l.parts), err))
		return err
	}
	l.ended = true
	for _, tokens := range chosen[min(l.seen, len(chosen)):] {
		l.each(tokens)
	}
	l.finish(len(chosen))
	s.sweep()
	return err
}

// run runs the next launch: of one step where several are too much for the kernel, of
// fewer parts where these are, and of half of one that is too much alone. An error that is
// tooMuch is that of one row alone.
func (s *Scheduler) run(ctx context.Context) (l *launch, chosen [][]int, err error) {
	parts, steps := s.plan()
	for {
		l = &launch{s: s, parts: parts, drafts: s.draftRoom(parts) > 0, failed: map[*job]error{}}
		if chosen, err = checked(ctx, s.o.Stepper, l.request(steps)); !tooMuch(err) {
			break
		}
		alone := len(parts) == 1
		if steps == 1 && alone && parts[0].rows == 1 {
			break
		}
		switch {
		case steps > 1:
			steps = 1
		case alone:
			parts[0].halve()
		default:
			parts = s.without(parts)
		}
		for _, p := range parts {
			s.shorten(p.j, s.pagesOf(p.j.cached+p.rows))
		}
	}
	l.begin()
	for _, p := range parts {
		p.j.served = s.turn
	}
	return l, chosen, err
}

// halve takes the drafts from a part of several rows, or, where there are none, half of its rows.
func (p *part) halve() {
	if n := len(p.drafts); n > 0 {
		p.rows, p.drafts = p.rows-n, nil
	} else {
		p.rows /= 2
		p.j.halved = true
	}
}

// tooMuch reports whether err says that the kernel cannot do so much at once.
func tooMuch(err error) bool { return errors.As(err, new(kv.LimitError)) }

// without is some parts but the one that had rows last, of several the newest: it gives
// its new pages back and comes first in a later launch.
func (s *Scheduler) without(parts []part) []part {
	last := 0
	for i, p := range parts {
		if p.j.served >= parts[last].j.served {
			last = i
		}
	}
	s.advance(parts[last].j, parts[last].j.cached)
	return slices.Delete(parts, last, last+1)
}

// launch is one launch of some parts.
type launch struct {
	s     *Scheduler
	parts []part
	steps int // at most
	seen  int // steps whose tokens were taken
	begun bool
	ended bool

	drafts bool    // there would be rows for drafts
	late   bool    // tokens are handed out when it has ended, behind log-probabilities of prompts
	taken  []taken // by part
	failed map[*job]error
}

func (l *launch) request(steps int) StepRequest {
	l.steps = steps
	r := StepRequest{Steps: steps, Begun: l.begin, Each: l.each, Mask: l.mask, Quiet: true, Short: l.parts[0].j.short}
	l.taken = make([]taken, len(l.parts))
	for i, p := range l.parts {
		r.Quiet = r.Quiet && !p.chooses() && !p.j.scores()
		q := Sequence{New: p.fed(), Cached: p.j.cached, Pages: p.j.pages}
		if p.chooses() && !p.j.client.Draws() {
			q.Draw = p.j.client.Draw()
		}
		if q.Draw.Tops() >= 0 {
			l.taken[i] = taken{j: p.j, at: len(p.j.tokens)}
		}
		q.Scored, q.ScoredTops = p.scored()
		l.late = l.late || q.Scored != nil
		r.Sequences = append(r.Sequences, q)
	}
	return r
}

// begin does what has waited for the launch to run.
func (l *launch) begin() {
	if !l.begun {
		l.begun = true
		l.s.handOut()
		for _, p := range l.parts {
			if p.chooses() {
				p.j.grow(l.steps + len(p.drafts))
			}
		}
	}
}

// scored are the prompt's tokens that the part's rows have scores of.
func (p *part) scored() (tokens []int, tops int) {
	from, tops := p.j.client.ToScore()
	if end := min(p.j.cached+p.rows, p.j.prompt-1); from < end {
		tokens = slices.Repeat([]int{-1}, p.rows)
		for ; from < end; from++ {
			tokens[from-p.j.cached] = p.j.tokens[from+1]
		}
	}
	return tokens, tops
}

// mask is what part i may choose next.
func (l *launch) mask(i int) []uint32 {
	rule := l.parts[i].j.client.Draw()
	return rule.Mask
}

// fed is the tokens of a part's rows.
func (p *part) fed() []int {
	end := p.j.cached + p.rows - len(p.drafts)
	return append(p.j.tokens[p.j.cached:end:end], p.drafts...)
}

// each gives jobs the tokens of a step and says whether the launch is to go on.
func (l *launch) each(chosen []int) bool {
	if l.late && !l.ended {
		return !l.s.o.Interrupt()
	}
	going := true
	for i, p := range l.parts {
		j := p.j
		if l.seen == 0 && !p.chooses() || j.client.Draws() || len(p.drafts) > 0 {
			continue
		}
		if !j.done && j.client.Gone() {
			j.done = true
		}
		if !j.done && l.seen == 0 {
			if err := l.score(i, p); err != nil {
				l.failed[j], j.done = err, true
			}
		}
		if !j.done {
			l.take(i, j, chosen[i])
		}
		going = going && !j.done && !(l.drafts && l.s.drafting(j))
	}
	if l.seen++; !l.ended && l.seen < l.steps {
		l.s.handOut() // behind the last step it is the next launch that matters
	}
	return going && !l.s.o.Interrupt()
}

// take gives a job the token that the kernel chose for part i, and notes it where its log-probabilities are wanted.
func (l *launch) take(i int, j *job, token int) {
	if one := &l.taken[i]; one.j != nil {
		one.tokens = append(one.tokens, token)
	}
	l.s.take(j, token)
}

// finish draws the tokens that are to be drawn and says what the cache holds after
// n steps.
func (l *launch) finish(steps int) {
	failed := l.failed
	for i, p := range l.parts {
		if steps == 0 {
			l.s.advance(p.j, p.j.cached)
			continue
		}
		cached := p.j.cached + p.rows + steps - 1
		p.j.stats.Fed += p.rows + steps - 1
		if len(p.drafts) > 0 {
			accepted, err := l.accept(i, p)
			if err != nil {
				failed[p.j] = err
			}
			cached += accepted - len(p.drafts)
		}
		draws := p.chooses() && p.j.client.Draws() // as each was told: with the last score it may change
		err := l.score(i, p)
		if err == nil && draws {
			err = l.draw(i, p.j)
		}
		if err != nil {
			failed[p.j] = err
		}
		l.s.advance(p.j, cached)
		if p.j.cached < p.j.prompt {
			p.j.client.Fed(p.j.cached)
		}
	}
	l.s.score(l.taken)
	for _, p := range l.parts {
		if err := cmp.Or(failed[p.j], p.j.unscored); err != nil {
			l.s.leave(p.j, err)
		}
	}
}

// score gives a client the log-probabilities of its prompt's tokens that this launch has made, once.
func (l *launch) score(i int, p part) error {
	tokens, tops := p.scored()
	if tokens != nil {
		l.s.settle() // TokenLogprobs takes the memory that those of the launch before are made of
	}
	for k, token := range tokens {
		if token < 0 {
			continue
		}
		scores, err := l.s.o.Stepper.TokenLogprobs(i, k, token, tops)
		if err != nil {
			return fmt.Errorf("position %d: %w", p.j.cached+k+1, err)
		}
		p.j.client.Score(scores)
	}
	return nil
}

// memory is room for the logits of a row.
func (s *Scheduler) memory() []float32 {
	if s.logits == nil {
		s.logits = make([]float32, s.o.Vocab)
	}
	return s.logits
}

// draw lets a client draw its next token.
func (l *launch) draw(i int, j *job) error {
	s := l.s
	if j.done = j.client.Gone(); j.done {
		return nil
	}
	if err := s.o.Stepper.Logits(i, s.memory()); err != nil {
		return err
	}
	token, err := j.client.Pick(s.logits, len(j.tokens))
	if err != nil {
		return fmt.Errorf("position %d: %w", len(j.tokens), err)
	}
	s.take(j, token)
	return nil
}
