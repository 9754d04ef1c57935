package engine

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/tokenizer"
	"github.com/stretchr/testify/require"
)

// Thousands of generations of all kinds, ended in all ways, on one engine: each is
// right, and in the end no page is missing.
func TestNoPageIsLeakedByManyGenerations(t *testing.T) {
	e, f := newFake(t, nil)
	random := rand.New(rand.NewPCG(1, 2))
	var last []int // tokens of the generation before, to go on from
	finishes := map[Finish]int{}
	for range 3000 {
		prompt := last[:random.IntN(min(len(last), 30)+1)]
		for range 1 + random.IntN(9) {
			prompt = append(prompt[:len(prompt):len(prompt)], random.IntN(fakeVocab))
		}
		f.ahead = random.IntN(9)
		ctx, cancel := context.WithCancel(t.Context())
		after := random.IntN(30) - 10 // tokens, then the context ends, or each has enough
		n := 0
		r := Request{Tokens: prompt, MaxTokens: random.IntN(50)}
		if random.IntN(4) == 0 {
			r.Sampling = sampling.Params{Temperature: 1, TopK: 1}
		}
		got, err := e.Generate(ctx, r, func(p Piece) bool {
			if n++; n == after && after%2 == 0 {
				cancel()
			}
			return n != after || after%2 == 0
		})
		cancel()
		finishes[got.Finish]++
		require.Equal(t, wanted(prompt, len(got.Tokens)), append([]int{}, got.Tokens...))
		switch got.Finish {
		case Length:
			require.Len(t, got.Tokens, r.MaxTokens)
			require.NoError(t, err)
		case KVFull:
			require.True(t, errors.As(err, new(*FullError)))
			require.Equal(t, e.KVTokens()+1, len(prompt)+len(got.Tokens))
		case Cancelled:
			require.Len(t, got.Tokens, after)
		default:
			require.Fail(t, "finish", "%q: %v", got.Finish, err)
		}
		last = append(prompt[:len(prompt):len(prompt)], got.Tokens...)
		free, all, err := e.Pages()
		require.NoError(t, err)
		require.Equal(t, (f.pos+fakePage-1)/fakePage, all-free, "pages of %d tokens", f.pos)
	}
	for _, finish := range []Finish{Length, KVFull, Cancelled} {
		require.Greater(t, finishes[finish], 100, finish)
	}
	require.NoError(t, e.Close()) // which looks for leaks
}

// What is in the cache already is not fed again, also what a launch chose beyond
// the last token wanted.
func TestOnlyWhatIsNewIsFed(t *testing.T) {
	e, f := newFake(t, nil)
	prompt := []int{1, 2, 3, 4, 5}
	got, err := e.Generate(t.Context(), Request{Tokens: prompt, MaxTokens: 4}, nil)
	require.NoError(t, err)
	require.Equal(t, 8, f.tokens) // the last one chosen is not fed
	require.Equal(t, 1, f.launches)
	next := append(append([]int{}, prompt...), got.Tokens...)
	again, err := e.Generate(t.Context(), Request{Tokens: append(next, 9), MaxTokens: 1}, nil)
	require.NoError(t, err)
	require.Equal(t, 8, again.Usage.Reused)
	require.Equal(t, 10, f.tokens)
	same, err := e.Generate(t.Context(), Request{Tokens: append(next, 9), MaxTokens: 1}, nil)
	require.NoError(t, err)
	require.Equal(t, 9, same.Usage.Reused) // one token must be fed
	require.Equal(t, again.Tokens, same.Tokens)
}

func TestLaunchesAreAsLongAsAllowed(t *testing.T) {
	e, f := newFake(t, func(o *Options) { o.TokensPerLaunch = 6 })
	_, err := e.Generate(t.Context(), Request{Tokens: []int{1, 2}, MaxTokens: 13}, nil)
	require.NoError(t, err)
	require.Equal(t, 3, f.launches)
}

func TestAFailedLaunchIsTheError(t *testing.T) {
	e, f := newFake(t, nil)
	f.fail = errors.New("the device is on fire")
	got, err := e.Generate(t.Context(), Request{Tokens: []int{1}}, nil)
	require.EqualError(t, err, "engine: the device is on fire")
	require.Empty(t, got.Finish)
	f.silent = true
	_, err = e.Generate(t.Context(), Request{Tokens: []int{1, 2}}, nil)
	require.EqualError(t, err, "engine: a launch of 2 tokens from position 0 chose none")
	f.silent, f.odd = false, true
	_, err = e.Generate(t.Context(), Request{Tokens: []int{1, 2}, Sampling: sampling.Params{Temperature: 1}}, nil)
	require.EqualError(t, err, "engine: position 2: the logit of token 3 is NaN")
	f.odd = false
	got, err = e.Generate(t.Context(), Request{Tokens: []int{1, 2}, MaxTokens: 3}, nil)
	require.NoError(t, err)
	require.Equal(t, wanted([]int{1, 2}, 3), got.Tokens)
	require.NoError(t, e.Close())
}

