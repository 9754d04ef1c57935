package batch_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/batch/batchtest"
	"github.com/mkgen/mkgen/engine/pages"
	"github.com/stretchr/testify/require"
)

// Without pieces a prompt's results depend on who else runs, where they depend on which
// tokens come together: what TestInPiecesEveryJobGetsWhatItWouldAlone sees is no chance.
func TestSharedRowsCutAPromptByWhoElseRuns(t *testing.T) {
	got := map[int][]int{}
	for _, others := range []int{0, 3} {
		b := newBench(t, sizes{rows: 8, page: 4, pages: 90, steps: 4})
		b.f.Pieces = true
		c := b.add(count(1, 30), 9)
		for i := range others {
			b.add(count(10*i, 20), 9)
		}
		b.all()
		got[others] = c.got
		b.close()
	}
	require.NotEqual(t, got[0], got[3])
}

// A piece comes whole or not at all; who has waited longest is first, so that neither
// those that decode nor those with long prompts wait for more launches than others run.
func TestPiecesComeWholeInTurn(t *testing.T) {
	b := newBench(t, sizes{rows: 8, page: 4, pages: 50, steps: 4, piece: 8})
	b.add(count(1, 3), 30)
	b.step()
	b.add(count(10, 20), 5)
	b.add(count(20, 9), 5)
	b.add(count(30, 2), 5)
	for range 9 {
		b.step()
	}
	require.Equal(t, []string{
		"1 0+3",
		"1 3+1 0+2",
		"1 0+8",
		"1 0+8",
		"1 4+1 8+1 2+1", // the second prompt's last piece
		"1 8+8",
		"1 5+1 16+4 9+1 3+1",
		"2 6+1 20+1 10+1 4+1",
		"1 8+1 22+1 12+1",
		"1 9+1 23+1",
	}, b.f.Log)
	b.all()
	b.close()
}

// However many decode and whatever prompts come, between two launches that somebody has
// rows in there are never more than others run.
func TestNobodyWaitsForMoreLaunchesThanOthersRun(t *testing.T) {
	b := newBench(t, sizes{rows: 16, page: 4, pages: 600, steps: 3, piece: 16})
	last := map[uint32]int{} // by first page
	most := 0
	b.f.Before = func(r batch.StepRequest) {
		for _, q := range r.Sequences {
			if at, ok := last[q.Pages[0]]; ok && q.Cached > 0 {
				most = max(most, b.f.Launches-at)
			}
			last[q.Pages[0]] = b.f.Launches
		}
	}
	for i := range 40 { // of which 16 run
		b.add(count(i, 3+60*(i%3)), 5+i)
	}
	b.all()
	require.Greater(t, most, 1)
	require.LessOrEqual(t, most, 16)
	b.close()
}

// A launch of many steps begins only when all have a part in it.
func TestNobodyIsLeftOutOfALongLaunch(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 4, pages: 50, steps: 6, piece: 4})
	b.add(count(1, 2), 9)
	b.add(count(10, 9), 9)
	b.all()
	require.Equal(t, []string{"1 0+2", "1 0+4", "1 2+1", "1 4+4", "6 3+1 8+1", "1 9+1 14+1", "2 15+1"}, b.f.Log)
	b.close()
}

// A prefix is taken over as far as it came in the pieces in which it would come: not
// what another one was answered, and not its prompt's last piece unless it is whole.
func TestAPrefixIsTakenOverInWholePieces(t *testing.T) {
	for _, page := range []int{2, 4, 8} {
		b := newBench(t, sizes{rows: 8, page: page, pages: 200 / page, steps: 5, piece: 4})
		first := b.add(count(1, 10), 20)
		b.all()
		require.Equal(t, first.alone(20), first.got)
		for _, c := range []struct {
			prompt []int
			want   int
		}{
			{append(append(count(1, 10), first.got...), 7), 8}, // a conversation goes on
			{count(1, 10), 8},
			{count(1, 7), 4 / page * page / 4 * 4},
			{count(1, 9), 8},
		} {
			next := b.add(c.prompt, 9)
			b.all()
			require.Equal(t, next.alone(9), next.got)
			require.Equal(t, c.want, next.stats.Reused, "pages of %d, a prompt of %d", page, len(c.prompt))
		}
		b.close()
	}
}

// Who is sent back finds what it was answered in the tree, or is fed it one by one.
func TestWhoIsSentBackIsFedItsAnswerOneByOne(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 2, pages: 10, steps: 3, piece: 4})
	old, young := b.add(count(1, 2), 17), b.add(count(11, 2), 17)
	b.all()
	require.Equal(t, old.alone(17), old.got)
	require.Equal(t, young.alone(17), young.got)
	require.Positive(t, young.stats.Preempted)
	b.close()
}

// Jobs that begin alike still compute it once.
func TestASharedPromptIsComputedOnceInPieces(t *testing.T) {
	for _, page := range []int{2, 4, 16} {
		b := newBench(t, sizes{rows: 16, page: page, pages: 400 / page, steps: 4, piece: 8})
		var all []*client
		for i := range 8 {
			all = append(all, b.add(append(count(1, 64), i), 10))
		}
		b.all()
		for _, c := range all {
			require.Equal(t, c.alone(10), c.got)
		}
		require.Equal(t, 64+8*10, b.f.Fed, "pages of %d", page)
		b.close()
	}
}

