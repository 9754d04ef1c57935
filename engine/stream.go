package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/tasks/draw"
)

// Stream is a request that an Engine is answering. Its pieces are kept until somebody
// takes them, so a reader who is late holds nobody up. It may be used by several
// goroutines; each piece goes to one of them.
type Stream struct {
	e      *Engine
	ctx    context.Context
	cancel context.CancelFunc
	prompt []int
	a      answer // the worker's

	unwatch func() bool // ends the watch over ctx

	fresh []Piece // taken and not handed out; the worker's

	mu     sync.Mutex
	cond   sync.Cond
	pieces []Piece // not taken yet
	held   []Piece // whose log-probabilities are to come
	scored []sampling.Logprobs
	ended  bool
	res    Result
	err    error
}

func newStream(ctx context.Context, e *Engine, prompt []int, a answer) *Stream {
	s := &Stream{e: e, prompt: prompt, a: a}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.cond.L = &s.mu
	return s
}

// Next waits for the next piece. ok is false when there is none any more.
func (s *Stream) Next() (p Piece, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pieces) == 0 && !s.ended {
		s.cond.Wait()
	}
	if len(s.pieces) == 0 {
		return Piece{}, false
	}
	p = s.pieces[0]
	s.pieces = s.pieces[1:]
	return p, true
}

// Pieces are the pieces to come, until the last.
func (s *Stream) Pieces() iter.Seq[Piece] {
	return func(yield func(Piece) bool) {
		for p, ok := s.Next(); ok && yield(p); p, ok = s.Next() {
		}
	}
}

// Wait waits for the end and returns all of the answer, whoever took the pieces. The
// result is valid with an error too: it holds what was generated until then. The
// error is the context's, ErrClosed, a *FullError, or why a launch failed.
func (s *Stream) Wait() (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ended {
		s.cond.Wait()
	}
	return s.res, s.err
}

// Cancel ends the request as the end of its context does. After the end it does
// nothing.
func (s *Stream) Cancel() { s.cancel() }

// hand adds pieces. Those that have a token and, with later, no log-probabilities wait for them.
func (s *Stream) hand(later bool, pieces ...Piece) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range pieces {
		if later && p.Token != NoToken && p.Logprobs == nil {
			s.held = append(s.held, p)
			continue
		}
		if p.Logprobs != nil {
			s.scored = append(s.scored, *p.Logprobs)
		}
		s.pieces = append(s.pieces, p)
	}
	if len(s.pieces) > 0 {
		s.cond.Broadcast()
	}
}

// score adds the pieces that these are the log-probabilities of.
func (s *Stream) score(all []sampling.Logprobs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range all {
		s.held[i].Logprobs = &all[i]
	}
	s.scored = append(s.scored, all...)
	s.pieces = append(s.pieces, s.held[:len(all)]...)
	s.held = slices.Delete(s.held, 0, len(all))
	s.cond.Broadcast()
}

// waits reports whether pieces wait for their log-probabilities.
func (s *Stream) waits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held) > 0
}

// client is a Stream as the scheduler sees it.
type client struct{ *Stream }

func (c client) Want() int {
	if c.a.most == 0 {
		return c.e.o.KVTokens + 1 // more than ever fits
	}
	return c.a.most - len(c.a.res.Tokens)
}

func (c client) Draws() bool { return c.a.draws() }

func (c client) Draw() draw.Rule { return c.a.draw() }

func (c client) Pick(logits []float32, position int) (int, error) {
	return c.a.pick(logits, position)
}

func (c client) Drafts() bool {
	return c.a.sampling.Greedy() && c.a.top < 0 && !c.a.changes() && c.a.mask == nil && !c.a.draws()
}

func (c client) ToScore() (from, tops int) { return c.a.toScore(), c.a.scoredTop }

func (c client) Scored(all []sampling.Logprobs) { c.score(all) }

func (c client) Score(l sampling.Logprobs) {
	c.a.res.PromptLogprobs = append(c.a.res.PromptLogprobs, l)
}

func (c client) Fed(tokens int) {
	if len(c.a.res.Tokens) == 0 { // not when a sequence that was sent back is fed again
		c.a.fed(tokens)
	}
}

func (c client) Take(token int) bool {
	c.fresh = append(c.fresh, c.a.add(token))
	if len(c.a.res.Tokens) == 1 {
		c.HandOut() // somebody has waited for all of the prompt
	}
	return c.a.res.Finish == "" && c.a.failed == nil
}

func (c client) HandOut() {
	if len(c.fresh) == 0 {
		return
	}
	c.a.speak(c.fresh)
	c.hand(c.a.top >= 0, c.fresh...)
	clear(c.fresh)
	c.fresh = c.fresh[:0]
}

func (c client) Gone() bool { return c.ctx.Err() != nil }

func (c client) Leave(stats batch.Stats, err error) {
	c.a.res.Usage.Reused, c.a.res.Usage.Preempted = stats.Reused, stats.Preempted
	c.a.res.Usage.Drafted, c.a.res.Usage.Accepted = stats.Drafted, stats.Accepted
	err = c.why(err)
	if p, ok := c.a.flush(); ok {
		c.hand(false, p)
	}
	c.unwatch()
	c.cancel()
	c.e.note()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.res, c.err, c.ended = c.a.result(), err, true
	c.res.Logprobs = c.scored
	c.cond.Broadcast()
}

// why says how the answer ended, and what error that is.
func (c client) why(err error) error {
	switch {
	case err != nil && c.waits(): // for log-probabilities that are not to come, perhaps of the last tokens
		c.a.res.Finish = ""
	case c.a.res.Finish != "": // whatever else happened: all that was asked for is there
		return nil
	case err == nil && c.a.failed != nil:
		err = c.a.failed
	case err == nil:
		c.a.res.Finish = Cancelled
		return c.ctx.Err()
	case errors.Is(err, ErrClosed):
		c.a.res.Finish = Cancelled
		return ErrClosed
	case errors.Is(err, batch.ErrFull):
		return c.a.full(c.e.KVTokens(), &c.e.o)
	}
	return fmt.Errorf("engine: %w", err)
}
