package batch_test

import (
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/batch/batchtest"
	"github.com/mkgen/mkgen/kv"
	"github.com/stretchr/testify/require"
)

// Jobs that come and go in all ways, in caches that are too small for them: what
// each gets is what it would get alone, and the books agree after every launch.
func TestWhateverHappensEveryJobGetsWhatItWouldAlone(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		z := sizes{rows: 1 + r.IntN(16), page: 1 << r.IntN(4), steps: 1 + r.IntN(9), seed: seed}
		z.pages = 1 + (20+r.IntN(150))/z.page
		z.sequences = 1 + r.IntN(z.rows)
		if r.IntN(3) == 0 {
			z.positions = 10 + r.IntN(60)
		}
		if seed%3 == 1 {
			z.long = z.rows + r.IntN(40)
			z.several = r.IntN(3) * 8
			if z.long > z.rows && seed%2 == 0 {
				z.beside = z.rows + 1 + r.IntN(z.long-z.rows)
			}
		}
		runRandom(t, z, r, 60, seen)
	}
	for what, least := range map[string]int{"whole": 1000, "gone": 100, "full": 30, "preempted": 300, "reused": 500,
		"stopped": 100, "drawn": 300, "scored": 300, "failed": 20, "log-probabilities": 10000} {
		require.Greater(t, seen[what], least, what)
	}
	t.Log(seen)
}

// With pieces each gets what it would alone even where results depend on which tokens
// come together, as bits do: also who begins like another one, goes on from its end, or
// was sent back.
func TestInPiecesEveryJobGetsWhatItWouldAlone(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 2))
		z := sizes{rows: 1 + r.IntN(16), page: 1 << r.IntN(5), steps: 1 + r.IntN(9), seed: seed + 1}
		z.pages = 1 + (20+r.IntN(150))/z.page
		z.sequences = 1 + r.IntN(z.rows)
		if z.piece = 1 + r.IntN(z.rows); r.IntN(2) == 0 { // any, or a power of two
			z.piece = 1 << (bits.Len(uint(z.piece)) - 1)
		}
		if r.IntN(3) == 0 {
			z.most = 10 + r.IntN(z.pages*z.page)
		}
		if seed%3 == 1 { // longer ones than a step has rows go alone
			z.long = z.rows + 1 + r.IntN(40)
			z.piece = z.rows + 1 + r.IntN(z.long-z.rows)
		}
		runRandom(t, z, r, 60, seen)
	}
	for what, least := range map[string]int{"whole": 1000, "gone": 100, "full": 30, "preempted": 300, "reused": 300,
		"stopped": 100, "drawn": 300, "scored": 300, "failed": 20, "too much": 100} {
		require.Greater(t, seen[what], least, what)
	}
	t.Log(seen)
}

// With drafts, of models that repeat themselves and of some that do not, each gets what it would alone: also with few
// pages, whoever leaves, and whatever tokens end a launch.
func TestWithDraftsEveryJobGetsWhatItWouldAlone(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 6))
		z := sizes{rows: 1 + r.IntN(16), page: 1 << r.IntN(4), steps: 1 + r.IntN(9), seed: seed, drafts: 1 + r.IntN(9),
			few: 1 + r.IntN(4)}
		z.pages = 1 + (20+r.IntN(150))/z.page
		z.sequences = 1 + r.IntN(z.rows)
		if r.IntN(3) == 0 {
			z.positions = 10 + r.IntN(60)
		}
		runRandom(t, z, r, 40, seen)
	}
	for what, least := range map[string]int{"whole": 300, "gone": 100, "full": 30, "preempted": 100, "reused": 300,
		"stopped": 20, "drafted": 5000, "accepted": 3000} {
		require.Greater(t, seen[what], least, what)
	}
	t.Log(seen)
}

