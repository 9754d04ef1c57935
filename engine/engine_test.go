package engine

import (
	"context"
	"math"
	"testing"

	"github.com/mkgen/mkgen/engine/batch/batchtest"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/tokenizer"
	"github.com/stretchr/testify/require"
)

func TestLaunchesAreAsLongAsAllowed(t *testing.T) {
	e, f := newFake(t, func(o *Options) { o.TokensPerLaunch = 6 }, nil)
	_, err := e.Generate(t.Context(), Request{Tokens: []int{1}, MaxTokens: 13}, nil)
	require.NoError(t, err)
	require.Equal(t, 3, f.Launches)
}

func TestTheModelsPositionsAreALimitToo(t *testing.T) {
	e, _ := newFake(t, func(o *Options) { o.Kernel.Config.MaxPositions = 7 }, nil)
	require.Equal(t, 7, e.KVTokens())
	got, err := e.Generate(t.Context(), Request{Tokens: []int{1, 2}}, nil)
	require.EqualError(t, err, "the model was made for 7 positions: the prompt has 2, 6 more are generated")
	require.Equal(t, batchtest.Alone([]int{1, 2}, 6, false), got.Tokens)
}

// Logits that are no numbers end the request whose token is to be drawn from them.
func TestLogitsThatAreNoNumbersAreAnError(t *testing.T) {
	o, err := fakeOptions().complete()
	require.NoError(t, err)
	e, err := newEngine(o, &odd{Stepper: batchtest.Stepper{T: 8, Page: fakePage, Pages: 10}}, o.Device.Close)
	require.NoError(t, err)
	_, err = e.Generate(t.Context(), Request{Tokens: []int{1, 2}, Sampling: sampling.Params{Temperature: 1}}, nil)
	require.EqualError(t, err, "engine: position 2: the logit of token 3 is NaN")
	got, err := e.Generate(t.Context(), Request{Tokens: []int{1, 2}, MaxTokens: 3}, nil)
	require.NoError(t, err)
	require.Equal(t, batchtest.Alone([]int{1, 2}, 3, false), got.Tokens)
	require.NoError(t, e.Close())
}

// odd is a fake with a logit that is no number.
type odd struct{ batchtest.Stepper }

func (o *odd) Logits(i int, dst []float32) error {
	err := o.Stepper.Logits(i, dst)
	dst[3] = float32(math.NaN())
	return err
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
	_, err = New(ctx, Options{Kernel: mk, Device: device,
		Weights: runtime.FromTensors(rows(func() { cancel() }), runtime.LoadOptions{})})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, device.Close())
}

// rows are weights of zeros that say when a row is read, by any goroutine.
type rows func()

func (r rows) Row(string, int, []half.BF16) error { r(); return nil }

func TestRequestsThatMakeNoSenseAreRefused(t *testing.T) {
	e, f := newFake(t, nil, nil)
	for want, r := range map[string]Request{
		"request: the prompt has no tokens":                                         {},
		"request: token 50, want 0 to 49":                                           {Tokens: []int{1, 50}},
		"request: token -1, want 0 to 49":                                           {Tokens: []int{-1}},
		"request: MaxTokens is -1, want at least 0":                                 {Tokens: []int{1}, MaxTokens: -1},
		"request: more than one of Prompt, Messages and Tokens is given":            {Tokens: []int{1}, Prompt: "x"},
		"request: text (Prompt, Messages or Stop) without a tokenizer; want Tokens": {Prompt: "x"},
		"request: TopP: found NaN, want 0 to 1": {Tokens: []int{1},
			Sampling: sampling.Params{Temperature: 1, TopP: math.NaN()}},
	} {
		_, err := e.Generate(t.Context(), r, nil)
		require.EqualError(t, err, want)
	}
	require.Zero(t, f.Launches)
	_, err := e.Generate(t.Context(), Request{Messages: []tokenizer.Message{{}}}, nil)
	require.Error(t, err)
}
