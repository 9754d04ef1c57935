package enginecases

import (
	"context"
	"errors"
	"time"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/models/tokenizer"
	"github.com/stretchr/testify/require"
)

// messages makes a conversation of roles and contents in turn.
func messages(s ...string) []tokenizer.Message {
	var out []tokenizer.Message
	for i := 0; i+1 < len(s); i += 2 {
		out = append(out, tokenizer.Message{Role: s[i], Content: s[i+1]})
	}
	return out
}

// However a generation is ended, what it gave until then is right, and so is what
// the engine generates next.
func cancelled(t T, b *Bench) {
	r, next := engine.Request{Tokens: b.prompt(8, 7), MaxTokens: 30},
		engine.Request{Tokens: b.prompt(9, 10), MaxTokens: 12}
	want, wantNext := b.fresh(t, r), b.fresh(t, next)
	e := b.open(t, nil)
	for _, after := range []int{0, 1, 2, 7, 8, 20} {
		for _, byContext := range []bool{true, false} {
			if after == 0 && !byContext {
				continue
			}
			ctx, cancel := context.WithCancel(background)
			if after == 0 {
				cancel()
			}
			n := 0
			got, err := e.Generate(ctx, r, func(p engine.Piece) bool {
				if n++; n == after && byContext {
					cancel()
				}
				return byContext || n < after
			})
			cancel()
			if byContext && got.Finish != engine.Length { // else the kernel was as fast
				require.ErrorIs(t, err, context.Canceled)
			} else {
				require.NoError(t, err)
			}
			require.Contains(t, []engine.Finish{engine.Cancelled, engine.Length}, got.Finish)
			require.GreaterOrEqual(t, len(got.Tokens), after) // the kernel is ahead of its reader
			require.Equal(t, want.Tokens[:len(got.Tokens)], append([]int{}, got.Tokens...))
			if after%2 == 0 {
				require.Equal(t, wantNext.Tokens, answer(t, e, next).Tokens, "after a cancel at token %d", after)
			} else { // what the cancelled one left is a prefix of it
				require.Equal(t, want.Tokens, answer(t, e, r).Tokens, "after a cancel at token %d", after)
			}
		}
	}
	long := engine.Request{Tokens: b.prompt(14, b.kvTokens()-4), MaxTokens: 3}
	for _, wait := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(background, wait) // most likely within the prompt
		got, err := e.Generate(ctx, long, nil)
		cancel()
		if got.Finish != engine.Length {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, engine.Cancelled, got.Finish)
		}
		require.Equal(t, wantNext.Tokens, answer(t, e, next).Tokens, "after %v", wait)
	}
	require.Equal(t, b.fresh(t, long).Tokens, answer(t, e, long).Tokens)
	requireFree(t, e)
}

// Each turn pays only for what is new, and gives what a fresh engine gives.
func conversation(t T, b *Bench) {
	e := b.open(t, nil)
	prompt := b.prompt(10, 5)
	cached := 0
	for turn := range 4 {
		r := engine.Request{Tokens: prompt, MaxTokens: 4 + turn}
		if turn == 2 {
			r.Sampling = sampling.Params{Temperature: 1, Seed: 3}
		}
		got := answer(t, e, r)
		require.Equal(t, b.fresh(t, r).Tokens, got.Tokens, "turn %d", turn)
		require.Equal(t, cached, got.Usage.Reused, "turn %d", turn)
		cached = wholePages(b, len(prompt)+len(got.Tokens)-1) // the last one was not fed
		prompt = append(append(prompt, got.Tokens...), b.prompt(uint64(11+turn), 3)...)
	}
	// Back to the first turn with another continuation, then something else.
	r := engine.Request{Tokens: append(b.prompt(10, 5), 3, 4), MaxTokens: 5}
	want := b.fresh(t, r)
	got := answer(t, e, r)
	require.Equal(t, want.Tokens, got.Tokens)
	require.Equal(t, wholePages(b, 5), got.Usage.Reused)
	r.Tokens = append([]int{255}, r.Tokens...)
	require.Equal(t, b.fresh(t, r).Tokens, answer(t, e, r).Tokens)
	requireFree(t, e)
}

// wholePages are the tokens of the pages that n tokens fill.
func wholePages(b *Bench, n int) int { return n - n%b.Kernel.KV.Page }

func sampled(t T, b *Bench) {
	r := engine.Request{Tokens: b.prompt(12, 6), MaxTokens: 16,
		Sampling: sampling.Params{Temperature: 0.9, TopK: 50, TopP: 0.95, MinP: 0.01, Seed: 7}}
	want := b.fresh(t, r)
	e := b.open(t, nil)
	require.Equal(t, want.Tokens, answer(t, e, r).Tokens)
	// Taken up in the middle it goes on the same way.
	rest := r
	rest.Tokens, rest.MaxTokens = append(append([]int(nil), r.Tokens...), want.Tokens[:6]...), 10
	require.Equal(t, want.Tokens[6:], answer(t, e, rest).Tokens)
	other := r
	other.Sampling.Seed++
	require.NotEqual(t, want.Tokens, answer(t, e, other).Tokens)
	// The only token left is the one that greedy takes.
	one := r
	one.Sampling = sampling.Params{Temperature: 2, TopK: 1, Seed: 1}
	greedy := r
	greedy.Sampling = sampling.Params{}
	require.Equal(t, answer(t, e, greedy).Tokens, answer(t, e, one).Tokens)
	requireFree(t, e)
}

func misuse(t T, b *Bench) {
	e := b.open(t, nil)
	r := engine.Request{Tokens: b.prompt(13, 4), MaxTokens: 30}
	n := 0
	got, err := e.Generate(background, r, func(engine.Piece) bool {
		if n++; n == 3 {
			require.NoError(t, e.Close())
		}
		return true
	})
	if got.Finish != engine.Length { // it was as fast
		require.ErrorIs(t, err, engine.ErrClosed)
		require.Equal(t, engine.Cancelled, got.Finish)
	}
	_, err = e.Generate(background, r, nil)
	require.ErrorIs(t, err, engine.ErrClosed)
	require.NoError(t, e.Close())

	closedFromOutside(t, b, r)
	panicking(t, b, r)
}

// closedFromOutside closes an engine while another goroutine generates.
func closedFromOutside(t T, b *Bench, r engine.Request) {
	e := b.open(t, nil)
	started, ended := make(chan struct{}), make(chan error)
	go func() {
		first := true
		_, err := e.Generate(background, r, func(engine.Piece) bool {
			if first {
				close(started)
			}
			first = false
			return true
		})
		ended <- err
	}()
	<-started
	require.NoError(t, e.Close())
	if err := <-ended; !errors.Is(err, engine.ErrClosed) {
		require.NoError(t, err) // it was through
	}
}

// panicking lets each panic: the engine can still be used.
func panicking(t T, b *Bench, r engine.Request) {
	e := b.open(t, nil)
	require.PanicsWithValue(t, "mine", func() {
		_, _ = e.Generate(background, r, func(engine.Piece) bool { panic("mine") })
	})
	require.Equal(t, b.fresh(t, r).Tokens, answer(t, e, r).Tokens)
	requireFree(t, e)
}