// Where keys of short sequences are others, each gets what it would alone, with drafts and without: also who grows
// beyond, who begins like one that did or did not, and who runs beside the other kind.
func TestShortAndLongSequencesGetWhatTheyWouldAlone(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 8))
		z := sizes{rows: 1 + r.IntN(16), page: 1 << r.IntN(4), steps: 1 + r.IntN(9), seed: seed, short: 5 + r.IntN(60)}
		z.pages = 1 + (20+r.IntN(150))/z.page
		z.sequences = 1 + r.IntN(z.rows)
		switch seed % 3 {
		case 1:
			z.long = z.rows + r.IntN(40)
		case 2:
			z.drafts, z.few = 1+r.IntN(9), 1+r.IntN(4)
		}
		runRandom(t, z, r, 40, seen)
	}
	for what, least := range map[string]int{"whole": 300, "gone": 100, "preempted": 100, "reused": 300, "drawn": 100,
		"scored": 100, "accepted": 1000, "grown": 100} {
		require.Greater(t, seen[what], least, what)
	}
	t.Log(seen)
}

// runRandom lets some jobs loose on a bench and says in seen what they met with.
func runRandom(t *testing.T, z sizes, r *rand.Rand, jobs int, seen map[string]int) {
	b := newBench(t, z)
	defer b.close()
	broken := errors.New("broken")
	var all []*client
	for len(all) < jobs || b.Busy() {
		for len(all) < jobs && r.IntN(3) == 0 {
			all = append(all, b.random(r, all))
		}
		if len(all) > 0 && r.IntN(6) == 0 {
			if c := all[r.IntN(len(all))]; !c.left {
				c.gone = true
			}
		}
		b.f.Ahead = r.IntN(4)
		if r.IntN(400) == 0 && b.Busy() {
			b.f.Fail = broken
		}
		if err := b.Step(t.Context()); err != nil {
			require.ErrorIs(t, err, broken)
			running, _ := b.Counts()
			require.Zero(t, running)
		}
		b.f.Fail = nil
		require.NoError(t, b.Check())
	}
	for _, c := range all {
		b.judge(c, broken, seen)
	}
}

// random adds a job: a prompt that perhaps begins like that of another one, or
// goes on from its end.
func (b *bench) random(r *rand.Rand, all []*client) *client {
	var prompt []int
	if len(all) > 0 && r.IntN(3) > 0 {
		c := all[r.IntN(len(all))]
		prompt = slices.Concat(c.prompt, c.got)
		prompt = slices.Clone(prompt[:r.IntN(len(prompt)+1)])
	}
	for range 1 + r.IntN(1+b.Limit()/3) {
		prompt = append(prompt, r.IntN(3))
	}
	c := &client{t: b.t, prompt: prompt, want: 1 + r.IntN(1+b.Limit()), stop: -1, draws: r.IntN(4) == 0 && b.z.few == 0,
		scores: r.IntN(5) == 0 && b.z.few == 0, piece: b.z.piece, most: b.z.most, few: b.z.few, short: b.z.short}
	c.tops = !c.scores && !c.draws && b.z.few == 0 && len(all)%2 == 0
	if c.scores {
		c.piece = min(c.piece, b.z.rows)
	}
	switch r.IntN(5) {
	case 0:
		c.goneAt = 1 + r.IntN(5)
	case 1:
		c.stop = r.IntN(batchtest.Vocab)
	}
	b.Add(prompt, c)
	return c
}