func TestTheModelsPositionsAreALimitToo(t *testing.T) {
	e, _ := newFake(t, func(o *Options) { o.Kernel.Config.MaxPositions = 7 })
	require.Equal(t, 7, e.KVTokens())
	got, err := e.Generate(t.Context(), Request{Tokens: []int{1, 2}}, nil)
	require.EqualError(t, err, "the model was made for 7 positions: the prompt has 2, 6 more are generated")
	require.Equal(t, wanted([]int{1, 2}, 6), got.Tokens)
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"engine: options: Kernel, Device and Weights are required":             func(o *Options) { o.Device = nil },
		"engine: options: a KV cache of -1 tokens, want 1 to 268435456":        func(o *Options) { o.KVTokens = -1 },
		"engine: options: a KV cache of 268435457 tokens, want 1 to 268435456": func(o *Options) { o.KVTokens = 1<<28 + 1 },
		"engine: options: -1 tokens a launch, want at least 1":                 func(o *Options) { o.TokensPerLaunch = -1 },
		"engine: options: a hang timeout of -1ns, want at least 0":             func(o *Options) { o.HangTimeout = -1 },
		"engine: options: end token 50, want 0 to 49":                          func(o *Options) { o.Ends = []int{1, 50} },
	} {
		o := fakeOptions()
		change(&o)
		_, err := New(t.Context(), o)
		require.EqualError(t, err, want)
		if d, ok := o.Device.(*nothing); ok {
			require.Zero(t, d.closed, "the device is the caller's")
		}
	}
}

// Loading ends with its context; the device is still the caller's.
func TestLoadingCanBeCancelled(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 1})
	require.NoError(t, err)
	device, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = New(ctx, Options{Kernel: mk, Device: device, Weights: runtime.FromTensors(rows(func() { cancel() }), runtime.LoadOptions{})})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, device.Close())
}

// rows are weights of zeros that say when a row is read, by any goroutine.
type rows func()

func (r rows) Row(string, int, []uint16) error { r(); return nil }

func TestRequestsThatMakeNoSenseAreRefused(t *testing.T) {
	e, f := newFake(t, nil)
	for want, r := range map[string]Request{
		"request: the prompt has no tokens":                                         {},
		"request: token 50, want 0 to 49":                                           {Tokens: []int{1, 50}},
		"request: token -1, want 0 to 49":                                           {Tokens: []int{-1}},
		"request: MaxTokens is -1, want at least 0":                                 {Tokens: []int{1}, MaxTokens: -1},
		"request: more than one of Prompt, Messages and Tokens is given":            {Tokens: []int{1}, Prompt: "x"},
		"request: text (Prompt, Messages or Stop) without a tokenizer; want Tokens": {Prompt: "x"},
		"request: TopP: found NaN, want 0 to 1":                                     {Tokens: []int{1}, Sampling: sampling.Params{Temperature: 1, TopP: math.NaN()}},
	} {
		_, err := e.Generate(t.Context(), r, nil)
		require.EqualError(t, err, want)
	}
	require.Zero(t, f.launches)
	_, err := e.Generate(t.Context(), Request{Messages: []tokenizer.Message{{}}}, nil)
	require.Error(t, err)
}

func TestCloseClosesTheDeviceOnce(t *testing.T) {
	e, _ := newFake(t, nil)
	_, err := e.Generate(t.Context(), Request{Tokens: []int{1}, MaxTokens: 9}, nil)
	require.NoError(t, err)
	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	require.Equal(t, 1, e.o.Device.(*nothing).closed)
	require.Zero(t, e.seq.pool.Size()-e.seq.pool.Free())
}

func TestALostPageIsAnErrorOfClose(t *testing.T) {
	e, _ := newFake(t, nil)
	_, err := e.seq.pool.Take(2) // and nobody gives them back
	require.NoError(t, err)
	require.ErrorContains(t, e.Close(), "2 of 10 KV pages were never given back")
}
