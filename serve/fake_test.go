package serve

import (
	"context"
	"sync"
	"testing"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/models/bundled"
	"github.com/stretchr/testify/require"
)

// fake is a backend that hands out what a script says, and that a test can hold up.
type fake struct {
	t      testing.TB
	script func(engine.Request) []engine.Piece
	hold   chan struct{} // nil, or every token takes something from it
	fail   error         // of every answer, behind its pieces

	mu    sync.Mutex
	open  int // answers that have not ended
	asked []engine.Request
}

func newFake(t testing.TB, script func(engine.Request) []engine.Piece) *fake {
	return &fake{t: t, script: script}
}

// script is a piece for every text, the last with a Finish.
func script(texts ...string) []engine.Piece {
	var all []engine.Piece
	for i, text := range texts {
		all = append(all, engine.Piece{Token: i, Text: text})
	}
	all[len(all)-1].Finish = engine.End
	return all
}

func (f *fake) options() Options {
	text, _, err := bundled.Tokenizer("tiny")
	require.NoError(f.t, err)
	return Options{Backend: f, Text: text, Model: "fake", Vocab: 500, Sequences: 2, Queue: 1, Ends: []int{1}}
}

func (f *fake) KVTokens() int { return 100 }

func (f *fake) Load() engine.Load { return engine.Load{Running: f.running()} }

func (f *fake) running() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

func (f *fake) Submit(ctx context.Context, r engine.Request) (Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open++
	f.asked = append(f.asked, r)
	return &fakeAnswer{f: f, ctx: ctx, left: f.script(r)}, nil
}

// fakeAnswer is one answer; it is read by one goroutine.
type fakeAnswer struct {
	f    *fake
	ctx  context.Context
	left []engine.Piece
	res  engine.Result
}

func (a *fakeAnswer) Next() (engine.Piece, bool) {
	if len(a.left) == 0 || a.ctx.Err() != nil {
		return engine.Piece{}, false
	}
	if a.f.hold != nil && a.left[0].Token != engine.NoToken {
		select {
		case <-a.f.hold:
		case <-a.ctx.Done():
			return engine.Piece{}, false
		}
	}
	p := a.left[0]
	a.left = a.left[1:]
	if p.Finish != "" {
		a.res.Finish = p.Finish
	}
	return p, true
}

func (a *fakeAnswer) Wait() (engine.Result, error) {
	a.f.mu.Lock()
	defer a.f.mu.Unlock()
	a.f.open--
	switch {
	case a.res.Finish != "":
		return a.res, nil
	case a.f.fail != nil:
		return a.res, a.f.fail
	}
	a.res.Finish = engine.Cancelled
	return a.res, a.ctx.Err()
}
