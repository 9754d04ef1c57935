package enginecases

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/stretchr/testify/require"
)

// script is a request of the soak and what a fresh engine answers.
type script struct {
	r    engine.Request
	want engine.Result
}

// scripts are the soak's requests: of many lengths, some of which begin alike,
// greedy and sampled.
func (b *Bench) scripts(t T) []script {
	var out []script
	room := b.kvTokens()
	for i := range 8 {
		n := 1 + i*(room/2)/8
		r := engine.Request{Tokens: append(b.prompt(uint64(20+i%3), n), i), MaxTokens: min(room/2-1, 4+5*i)}
		if i%3 == 2 {
			r.Sampling = sampling.Params{Temperature: 1.2, TopP: 0.95, Seed: uint64(i)}
		}
		out = append(out, script{r, b.fresh(t, r)})
	}
	return out
}

// One engine answers thousands of tokens' worth of requests, ended at random by
// stop texts, cancels, lengths and the KV limit. Whatever it gives is the
// beginning of what a fresh engine gives; in the end no page is missing and no
// byte of the guard page has changed.
func soak(t T, b *Bench) {
	scripts := b.scripts(t)
	var device runtime.Device
	e := b.open(t, func(o *engine.Options) { device, o.TokensPerLaunch = o.Device, 11 })
	guard := b.guard(t, device)
	random := rand.New(rand.NewPCG(1, 1))
	finishes := map[engine.Finish]int{}
	tokens, requests := 0, 0
	for ; tokens < b.Soak; requests++ {
		s := scripts[random.IntN(len(scripts))]
		got := s.interrupted(t, e, random)
		tokens += len(got.Tokens)
		finishes[got.Finish]++
		if random.IntN(20) == 0 {
			requireFree(t, e)
		}
	}
	for _, s := range scripts {
		require.Equal(t, s.want.Tokens, answer(t, e, s.r).Tokens)
	}
	requireFree(t, e)
	require.True(t, slices.Equal(guard, b.guard(t, device)), "the guard page has changed")
	t.Logf("%d requests, %d tokens: %v", requests, tokens, finishes)
	for _, f := range []engine.Finish{engine.Stopped, engine.Length, engine.Cancelled, engine.KVFull} {
		require.Positive(t, finishes[f], "no generation ended with %s", f)
	}
}

// interrupted runs a script that something may end early, and checks what it gave.
func (s script) interrupted(t T, e *engine.Engine, random *rand.Rand) engine.Result {
	r := s.r
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	after := 0 // pieces, then the context ends; 0 for never
	switch text := []rune(s.want.Text); random.IntN(5) {
	case 0:
		if len(text) > 0 {
			at := random.IntN(len(text))
			r.Stop = []string{string(text[at:min(len(text), at+1+random.IntN(3))])}
		}
	case 1:
		after = 1 + random.IntN(len(s.want.Tokens))
	case 2:
		r.MaxTokens = 1 + random.IntN(r.MaxTokens)
	case 3:
		r.MaxTokens = 0
	}
	n := 0
	got, err := e.Generate(ctx, r, func(engine.Piece) bool {
		if n++; n == after {
			cancel()
		}
		return true
	})
	if got.Finish != engine.KVFull && got.Finish != engine.Cancelled {
		require.NoError(t, err)
	}
	common := min(len(got.Tokens), len(s.want.Tokens))
	require.Equal(t, s.want.Tokens[:common], got.Tokens[:common])
	if got.Finish == engine.Stopped {
		before, _, _ := strings.Cut(s.want.Text, r.Stop[0])
		require.Equal(t, before, got.Text)
	}
	return got
}

// guard reads the guard page of an engine's cache, layer after layer.
func (b *Bench) guard(t T, device runtime.Device) []byte {
	n := b.kvTokens() / b.Kernel.KV.Page
	return b.pageBytes(t, device, n, n+1)
}

// pageBytes reads a page of a cache of n, layer after layer.
func (b *Bench) pageBytes(t T, device runtime.Device, i, pages int) []byte {
	page := int64(b.Kernel.KV.PageBytes())
	out := make([]byte, int64(b.Kernel.Config.Layers)*page)
	for layer := range int64(b.Kernel.Config.Layers) {
		require.NoError(t, device.Read("kv", (layer*int64(pages)+int64(i))*page, out[layer*page:(layer+1)*page]))
	}
	return out
}
