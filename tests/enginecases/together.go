package enginecases

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/stretchr/testify/require"
)

// submit asks for all of them at once.
func submit(t T, e *engine.Engine, rs ...engine.Request) []*engine.Stream {
	t.Helper()
	var out []*engine.Stream
	for _, r := range rs {
		s, err := e.Submit(background, r)
		require.NoError(t, err)
		out = append(out, s)
	}
	return out
}

// requests are n of different lengths, greedy and sampled.
func (b *Bench) requests(n int) []engine.Request {
	var out []engine.Request
	for i := range n {
		r := engine.Request{Tokens: b.prompt(uint64(40+i), 1+(5*i)%13), MaxTokens: 4 + (3*i)%9}
		if i%4 == 3 {
			r.Sampling.Temperature, r.Sampling.Seed = 1.1, uint64(i)
		}
		out = append(out, r)
	}
	return out
}

func together(t T, b *Bench) {
	rs := b.requests(7)
	e := b.open(t, nil)
	for round := range 2 { // the second one finds the first one's pages
		for i, s := range submit(t, e, rs...) {
			got, err := s.Wait()
			require.NoError(t, err)
			require.Equal(t, b.fresh(t, rs[i]).Tokens, got.Tokens, "request %d in round %d", i, round)
			require.Equal(t, engine.Length, got.Finish)
		}
	}
}

func sharedPrompt(t T, b *Bench) {
	page := b.Kernel.KV.Page
	prompt := b.prompt(60, 3*page+1)
	var rs []engine.Request
	for i := range 4 {
		rs = append(rs, engine.Request{Tokens: append(slices.Clip(prompt), 10*i), MaxTokens: 5})
	}
	e := b.open(t, nil)
	for i, s := range submit(t, e, rs...) {
		got, err := s.Wait()
		require.NoError(t, err)
		require.Equal(t, b.fresh(t, rs[i]).Tokens, got.Tokens, "request %d", i)
		if i > 0 {
			require.Equal(t, 3*page, got.Usage.Reused)
		}
	}
}

// Requests that need several times the cache give way to each other; no byte of the
// page that nobody owns changes.
func tooSmall(t T, b *Bench) {
	page := b.Kernel.KV.Page
	room := 6 * page
	var rs []engine.Request
	for i := range 5 {
		rs = append(rs, engine.Request{Tokens: b.prompt(uint64(70+i), 1+i), MaxTokens: 4 * page})
	}
	var device runtime.Device
	e := b.open(t, func(o *engine.Options) { device, o.KVTokens = o.Device, room })
	guard := b.pageBytes(t, device, room/page, room/page+1)
	preempted := 0
	for i, s := range submit(t, e, rs...) {
		got, err := s.Wait()
		require.NoError(t, err)
		require.Equal(t, b.fresh(t, rs[i]).Tokens, got.Tokens, "request %d", i)
		preempted += got.Usage.Preempted
	}
	require.Positive(t, preempted)
	require.Zero(t, e.Load().Running+e.Load().Queued)
	require.True(t, slices.Equal(guard, b.pageBytes(t, device, room/page, room/page+1)), "the guard page has changed")
	_, err := e.Generate(background, engine.Request{Tokens: b.prompt(80, room+1)}, nil)
	require.ErrorAs(t, err, new(*engine.FullError))
}

// Lengths, stop texts, cancels and end tokens end one request, and the others go on.
func endsAlone(t T, b *Bench) {
	rs := b.requests(6)
	var want []engine.Result
	for i := range rs {
		rs[i].MaxTokens = 16
		want = append(want, b.fresh(t, rs[i]))
	}
	e := b.open(t, func(o *engine.Options) { o.Ends = want[0].Tokens[9:10] })
	var all sync.WaitGroup
	results, errs := make([]engine.Result, 3*len(rs)), make([]error, 3*len(rs))
	for k := range results {
		all.Go(func() {
			r := rs[k%len(rs)]
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			random, n := rand.New(rand.NewPCG(uint64(k), 1)), 0
			if text := []rune(want[k%len(rs)].Text); k%3 == 1 && len(text) > 4 {
				r.Stop = []string{string(text[2:4])}
			}
			after := 1 + random.IntN(30)
			results[k], errs[k] = e.Generate(ctx, r, func(engine.Piece) bool {
				if n++; n == after {
					cancel()
				}
				return true
			})
		})
	}
	all.Wait()
	for k, got := range results {
		require.Equal(t, want[k%len(rs)].Tokens[:len(got.Tokens)], got.Tokens, "%d", k)
		if got.Finish == engine.Cancelled {
			require.ErrorIs(t, errs[k], context.Canceled)
		} else {
			require.NoError(t, errs[k])
			require.Contains(t, []engine.Finish{engine.Length, engine.Stopped, engine.End}, got.Finish)
		}
	}
}
