package batch

import (
	"context"
	"fmt"
)

// Step runs one launch, if there are jobs. It returns ctx's error when ctx ended,
// with which no job ends, or why the launch failed, with which all jobs ended that
// ran; those in the queue go on.
func (s *Scheduler) Step(ctx context.Context) error {
	if s.closed {
		panic("BUG: a step of a closed scheduler")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.sweep()
	s.admit()
	if len(s.running) == 0 {
		return nil
	}
	for _, j := range s.running {
		s.follow(j)
	}
	parts, steps := s.plan()
	l := &launch{s: s, parts: parts}
	chosen, err := checked(ctx, s.o.Stepper, l.request(steps))
	if err != nil && !ended(ctx, err) {
		s.fail(fmt.Errorf("batch: a launch of %d sequences failed: %w", len(parts), err))
		return err
	}
	for _, tokens := range chosen[min(l.seen, len(chosen)):] {
		l.each(tokens)
	}
	l.finish(len(chosen))
	s.sweep()
	return err
}

// launch is one launch of some parts.
type launch struct {
	s     *Scheduler
	parts []part
	seen  int // steps whose tokens were handed out
}

func (l *launch) request(steps int) StepRequest {
	r := StepRequest{Steps: steps, Each: l.each}
	for _, p := range l.parts {
		r.Sequences = append(r.Sequences, Sequence{New: p.j.tokens[p.j.cached : p.j.cached+p.rows : p.j.cached+p.rows], Cached: p.j.cached, Pages: p.j.pages})
	}
	return r
}

// each hands out the tokens of a step and says whether the launch is to go on.
func (l *launch) each(chosen []int) bool {
	going := true
	for i, p := range l.parts {
		j := p.j
		if l.seen == 0 && !p.chooses() || j.client.Draws() {
			continue
		}
		if !j.done && j.client.Gone() {
			j.done = true
		}
		if !j.done {
			j.take(chosen[i])
		}
		going = going && !j.done
	}
	l.seen++
	return going && !l.s.o.Interrupt()
}

// finish draws the tokens that are to be drawn and says what the cache holds after
// so many steps.
func (l *launch) finish(steps int) {
	failed := map[*job]error{}
	for i, p := range l.parts {
		if steps == 0 {
			l.s.advance(p.j, p.j.cached)
			continue
		}
		cached := p.j.cached + p.rows + steps - 1
		p.j.stats.Fed += p.rows + steps - 1
		if p.chooses() && p.j.client.Draws() {
			if err := l.draw(i, p.j); err != nil {
				failed[p.j] = err
			}
		}
		l.s.advance(p.j, cached)
	}
	for _, p := range l.parts {
		if err := failed[p.j]; err != nil {
			l.s.leave(p.j, err)
		}
	}
}

// draw lets a client draw its next token.
func (l *launch) draw(i int, j *job) error {
	s := l.s
	if j.done = j.client.Gone(); j.done {
		return nil
	}
	if s.logits == nil {
		s.logits = make([]float32, s.o.Vocab)
	}
	if err := s.o.Stepper.Logits(i, s.logits); err != nil {
		return err
	}
	token, err := j.client.Pick(s.logits, len(j.tokens))
	if err != nil {
		return fmt.Errorf("position %d: %w", len(j.tokens), err)
	}
	j.take(token)
	return nil
}
