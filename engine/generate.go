package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Generate answers a request. each (nil for none) is called for every token as it
// comes, on the caller's goroutine, and at the end with what text was held back;
// when it returns false the generation ends, Cancelled. It must not call Generate.
//
// The result is valid with an error too: it holds what was generated until then.
// The error is ctx's when ctx ended, ErrClosed when Close was called meanwhile, a
// *FullError when there was no room to go on; after these the next Generate is as
// good as one of a new Engine. A request that makes no sense, and a prompt that
// does not fit, are refused before anything is launched.
func (e *Engine) Generate(ctx context.Context, r Request, each func(Piece) bool) (Result, error) {
	start := time.Now()
	prompt, err := e.o.encode(&r)
	if err != nil {
		return Result{}, err
	}
	ctx, err = e.enter(ctx)
	if err != nil {
		return Result{}, err
	}
	defer e.leave(e.release)
	g := &generation{e: e, ctx: ctx, prompt: prompt, each: each, answer: e.o.answer(&r, prompt, start)}
	return g.all()
}

// generation is one request being answered.
type generation struct {
	answer
	e      *Engine
	ctx    context.Context
	prompt []int
	each   func(Piece) bool

	logits   []float32
	seen     int  // tokens of this launch that take was given
	deaf     bool // each wants no more
	panicked any  // what each panicked with: it goes on when no launch runs any more
}

func (g *generation) all() (Result, error) {
	q := g.e.seq
	if err := q.become(len(g.prompt)); err != nil {
		return g.res, fmt.Errorf("engine: %w", err)
	}
	reused := min(q.common(g.prompt), g.toScore())
	g.res.Usage.Reused = reused
	if len(g.prompt) > q.limit {
		return g.res, g.full()
	}
	q.keep(reused)
	err := g.launches()
	if !g.deaf {
		if p, ok := g.flush(); ok {
			g.hand(p)
		}
	}
	q.keep(len(g.prompt) + len(g.res.Tokens))
	if g.panicked != nil {
		panic(g.panicked)
	}
	return g.result(), err
}

// progressTokens is after how many tokens of a prompt an Engine tells Request.Progress.
const progressTokens = 256

// launches goes on until there is a reason to end.
func (g *generation) launches() error {
	q := g.e.seq
	for g.res.Finish == "" {
		if g.ctx.Err() != nil {
			return g.cancelled()
		}
		known := slices.Concat(g.prompt, g.res.Tokens)
		if err := q.become(len(known)); err != nil {
			return fmt.Errorf("engine: %w", err)
		}
		feed := known[len(q.tokens):]
		if g.toScore() == len(q.tokens) {
			if err := g.scoreNext(feed); err != nil {
				return err
			}
			continue
		}
		if g.progress != nil && len(feed) > progressTokens {
			if _, err := q.launch(g.ctx, feed[:progressTokens], 1, func(int) bool { return true }); err != nil && g.ctx.Err() == nil {
				return fmt.Errorf("engine: %w", err)
			}
			g.answer.fed(len(q.tokens))
			continue
		}
		n := q.steps(len(known))
		if n < 1 {
			return g.full()
		}
		if g.most > 0 {
			n = min(n, g.most-len(g.res.Tokens))
		}
		chosen := len(g.res.Tokens)
		err := g.launch(feed, min(n, g.e.o.TokensPerLaunch))
		switch {
		case g.res.Finish != "": // whatever else happened: all that was asked for is there
		case g.ctx.Err() != nil && errors.Is(err, g.ctx.Err()):
			return g.cancelled()
		case err != nil:
			return fmt.Errorf("engine: %w", err)
		case len(g.res.Tokens) == chosen:
			return fmt.Errorf("engine: a launch of %d tokens from position %d chose none", len(feed), len(known)-len(feed))
		}
	}
	return nil
}

// launch feeds tokens and takes up to n more: those that the kernel chooses, or
// one drawn from its logits.
func (g *generation) launch(feed []int, n int) error {
	q := g.e.seq
	if !g.draws() {
		g.seen = 0
		chosen, err := q.launch(g.ctx, feed, n, g.take)
		if err != nil {
			return err
		}
		// The session may keep an end token to itself; what it chose beyond a take
		// that was the last is not wanted.
		for g.seen < len(chosen) && g.take(chosen[g.seen]) {
		}
		return nil
	}
	position := len(q.tokens) + len(feed)
	logits, err := g.fed(feed)
	if err != nil || logits == nil {
		return err
	}
	token, err := g.pick(logits, position)
	if err != nil {
		return fmt.Errorf("position %d: %w", position, err)
	}
	g.take(token)
	return nil
}

// fed feeds tokens and returns the logits that follow them; nil when the launch was stopped before.
func (g *generation) fed(feed []int) ([]float32, error) {
	q := g.e.seq
	end := len(q.tokens) + len(feed)
	if _, err := q.launch(g.ctx, feed, 1, func(int) bool { return true }); err != nil {
		return nil, err
	}
	if len(q.tokens) < end {
		return nil, nil // stopped within the prompt
	}
	if g.logits == nil {
		g.logits = make([]float32, g.e.o.Kernel.Config.Vocab)
	}
	return g.logits, q.s.Logits(g.logits)
}

// scoreNext feeds the next token of the prompt alone: its logits are wanted, and a launch leaves those of its last token.
func (g *generation) scoreNext(feed []int) error {
	logits, err := g.fed(feed[:1])
	if err != nil || logits == nil {
		return err
	}
	return g.score(logits)
}

// take adds a chosen token to the result and says whether to go on.
func (g *generation) take(token int) bool {
	if g.res.Finish != "" || g.ctx.Err() != nil {
		return false
	}
	g.seen++
	g.hand(g.add(token))
	if g.deaf && g.res.Finish == "" {
		g.res.Finish = Cancelled
	}
	return g.res.Finish == "" && g.ctx.Err() == nil
}

// hand hands out a piece.
func (g *generation) hand(p Piece) {
	if g.each == nil || g.deaf {
		return
	}
	g.deaf = true // should it panic
	defer func() { g.panicked = recover() }()
	g.e.outside(func() { g.deaf = !g.each(p) })
}

// cancelled ends the generation because the context did.
func (g *generation) cancelled() error {
	g.res.Finish = Cancelled
	if errors.Is(context.Cause(g.ctx), ErrClosed) {
		return ErrClosed
	}
	return g.ctx.Err()
}

// full ends the generation because nothing more fits.
func (g *generation) full() error {
	return g.answer.full(g.e.seq.limit, &g.e.o)
}
