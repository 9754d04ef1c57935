package serve

import (
	"context"

	"github.com/mkgen/mkgen/engine"
)

// Backend generates. Its methods are called by many goroutines at once.
type Backend interface {
	// Submit queues a request and returns at once. The end of ctx ends the request.
	Submit(ctx context.Context, r engine.Request) (Answer, error)
	// KVTokens is how many tokens, of prompt and answer, a sequence can have.
	KVTokens() int
	// Load says what runs, what waits and which pages are free.
	Load() engine.Load
}

// Answer is one sequence being generated.
type Answer interface {
	// Next waits for the next piece; ok is false behind the last.
	Next() (p engine.Piece, ok bool)
	// Wait waits for the end. The result is valid with an error too.
	Wait() (engine.Result, error)
}

// submitter is an engine.Engine as a Backend.
type submitter struct{ *engine.Engine }

// FromEngine returns a Backend that submits to e. The caller closes e.
func FromEngine(e *engine.Engine) Backend { return submitter{e} }

func (b submitter) Submit(ctx context.Context, r engine.Request) (Answer, error) {
	s, err := b.Engine.Submit(ctx, r)
	if err != nil {
		return nil, err // not s: a nil *engine.Stream would be an Answer
	}
	return s, nil
}
