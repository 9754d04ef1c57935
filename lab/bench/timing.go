package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Timing is how fast a kernel was at one context.
type Timing struct {
	Context  int
	Launches []float64 // of each launch the device's µs a token; of several rows, a step
}

// Time loads the kernel and times launches of n tokens at each context, after one
// that warms up. There is no gate and no ceiling: the times are to compare kernels of one
// session by. Launches that choose different tokens from the same state are an error. It
// releases what it allocated.
func (s *Suite) Time(ctx context.Context, contexts []int, tokens, launches int) (all []Timing, err error) {
	launch, err := s.open(ctx, contexts, tokens)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.loaded.Close()) }()
	return timed(contexts, tokens, launches, launch)
}

// open loads the kernel, fills its KV cache, and returns what launches n tokens.
func (s *Suite) open(ctx context.Context, contexts []int,
	tokens int) (launch func(cached int) (Round, error), err error) {
	s.Method.Contexts, s.Method.Tokens = contexts, tokens
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	if err := FillKV(s.loaded, s.kvBytes()); err != nil {
		return nil, errors.Join(err, s.loaded.Close())
	}
	run := &SessionRunner{Session: s.session, Device: s.loaded, PerLaunch: tokens}
	return func(cached int) (Round, error) { return run.Tokens(ctx, cached, tokens) }, nil
}

// Time is Suite.Time for a kernel of several rows, each a sequence's that decodes.
func (s *RaggedSuite) Time(ctx context.Context, contexts []int, steps, launches int) (all []Timing, err error) {
	launch, err := s.open(ctx, contexts, steps)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.loaded.Close()) }()
	return timed(contexts, steps, launches, launch)
}

// open is Suite.open.
func (s *RaggedSuite) open(ctx context.Context, contexts []int,
	steps int) (launch func(cached int) (Round, error), err error) {
	s.Method.Contexts, s.Method.Tokens = contexts, steps
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	if err := FillKV(s.loaded, s.kvBytes()); err != nil {
		return nil, errors.Join(err, s.loaded.Close())
	}
	run := &RaggedRunner{Session: s.session, Device: s.loaded, Pages: s.table, Page: s.Kernel.KV.Page}
	return func(cached int) (Round, error) { return run.Steps(ctx, Sequences, cached, steps) }, nil
}

// timed launches once and then n times at each context.
func timed(contexts []int, steps, launches int, launch func(cached int) (Round, error)) (all []Timing, err error) {
	for _, cached := range contexts {
		warm, err := launch(cached)
		if err != nil {
			return nil, fmt.Errorf("context %d: %w", cached, err)
		}
		t := Timing{Context: cached}
		for range launches {
			round, err := launch(cached)
			if err != nil {
				return nil, fmt.Errorf("context %d: %w", cached, err)
			}
			if !slices.Equal(warm.Chosen, round.Chosen) {
				return nil, fmt.Errorf("context %d: two launches from the same state chose different tokens: the kernel is not deterministic", cached)
			}
			t.Launches = append(t.Launches, micros(round.Device)/float64(steps))
		}
		all = append(all, t)
	}
	return all, nil
}