func TestPiecesThatNoStepHoldsAreRefused(t *testing.T) {
	for piece, want := range map[int]string{-1: "pieces of -1 tokens, want 1 to the 4 of a launch, or 0 for any",
		5: "pieces of 5 tokens, want 1 to the 4 of a launch, or 0 for any"} {
		_, err := batch.New(batch.Options{Stepper: &batchtest.Stepper{T: 4}, Pool: pages.New(3), Page: 4, Vocab: 9,
			Positions: 9, StepsPerLaunch: 1, Piece: piece})
		require.EqualError(t, err, want)
	}
}

// With a bound beside others, which the cached tokens lower, a prompt has shorter launches as long as others run.
func TestAPromptBesideOthersHasShorterLaunches(t *testing.T) {
	b := newBench(t, sizes{rows: 4, long: 16, beside: 7, page: 4, pages: 50, steps: 1})
	b.add([]int{1}, 4)
	b.step()
	b.add(count(40, 38), 1)
	b.all()
	require.Equal(t, []string{"1 0+1", "1 0+6", "1 1+1 6+3", "1 9+5", "1 2+1 14+3", "1 17+5", "1 3+1 22+3", "1 25+13"},
		b.f.Log)
	b.close()
	for _, wrong := range []int{1, 4, 17} {
		_, err := batch.New(batch.Options{Stepper: b.f, Pool: pages.New(5), Page: 4, Vocab: 9, Positions: 9,
			StepsPerLaunch: 1, Beside: func(int, int, bool) int { return wrong }})
		require.ErrorContains(t, err, fmt.Sprintf("tokens of a prompt in a launch beside others: %d, want more than "+
			"the 4 rows of a step and at most the 16 of a launch", wrong))
	}
}

// How many tokens a launch has beside others is asked of the prompts that it takes, and of none behind them.
func TestALaunchAsksItsBoundOfThePromptsThatItTakes(t *testing.T) {
	asked := 0
	f := &batchtest.Stepper{T: 8, Long: 16, Of: 8, Page: 4, Pages: 80}
	s, err := batch.New(batch.Options{Stepper: f, Pool: pages.New(80), Page: 4, Vocab: batchtest.Vocab, Positions: 1000,
		StepsPerLaunch: 1, Beside: func(int, int, bool) int { asked++; return 12 }})
	require.NoError(t, err)
	asked = 0 // by New
	s.Add([]int{1}, &client{t: t, prompt: []int{1}, want: 4, stop: -1})
	require.NoError(t, s.Step(t.Context()))
	for i := range 6 {
		prompt := count(i, 20)
		s.Add(prompt, &client{t: t, prompt: prompt, want: 1, stop: -1})
	}
	require.NoError(t, s.Step(t.Context()))
	require.Equal(t, "1 1+1 0+11", f.Log[1])
	require.Equal(t, 1, asked)
	require.NoError(t, s.Close(errors.New("closed")))
}

// Where a launch may have several sequences those that decode ride along with a prompt, and prompts share it; who draws
// on the host has a part in every second launch, and those of prompts are shorter then.
func TestSequencesThatDecodeRideWithAPrompt(t *testing.T) {
	b := newBench(t, sizes{rows: 4, long: 16, several: 3, page: 4, pages: 80, steps: 1})
	one := b.add([]int{1}, 9)
	b.step()
	long, short := b.add(count(40, 38), 2), b.add(count(3, 7), 2)
	for b.Busy() {
		b.step()
	}
	require.Equal(t, []string{"1 0+1", "1 1+1 0+8 0+7", "1 2+1 8+14 7+1", "1 3+1 22+15", "1 4+1 37+1",
		"1 5+1 38+1"}, b.f.Log[:6])
	for _, c := range []*client{one, long, short} {
		require.Equal(t, c.alone(c.want), c.got)
	}
	b.close()

	b = newBench(t, sizes{rows: 4, long: 16, several: 3, beside: 6, page: 4, pages: 80, steps: 1})
	drawn := b.add([]int{1}, 4)
	drawn.draws = true
	rider := b.add([]int{2}, 9)
	b.step()
	b.add(count(40, 20), 1)
	b.all()
	require.Equal(t, []string{"1 0+1 0+1", "1 1+1 0+4", "1 1+1 2+1 4+2", "1 3+1 6+4"}, b.f.Log[:4])
	require.Equal(t, drawn.alone(4), drawn.got)
	require.Equal(t, rider.alone(9), rider.got)
	b.close()
}

// Of prompts as long as each other the one that began ends first, so that first tokens come one after the other; a
// short prompt overtakes a long one; and however many short ones come, the oldest prompt has every fourth launch.
func TestPromptsComeByTheirTokensLeftAndTheOldestIsNotHeldUp(t *testing.T) {
	z := sizes{rows: 4, long: 16, several: 4, page: 4, pages: 400, steps: 1}
	b := newBench(t, z)
	first := func(c *client) bool { return len(c.got) > 0 }
	all := []*client{b.add(count(2, 40), 1), b.add(count(3, 40), 1), b.add(count(4, 40), 1)}
	for i := range all {
		for !first(all[i]) {
			b.step()
		}
		require.False(t, slices.ContainsFunc(all[i+1:], first), "prompt %d", i)
	}
	b.all()
	long, short := b.add(count(5, 64), 1), b.add(count(6, 15), 1)
	for !first(short) {
		b.step()
	}
	require.False(t, first(long))
	b.close()

	b = newBench(t, z)
	old, launches := b.add(count(2, 64), 1), 0
	for ; !first(old) && launches < 100; launches++ {
		b.add(count(3+launches, 15), 1)
		b.add(count(5+launches, 16), 1)
		b.step()
	}
	require.LessOrEqual(t, launches, 4*64/16+8, "and some steps between")
	b.close()
}
