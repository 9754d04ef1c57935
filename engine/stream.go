package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
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

	mu     sync.Mutex
	cond   sync.Cond
	pieces []Piece // not taken yet
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

// hand adds a piece. With later nobody is woken for it yet.
func (s *Stream) hand(p Piece, later bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pieces = append(s.pieces, p)
	if !later {
		s.cond.Broadcast()
	}
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

func (c client) Ahead(token int) bool { return c.a.goAhead(token) }

func (c client) Scored(l sampling.Logprobs) { c.a.next = &l }

func (c client) Score(l sampling.Logprobs) {
	c.a.res.PromptLogprobs = append(c.a.res.PromptLogprobs, l)
}

func (c client) Fed(tokens int) {
	if len(c.a.res.Tokens) == 0 { // not when a sequence that was sent back is fed again
		c.a.fed(tokens)
	}
}

// Take wakes nobody for a token with log-probabilities: a launch has many of them when it has ended, and the next one
// waits until all are given. Ran does.
func (c client) Take(token int) bool {
	scored := c.a.next != nil
	c.hand(c.a.add(token), scored)
	return c.a.res.Finish == "" && c.a.failed == nil
}

func (c client) Ran() { c.cond.Broadcast() }

func (c client) Gone() bool { return c.ctx.Err() != nil }

func (c client) Leave(stats batch.Stats, err error) {
	c.a.res.Usage.Reused, c.a.res.Usage.Preempted = stats.Reused, stats.Preempted
	c.a.res.Usage.Drafted, c.a.res.Usage.Accepted = stats.Drafted, stats.Accepted
	err = c.why(err)
	if p, ok := c.a.flush(); ok {
		c.hand(p, false)
	}
	c.unwatch()
	c.cancel()
	c.e.note()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.res, c.err, c.ended = c.a.result(), err, true
	c.cond.Broadcast()
}

// why says how the answer ended, and what error that is.
func (c client) why(err error) error {
	switch {
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