// judge compares a job that has left with what it would be alone.
func (b *bench) judge(c *client, broken error, seen map[string]int) {
	t := b.t
	require.True(t, c.left)
	require.Equal(t, c.alone(len(c.got)), append([]int{}, c.got...))
	switch {
	case errors.Is(c.err, broken):
		seen["failed"]++
	case errors.As(c.err, new(kv.LimitError)):
		seen["too much"]++
		require.Greater(t, len(c.prompt)+len(c.got)+b.z.rows, b.z.most)
	case errors.Is(c.err, batch.ErrFull):
		seen["full"]++
		require.Equal(t, max(b.Limit()+1, len(c.prompt)), len(c.prompt)+len(c.got))
	case c.gone:
		seen["gone"]++
	case len(c.got) > 0 && c.got[len(c.got)-1] == c.stop:
		seen["stopped"]++
	default:
		seen["whole"]++
		require.Len(t, c.got, c.want)
	}
	if c.scores {
		seen["scored"]++
		want := batchtest.Within(c.prompt, c.piece, c.most, len(c.prompt) <= b.z.short)
		if len(c.got) == 0 {
			want = append([]int(nil), want[:len(c.scored)]...)
		}
		require.Equal(t, want, append([]int(nil), c.scored...))
	}
	if c.tops {
		seen["log-probabilities"] += len(c.logs)
		require.Equal(t, append([]int{}, c.got[:len(c.logs)]...), append([]int{}, c.logs...))
		if !errors.Is(c.err, broken) { // in a launch that has given tokens, perhaps
			require.Len(t, c.logs, len(c.got))
		}
	}
	if n := len(c.prompt); n <= b.z.short && n+len(c.got) > b.z.short+1 {
		seen["grown"]++
	}
	require.NotContains(t, c.got[:max(0, len(c.got)-1)], c.stop)
	if c.stats.Preempted > 0 {
		seen["preempted"]++
	}
	if c.stats.Reused > 0 {
		seen["reused"]++
	}
	if c.draws {
		seen["drawn"]++
	}
	seen["drafted"] += c.stats.Drafted
	seen["accepted"] += c.stats.Accepted
}

// The same calls do the same.
func TestTheScheduleIsAFunctionOfTheCalls(t *testing.T) {
	var logs [2][]string
	for i := range logs {
		r := rand.New(rand.NewPCG(7, 7))
		b := newBench(t, sizes{rows: 8, page: 4, pages: 30, steps: 5})
		var all []*client
		for range 40 {
			all = append(all, b.random(r, all))
			b.step()
		}
		b.all()
		b.close()
		logs[i] = b.f.Log
	}
	require.Equal(t, logs[0], logs[1])
	require.Greater(t, len(logs[0]), 100)
}

// A context that ends at any time ends no job.
func TestAContextThatEndsLosesNothing(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 2, pages: 40, steps: 6})
	a, c := b.add(count(1, 9), 20), b.add(count(20, 3), 15)
	for n := 1; b.Busy(); n++ {
		ctx, cancel := context.WithCancel(t.Context())
		b.f.Before = func(batch.StepRequest) {
			if n%3 == 0 {
				cancel()
			}
		}
		err := b.Step(ctx)
		require.NoError(t, b.Check())
		if n%3 == 0 {
			require.ErrorIs(t, err, context.Canceled)
		} else {
			require.NoError(t, err)
		}
		cancel()
		require.ErrorIs(t, b.Step(ctx), context.Canceled)
	}
	require.Equal(t, a.alone(20), a.got)
	require.Equal(t, c.alone(15), c.got)
	b.close()
}

func FuzzScheduler(f *testing.F) {
	f.Add(uint64(1), uint8(4), uint8(2), uint8(30), uint8(4), uint8(5))
	f.Add(uint64(2), uint8(16), uint8(0), uint8(9), uint8(16), uint8(1))
	f.Add(uint64(3), uint8(1), uint8(7), uint8(1), uint8(1), uint8(200))
	f.Fuzz(func(t *testing.T, seed uint64, rows, page, pages, sequences, steps uint8) {
		z := sizes{rows: 1 + int(rows%16), page: 1 << (page % 8), pages: 1 + int(pages), steps: 1 + int(steps), seed: seed}
		z.pages = min(z.pages, 1+300/z.page) // the fake reads every token at every step
		z.sequences = 1 + int(sequences)%z.rows
		if seed%2 == 1 {
			z.piece = 1 + int(seed>>1)%z.rows
		}
		runRandom(t, z, rand.New(rand.NewPCG(seed, 3)), 12, map[string]int{})
	})
}
