package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/batch/batchtest"
	"github.com/mkgen/mkgen/engine/pages"
	"github.com/stretchr/testify/require"
)

// Who fills the cache alone is refused, with all that it has until then; who never
// fits is refused at once. Others do not notice.
func TestAJobThatFillsTheCacheIsRefusedAlone(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 4, pages: 5, steps: 8})
	never := b.add(count(1, 21), 1)
	require.ErrorIs(t, never.err, batch.ErrFull)
	greedy, other := b.add(count(1, 3), 1000), b.add(count(11, 4), 5)
	b.all()
	require.ErrorIs(t, greedy.err, batch.ErrFull)
	require.Equal(t, greedy.alone(18), greedy.got) // the last one needs no room
	require.NoError(t, other.err)
	require.Equal(t, other.alone(5), other.got)
	exact := b.add(count(21, 20), 9)
	b.all()
	require.ErrorIs(t, exact.err, batch.ErrFull)
	require.Equal(t, exact.alone(1), exact.got)
	b.close()
}

func TestAFailedLaunchEndsWhatRunsAndLeaksNothing(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 4, pages: 20, sequences: 2, steps: 4})
	one, two, three := b.add(count(1, 5), 20), b.add(count(11, 6), 20), b.add(count(21, 2), 20)
	for range 3 {
		b.step()
	}
	broken := errors.New("broken")
	b.f.Fail = broken
	require.ErrorIs(t, b.Step(t.Context()), broken)
	require.NoError(t, b.Check())
	for _, c := range []*client{one, two} {
		require.EqualError(t, c.err, "batch: a launch of 2 sequences failed: broken")
		require.Equal(t, c.alone(len(c.got)), c.got)
	}
	require.False(t, three.left)
	b.all()
	require.NoError(t, three.err)
	require.Equal(t, three.alone(20), three.got)
	b.close()
}

// A launch that is too much for the kernel is made of those that have waited longest, and
// the others have their rows later: nobody is sent back, and all get what they would alone.
func TestALaunchOfTooMuchIsMadeOfFewer(t *testing.T) {
	for _, piece := range []int{0, 4} {
		b := newBench(t, sizes{rows: 8, page: 4, pages: 90, steps: 6, piece: piece, most: 40})
		var all []*client
		for i := range 4 {
			all = append(all, b.add(count(10*i, 12), 20))
		}
		last, most := map[uint32]int{}, 0 // by first page
		b.f.Before = func(r batch.StepRequest) {
			for _, q := range r.Sequences {
				if at, ok := last[q.Pages[0]]; ok {
					most = max(most, b.f.Launches-at)
				}
				last[q.Pages[0]] = b.f.Launches
			}
		}
		b.all()
		for _, c := range all {
			require.NoError(t, c.err)
			require.Equal(t, c.alone(20), c.got)
			require.Zero(t, c.stats.Preempted)
		}
		require.Greater(t, most, 1, "all had a part in all launches")
		require.LessOrEqual(t, most, 4)
		b.close()
	}
}

// A launch of several steps that is too much is one of one step.
func TestALaunchOfTooManyStepsIsMadeOfOne(t *testing.T) {
	b := newBench(t, sizes{rows: 8, page: 2, pages: 90, steps: 6, most: 13})
	one, two := b.add(count(1, 3), 8), b.add(count(11, 3), 5)
	b.all()
	for c, want := range map[*client]int{one: 8, two: 5} {
		require.NoError(t, c.err)
		require.Equal(t, c.alone(want), c.got)
	}
	require.Equal(t, []string{"1 0+3 0+3", "1 3+1 3+1", "1 4+1 4+1", "1 5+1 5+1", "1 6+1", "1 6+1", "3 7+1"}, b.f.Log)
	b.close()
}

// A prompt's rows that are too much alone come in halves, the same ones whatever else runs, and what they chose in
// fewer at a time.
func TestAPieceThatIsTooMuchAloneComesInHalves(t *testing.T) {
	var alone []int
	for others := range 3 {
		b := newBench(t, sizes{rows: 16, page: 4, pages: 90, steps: 6, piece: 16, heavy: 100})
		large, all := b.add(count(11, 60), 9), []*client{}
		for i := range others {
			all = append(all, b.add(count(100*i, 3+30*i), 40))
		}
		var pieces []string
		b.f.Before = func(r batch.StepRequest) {
			for _, q := range r.Sequences {
				if q.New[0] == 11+q.Cached {
					pieces = append(pieces, fmt.Sprintf("%d+%d", q.Cached, len(q.New)))
				}
			}
		}
		b.all()
		require.Equal(t, []string{"0+16", "16+4", "20+3", "23+4"}, pieces[:4], "%d others", others)
		require.NoError(t, large.err)
		if others == 0 {
			alone = large.got
		}
		require.Len(t, large.got, 9)
		require.Equal(t, alone, large.got)
		for _, c := range all {
			require.NoError(t, c.err)
			require.Len(t, c.got, 40)
		}
		b.close()
	}
}

