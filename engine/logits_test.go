package engine

import (
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/batch/batchtest"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/stretchr/testify/require"
)

// The log-probabilities of the fake: of the token that follows, and of every other.
var (
	likely   = 1 - math.Log(math.E+fakeVocab-1)
	unlikely = -math.Log(math.E + fakeVocab - 1)
)

func TestLogprobsComeWithEveryTokenOfPromptAndAnswer(t *testing.T) {
	e, _ := newFake(t, nil, nil)
	generate := func(r Request) (Result, error) { return e.Generate(t.Context(), r, nil) }
	prompt := []int{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	prompt = append(prompt, batchtest.Follows(prompt)) // one at least is likely
	plain, err := generate(Request{Tokens: prompt, MaxTokens: 6})
	require.NoError(t, err)
	for range 2 { // the second time the cache remembers the prompt
		got, err := generate(Request{Tokens: prompt, MaxTokens: 6, Logprobs: true, TopLogprobs: 2, PromptLogprobs: true})
		require.NoError(t, err)
		require.Equal(t, plain.Tokens, got.Tokens)
		require.Zero(t, got.Usage.Reused)
		require.Len(t, got.PromptLogprobs, len(prompt)-1)
		for i, l := range got.PromptLogprobs {
			want := unlikely
			if batchtest.Follows(prompt[:i+1]) == prompt[i+1] {
				want = likely
			}
			require.Equal(t, prompt[i+1], l.Token)
			require.InDelta(t, want, l.Logprob.Logprob, 1e-9)
			require.Equal(t, batchtest.Follows(prompt[:i+1]), l.Top[0].Token)
			require.Len(t, l.Top, 2)
		}
		require.InDelta(t, likely, got.PromptLogprobs[len(prompt)-2].Logprob.Logprob, 1e-9)
		require.Len(t, got.Logprobs, 6)
		for i, l := range got.Logprobs {
			require.Equal(t, got.Tokens[i], l.Token)
			require.InDelta(t, likely, l.Logprob.Logprob, 1e-9)
		}
	}
}

// unscored is a fake that cannot make the log-probabilities of a launch's tokens from a step on.
type unscored struct {
	*batchtest.Stepper
	launch, step int
}

var errUnscored = errors.New("no number")

func (u *unscored) Scores() (batch.Scores, error) {
	scores, err := u.Stepper.Scores()
	launch := u.Launches
	return func(i, step, token int) (sampling.Logprobs, error) {
		if launch == u.launch && step >= u.step {
			return sampling.Logprobs{}, errUnscored
		}
		return scores(i, step, token)
	}, err
}

// A request whose last tokens have no log-probabilities fails, however it ends: it has been given neither.
func TestARequestWithoutItsLastLogprobsFails(t *testing.T) {
	for _, x := range []struct{ tokens, room int }{{9, 10}, {100, 3}} { // the cache is full in the third launch
		o := fakeOptions()
		o.Kernel.Options.Draws, o.KVTokens = true, x.room*fakePage
		o, err := o.complete()
		require.NoError(t, err)
		f := &batchtest.Stepper{T: 8, Page: fakePage, Pages: x.room, Ahead: 2}
		e, err := newEngine(o, &unscored{f, 3, 1}, o.Device.Close)
		require.NoError(t, err)
		given := 0
		got, err := e.Generate(t.Context(), Request{Tokens: []int{3, 4}, MaxTokens: x.tokens, Logprobs: true},
			func(p Piece) bool { require.NotNil(t, p.Logprobs); given++; return true })
		require.ErrorIs(t, err, errUnscored, "of %d tokens", x.tokens)
		require.Empty(t, got.Finish)
		require.Len(t, got.Logprobs, given)
		require.Less(t, given, len(got.Tokens))
		require.NoError(t, e.Close())
	}
}

// A bias decides what is chosen, not the log-probabilities, which are the model's own. A kernel that draws does it in
// launches of many tokens; a drawn token gives the same then.
func TestPenaltiesChooseAndLogprobsStay(t *testing.T) {
	for _, s := range []sampling.Params{{}, {Temperature: 2, Seed: 3}} {
		var want []int
		for _, drawn := range []bool{false, true} {
			e, f := newFake(t, func(o *Options) { o.Kernel.Options.Draws = drawn }, nil)
			got, err := e.Generate(t.Context(), Request{Tokens: []int{3, 4}, MaxTokens: 12, MinTokens: 6,
				StopTokens: []int{17}, Logprobs: true, Sampling: s,
				Penalties: sampling.Penalties{Bias: map[int]float64{17: 50, 18: 60}, Frequency: 20}}, nil)
			require.NoError(t, err)
			if !drawn {
				require.Equal(t, []int{18, 18, 18}, got.Tokens[:3]) // 60, 40, 20 against 1
				require.NotContains(t, got.Tokens[:6], 17)
				require.Equal(t, []int{17}, got.Tokens[6:])
				require.Less(t, got.Logprobs[0].Logprob.Logprob, -1.0)
				require.Equal(t, 7, f.Launches)
				want = got.Tokens
				continue
			}
			require.Equal(t, want, got.Tokens)
			require.Equal(t, 2, f.Launches)
		}
	}
}

// only allows one token after the other, then nothing but fails.
type only struct {
	tokens []int
	bad    error
}

func (o *only) Mask(allowed []uint32) {
	clear(allowed)
	allowed[o.tokens[0]/32] |= 1 << (o.tokens[0] % 32)
}

func (o *only) Accept(token int) error {
	if o.tokens[0] != token {
		return errors.New("another token")
	}
	o.tokens = o.tokens[1:]
	return o.bad
}

func TestAMaskDecides(t *testing.T) {
	var generate func(r Request) (Result, error)
	for i, s := range []sampling.Params{{}, {Temperature: 1, Seed: 3}, {}, {Temperature: 1, Seed: 3}} {
		e, _ := newFake(t, func(o *Options) { o.Kernel.Options.Draws = i > 1 }, nil) // the host chooses, or the kernel
		generate = func(r Request) (Result, error) { return e.Generate(t.Context(), r, nil) }
		want := []int{5, 49, 0, 31, 32}
		got, err := generate(Request{Tokens: []int{3}, MaxTokens: 5, Sampling: s, Mask: &only{tokens: want}})
		require.NoError(t, err)
		require.Equal(t, want, got.Tokens)
	}
	broken := errors.New("no grammar")
	got, err := generate(Request{Tokens: []int{3}, MaxTokens: 5, Mask: &only{tokens: []int{5, 6}, bad: broken}})
	require.ErrorIs(t, err, broken)
	require.Equal(t, []int{5}, got.Tokens)
}

func TestStopTokensEndOneRequest(t *testing.T) {
	e, _ := newFake(t, nil, nil)
	generate := func(r Request) (Result, error) { return e.Generate(t.Context(), r, nil) }
	plain, err := generate(Request{Tokens: []int{3, 4}, MaxTokens: 8})
	require.NoError(t, err)
	end := plain.Tokens[4]
	got, err := generate(Request{Tokens: []int{3, 4}, MaxTokens: 8, StopTokens: []int{end}})
	require.NoError(t, err)
	require.Equal(t, End, got.Finish)
	require.Equal(t, end, got.Tokens[len(got.Tokens)-1])
	require.NotContains(t, got.Tokens[:len(got.Tokens)-1], end)
	require.Equal(t, plain.Tokens[:len(got.Tokens)], got.Tokens)
}

func TestChoicesThatMakeNoSenseAreRefused(t *testing.T) {
	e, _ := newFake(t, nil, nil)
	generate := func(r Request) (Result, error) { return e.Generate(t.Context(), r, nil) }
	for want, r := range map[string]Request{
		"TopLogprobs is 21":    {Logprobs: true, TopLogprobs: 21},
		"without Logprobs":     {TopLogprobs: 1},
		"stop token 50":        {StopTokens: []int{fakeVocab}},
		"Bias: found token 50": {Penalties: sampling.Penalties{Bias: map[int]float64{fakeVocab: 1}}},
		"Repetition: found -1": {Penalties: sampling.Penalties{Repetition: -1}},
	} {
		r.Tokens = []int{1}
		_, err := generate(r)
		require.ErrorContains(t, err, want)
	}
}

// A long prompt is told of while it is fed, and once when it is; then the first token comes.
func TestTheProgressOfAPromptIsTold(t *testing.T) {
	e, _ := newFake(t, func(o *Options) { o.KVTokens = 800 }, nil)
	var mu sync.Mutex
	var told []int
	r := Request{Tokens: make([]int, 700), MaxTokens: 3}
	r.Progress = func(fed, of int) {
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, 700, of)
		told = append(told, fed)
	}
	got, err := e.Generate(t.Context(), r, func(Piece) bool {
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, 700, told[len(told)-1])
		return true
	})
	require.NoError(t, err)
	require.Len(t, got.Tokens, 3)
	require.Greater(t, len(told), 2)
	require.IsIncreasing(t, told)
}
