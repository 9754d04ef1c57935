package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mkgen/mkgen/megakernel/runtime/sampling"
	"github.com/mkgen/mkgen/models/tokenizer"
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
	prompt, err := e.encode(&r)
	if err != nil {
		return Result{}, err
	}
	ctx, err = e.enter(ctx)
	if err != nil {
		return Result{}, err
	}
	defer e.leave(e.release)
	g := &generation{e: e, ctx: ctx, sampling: r.Sampling, prompt: prompt, most: r.MaxTokens, each: each, start: start, stop: stopper{stops: r.Stop}}
	if e.o.Text != nil {
		g.decoder = e.o.Text.NewDecoder(true)
	}
	return g.all()
}

// generation is one request being answered.
type generation struct {
	e        *Engine
	ctx      context.Context
	sampling sampling.Params
	prompt   []int
	most     int // tokens to choose at most, 0 for no limit
	each     func(Piece) bool
	start    time.Time

	decoder  *tokenizer.Decoder // nil without a tokenizer
	stop     stopper
	text     strings.Builder
	logits   []float32
	seen     int  // tokens of this launch that take was given
	deaf     bool // each wants no more
	panicked any  // what each panicked with: it goes on when no launch runs any more
	res      Result
}

func (g *generation) all() (Result, error) {
	q := g.e.seq
	reused := q.common(g.prompt)
	g.res.Usage = Usage{Prompt: len(g.prompt), Reused: reused}
	if len(g.prompt) > q.limit {
		return g.res, g.full()
	}
	q.keep(reused)
	err := g.launches()
	g.flush()
	q.keep(len(g.prompt) + len(g.res.Tokens))
	if g.panicked != nil {
		panic(g.panicked)
	}
	g.res.Text = g.text.String()
	g.res.Usage.Total = time.Since(g.start)
	return g.res, err
}

// launches goes on until there is a reason to end.
func (g *generation) launches() error {
	q := g.e.seq
	for g.res.Finish == "" {
		if g.ctx.Err() != nil {
			return g.cancelled()
		}
		known := slices.Concat(g.prompt, g.res.Tokens)
		feed := known[len(q.tokens):]
		n := q.limit + 1 - len(known) // the last one chosen needs no room
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
	if g.sampling.Greedy() {
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
	if _, err := q.launch(g.ctx, feed, 1, func(int) bool { return true }); err != nil {
		return err
	}
	if len(q.tokens) < position {
		return nil // stopped within the prompt
	}
	if g.logits == nil {
		g.logits = make([]float32, g.e.o.Kernel.Config.Vocab)
	}
	if err := q.s.Logits(g.logits); err != nil {
		return err
	}
	token, err := sampling.Sample(g.logits, g.sampling, position)
	if err != nil {
		return fmt.Errorf("position %d: %w", position, err)
	}
	g.take(token)
	return nil
}

// take adds a chosen token to the result and says whether to go on.
func (g *generation) take(token int) bool {
	if g.res.Finish != "" || g.ctx.Err() != nil {
		return false
	}
	if len(g.res.Tokens) == 0 {
		g.res.Usage.First = time.Since(g.start)
	}
	g.seen++
	g.res.Tokens = append(g.res.Tokens, token)
	text, stopped := "", false
	end := g.e.ends[token]
	if g.decoder != nil && !end {
		text, stopped = g.stop.add(g.decoder.Add(token))
	}
	g.hand(Piece{token, text})
	switch {
	case end:
		g.res.Finish = End
	case stopped:
		g.res.Finish = Stopped
	case len(g.res.Tokens) == g.most:
		g.res.Finish = Length
	case g.deaf:
		g.res.Finish = Cancelled
	}
	return g.res.Finish == "" && g.ctx.Err() == nil
}

// hand hands out a piece.
func (g *generation) hand(p Piece) {
	g.text.WriteString(p.Text)
	if g.each == nil || g.deaf {
		return
	}
	g.deaf = true // should it panic
	defer func() { g.panicked = recover() }()
	g.e.outside(func() { g.deaf = !g.each(p) })
}

// flush hands out what was held back, at the end.
func (g *generation) flush() {
	if g.decoder == nil || g.res.Finish == Stopped || g.deaf {
		return
	}
	text, stopped := g.stop.add(g.decoder.Flush())
	if !stopped {
		text += g.stop.flush()
	}
	if text != "" {
		g.hand(Piece{NoToken, text})
	}
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
	g.res.Finish = KVFull
	q := g.e.seq
	return &FullError{Prompt: len(g.prompt), Chosen: len(g.res.Tokens), Limit: q.limit, Positions: q.limit == g.e.o.Kernel.Config.MaxPositions}
}