// What is too much alone ends alone.
func TestAJobThatIsTooMuchAloneIsRefusedAlone(t *testing.T) {
	for _, piece := range []int{0, 4} {
		b := newBench(t, sizes{rows: 8, page: 4, pages: 90, steps: 6, piece: piece, most: 40})
		small, large, other := b.add(count(1, 12), 9), b.add(count(11, 36), 20), b.add(count(21, 20), 15)
		b.all()
		require.NoError(t, small.err)
		require.Equal(t, small.alone(9), small.got)
		require.EqualError(t, large.err, "batch: batchtest: 41 tokens, want at most 40")
		require.Equal(t, large.alone(5), large.got)
		require.NoError(t, other.err)
		require.Equal(t, other.alone(15), other.got)
		b.close()
	}
}

// What a stepper must not return is the error of a launch.
func TestImpossibleResultsAreErrors(t *testing.T) {
	for want, wrong := range map[string][][]int{
		"batch: a launch of 1 sequences failed: a launch of 1 steps ran 0":            {},
		"batch: a launch of 1 sequences failed: a launch of 1 steps ran 2":            {{1}, {2}},
		"batch: a launch of 1 sequences failed: step 0 of 1 sequences chose 2 tokens": {{1, 2}},
	} {
		b := newBench(t, sizes{rows: 4, page: 4, pages: 5})
		s, err := batch.New(batch.Options{Stepper: &liar{b.f, wrong}, Pool: pages.New(5), Page: 4, Vocab: batchtest.Vocab,
			Positions: 99, StepsPerLaunch: 1})
		require.NoError(t, err)
		c := &client{t: t, prompt: []int{1}, want: 3}
		s.Add(c.prompt, c)
		require.Error(t, s.Step(t.Context()))
		require.EqualError(t, c.err, want)
		require.NoError(t, s.Close(nil))
	}
}

// liar returns what it is told to.
type liar struct {
	*batchtest.Stepper
	wrong [][]int
}

func (l *liar) Run(context.Context, batch.StepRequest) ([][]int, error) { return l.wrong, nil }

// A draw that fails ends one job.
func TestADrawThatFailsEndsOneJob(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 4, pages: 20, steps: 4})
	bad, good, greedy := b.add(count(1, 5), 9), b.add(count(11, 6), 9), b.add(count(21, 2), 9)
	bad.draws, good.draws, bad.bad = true, true, errors.New("no such token")
	b.all()
	require.EqualError(t, bad.err, "position 5: no such token")
	for _, c := range []*client{good, greedy} {
		require.NoError(t, c.err)
		require.Equal(t, c.alone(9), c.got)
	}
	b.close()
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	held := pages.New(3)
	_, err := held.Take(1)
	require.NoError(t, err)
	for want, change := range map[string]func(*batch.Options){
		"a stepper of 0 rows, want at least 1": func(o *batch.Options) {
			o.Stepper = &batchtest.Stepper{}
		},
		"5 sequences at a time, want 1 to 4: each needs a row of every step, of which there are 4": func(o *batch.Options) {
			o.MaxSequences = 5
		},
		"0 steps a launch, want at least 1":                         func(o *batch.Options) { o.StepsPerLaunch = 0 },
		"3 pages of 0 tokens and 9 positions, want at least 1 each": func(o *batch.Options) { o.Page = 0 },
		"2 of 3 KV pages are free, want all":                        func(o *batch.Options) { o.Pool = held },
	} {
		o := batch.Options{Stepper: &batchtest.Stepper{T: 4}, Pool: pages.New(3), Page: 4, Vocab: 9, Positions: 9,
			StepsPerLaunch: 1}
		change(&o)
		_, err := batch.New(o)
		require.EqualError(t, err, want)
	}
	s, err := batch.New(batch.Options{Stepper: &batchtest.Stepper{T: 99}, Pool: pages.New(3), Page: 4, Vocab: 9,
		Positions: math.MaxInt, StepsPerLaunch: 1})
	require.NoError(t, err)
	require.Equal(t, 12, s.Limit())
}
