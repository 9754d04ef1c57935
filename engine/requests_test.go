package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/batch/batchtest"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/stretchr/testify/require"
)

// Many goroutines submit, read, dawdle and cancel at once; each gets what its
// request alone gives, piece by piece.
func TestConcurrentRequestsGetWhatTheyWouldAlone(t *testing.T) {
	b, _ := newFake(t, func(o *Options) { o.KVTokens = 30 * fakePage }, nil)
	var all sync.WaitGroup
	for i := range uint64(12) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(i, 5))
			for range 40 {
				if err := oneOf(b, r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Eventually(t, func() bool { l := b.Load(); return l.Running+l.Queued == 0 && l.Free+l.Idle == l.Pages },
		time.Minute, time.Millisecond)
}

// oneOf submits some request and compares its answer.
func oneOf(b *Engine, r *rand.Rand) error {
	req := Request{MaxTokens: r.IntN(30)}
	for range 1 + r.IntN(20) {
		req.Tokens = append(req.Tokens, r.IntN(2))
	}
	if r.IntN(4) == 0 {
		req.Sampling = sampling.Params{Temperature: 1, TopK: 1}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := b.Submit(ctx, req)
	if err != nil {
		return err
	}
	enough := r.IntN(60) // pieces
	var handed []int
	for p := range s.Pieces() {
		handed = append(handed, p.Token)
		if len(handed) == enough {
			cancel()
		}
	}
	got, err := s.Wait()
	want := batchtest.Alone(req.Tokens, len(got.Tokens), false)
	if fmt.Sprint(want) != fmt.Sprint(got.Tokens) || fmt.Sprint(handed) != fmt.Sprint(got.Tokens) {
		return fmt.Errorf("%v gave %v in the pieces %v, alone %v", req, got.Tokens, handed, want)
	}
	switch {
	case got.Finish == Length && err == nil && len(want) == req.MaxTokens:
	case got.Finish == Cancelled && errors.Is(err, context.Canceled) && len(want) >= enough:
	case got.Finish == KVFull && errors.As(err, new(*FullError)) && len(req.Tokens)+len(want) == b.KVTokens()+1:
	default:
		return fmt.Errorf("%v ended with %q and %w after %d tokens", req, got.Finish, err, len(want))
	}
	return nil
}

func TestPrefixesAreReusedAndCounted(t *testing.T) {
	b, f := newFake(t, nil, nil)
	prompt := []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	first, err := b.Generate(t.Context(), Request{Tokens: prompt, MaxTokens: 4}, nil)
	require.NoError(t, err)
	require.Equal(t, Usage{Prompt: 9, First: first.Usage.First, Total: first.Usage.Total}, first.Usage)
	require.Equal(t, 12, f.Fed)
	again, err := b.Generate(t.Context(), Request{Tokens: prompt, MaxTokens: 4}, nil)
	require.NoError(t, err)
	require.Equal(t, 2*fakePage, again.Usage.Reused)
	require.Equal(t, first.Tokens, again.Tokens)
	require.Equal(t, 12+4, f.Fed)
	require.Equal(t, Load{Pages: 10, Free: 7, Idle: 3}, b.Load())
}

func TestEndTokensAndLengthEndOneRequestOnly(t *testing.T) {
	long := Request{Tokens: []int{1, 2, 3}, MaxTokens: 30}
	tokens := wantedAlone(long)
	b, _ := newFake(t, func(o *Options) { o.Ends = []int{tokens[20]} }, nil)
	short := Request{Tokens: []int{4, 5}, MaxTokens: 2}
	one, two := ask(t, b, long), ask(t, b, short)
	got, err := one.Wait()
	require.NoError(t, err)
	require.Equal(t, End, got.Finish)
	require.Equal(t, tokens[:len(got.Tokens)], got.Tokens)
	require.Equal(t, tokens[20], got.Tokens[len(got.Tokens)-1])
	got, err = two.Wait()
	require.NoError(t, err)
	require.Equal(t, Length, got.Finish)
	require.Equal(t, wantedAlone(short), got.Tokens)
}

func wantedAlone(r Request) []int { return batchtest.Alone(r.Tokens, r.MaxTokens, false) }

// A launch that fails is the error of all that run, not of the one that waits.
func TestAFailedLaunchIsTheErrorOfAllThatRun(t *testing.T) {
	started, broken := make(chan struct{}), errors.New("the device is on fire")
	b, _ := newFake(t, func(o *Options) { o.MaxSequences = 2 }, func(f *batchtest.Stepper) {
		f.Before = func(r batch.StepRequest) {
			<-started
			if f.Launches == 3 {
				f.Fail = broken
			}
		}
	})
	prompts := [][]int{{1, 2}, {3, 4, 5}, {6}}
	var streams []*Stream
	for _, p := range prompts {
		streams = append(streams, ask(t, b, Request{Tokens: p, MaxTokens: 25}))
	}
	require.Eventually(t, func() bool { l := b.Load(); return l.Running+l.Queued == 3 }, time.Minute, time.Millisecond)
	close(started)
	failed := 0
	for i, s := range streams {
		got, err := s.Wait()
		if err != nil {
			failed++
			require.ErrorIs(t, err, broken)
			require.Regexp(t, "^engine: batch: a launch of [12] sequences failed: the device is on fire$", err.Error())
			require.Empty(t, got.Finish)
		}
		require.Equal(t, batchtest.Alone(prompts[i], len(got.Tokens), false), append([]int{}, got.Tokens...))
	}
	require.Equal(t, 2, failed)
	got, err := streams[2].Wait()
	require.NoError(t, err)
	require.Len(t, got.Tokens, 25)
}

// Close ends what runs and what waits, and closes the device once.
func TestCloseEndsAllRequests(t *testing.T) {
	running := make(chan struct{})
	var once sync.Once
	var device *nothing
	b, _ := newFake(t, func(o *Options) { o.MaxSequences, device = 1, o.Device.(*nothing) }, func(f *batchtest.Stepper) {
		f.Before = func(batch.StepRequest) { once.Do(func() { close(running) }) }
	})
	one, two := ask(t, b, Request{Tokens: []int{1}}), ask(t, b, Request{Tokens: []int{2}, MaxTokens: 1000})
	<-running
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	require.Equal(t, 1, device.closed)
	for i, s := range []*Stream{one, two} {
		got, err := s.Wait()
		if got.Finish == KVFull { // it was as fast
			continue
		}
		require.ErrorIs(t, err, ErrClosed)
		require.Equal(t, Cancelled, got.Finish)
		require.Equal(t, batchtest.Alone([]int{1 + i}, len(got.Tokens), false), append([]int{}, got.Tokens...))
	}
	_, err := b.Submit(t.Context(), Request{Tokens: []int{1}})
	require.ErrorIs(t, err, ErrClosed)
	require.Equal(t, Load{Pages: 10, Free: 10}, b.Load())
}

// between is a fake that calls at after each step.
type between struct {
	batchtest.Stepper
	at func(step int)
}

func (f *between) Run(ctx context.Context, r batch.StepRequest) ([][]int, error) {
	each, step := r.Each, 0
	r.Each = func(chosen []int) bool {
		step++
		f.at(step)
		return each(chosen)
	}
	return f.Stepper.Run(ctx, r)
}

// What comes while a long launch runs does not wait for its end.
func TestALaunchEndsForARequestThatCanStart(t *testing.T) {
	o, err := fakeOptions().complete()
	require.NoError(t, err)
	o.TokensPerLaunch = 30
	f := &between{Stepper: batchtest.Stepper{T: 8, Page: fakePage, Pages: 10}}
	var b *Engine
	var second *Stream
	started := make(chan struct{})
	f.at = func(step int) {
		<-started
		if step == 5 && second == nil {
			second = ask(t, b, Request{Tokens: []int{2}, MaxTokens: 3})
		}
	}
	b, err = newEngine(o, f, o.Device.Close)
	require.NoError(t, err)
	first := ask(t, b, Request{Tokens: []int{1}, MaxTokens: 30})
	close(started)
	_, err = first.Wait()
	require.NoError(t, err)
	got, err := second.Wait()
	require.NoError(t, err)
	require.Equal(t, batchtest.Alone([]int{2}, 3, false), got.Tokens)
	require.NoError(t, b.Close())
	require.Equal(t, []string{"30 0+1", "3 5+1 0+1", "22 8+1"}, f.Log)
}

func TestRequestsThatDoNotFitOrComeCancelledRunNothing(t *testing.T) {
	b, f := newFake(t, nil, nil)
	got, err := b.Generate(t.Context(), Request{Tokens: make([]int, 41)}, nil)
	require.EqualError(t, err, "the KV cache has room for 40 tokens, the prompt has 41")
	require.Equal(t, KVFull, got.Finish)
	require.Zero(t, f.Launches)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err = b.Generate(ctx, Request{Tokens: []int{1}}, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, Cancelled, got.Finish)
	require.Zero(t, f.Launches)
	got, err = b.Generate(t.Context(), Request{Tokens: []int{1}, MaxTokens: 1000}, func(p Piece) bool { return false })
	if got.Finish != KVFull { // it was as fast
		require.NoError(t, err)
		require.Equal(t, Cancelled, got.Finish)
	}
	for _, n := range []int{-1, 9} {
		o := fakeOptions()
		o.MaxSequences = n
		_, err = newEngine(o, f, nil)
		require.EqualError(t, err,
			fmt.Sprintf("engine: %d sequences at a time, want 1 to 8: each needs a row of every step, of which there are 8", n))
	}
}
