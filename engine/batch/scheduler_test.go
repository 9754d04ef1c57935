package batch_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever decodes has one row, prompts share the others evenly.
func TestPromptsShareTheRowsThatDecodingLeaves(t *testing.T) {
	b := newBench(t, sizes{rows: 8, page: 4, pages: 50, steps: 4})
	b.add(count(1, 3), 30)
	b.step()
	b.add(count(10, 20), 5)
	b.add(count(20, 9), 5)
	b.add(count(30, 2), 5)
	for range 4 {
		b.step()
	}
	require.Equal(t, []string{
		"1 0+3",
		"1 3+1 0+3 0+2 0+2", // the last one's prompt ends
		"1 4+1 3+3 2+3 2+1",
		"1 5+1 6+3 5+3 3+1",
		"1 6+1 9+5 8+1 4+1",
	}, b.f.Log)
	b.all()
	b.close()
}

// A prompt of more tokens than a step has rows goes alone, as many tokens as the stepper takes so. Those that decode
// have every second launch, in which the prompt has the rows that they leave.
func TestALongPromptGoesAloneInTurnsWithThoseThatDecode(t *testing.T) {
	b := newBench(t, sizes{rows: 4, long: 16, page: 4, pages: 50, steps: 4})
	b.add(count(1, 20), 3)
	b.step()
	b.add(count(40, 38), 2)
	b.all()
	require.Equal(t, []string{
		"1 0+16",     // of 20: the rest fits into steps of 4
		"1 16+2 0+2", // the other one has come
		"1 2+16",
		"1 18+2 18+2",
		"1 20+16",
		"1 20+1 36+2",
		"1 21+1 38+1",
	}, b.f.Log)
	b.close()
}

// What is left of a prompt goes through steps where a launch of its own would not be worth it.
func TestWhatIsTooShortForALaunchAloneGoesThroughSteps(t *testing.T) {
	b := newBench(t, sizes{rows: 4, long: 16, least: 9, page: 4, pages: 50, steps: 4})
	b.add(count(1, 24), 1)
	b.add(count(40, 4+4), 1)
	b.all()
	require.Equal(t, []string{"1 0+16", "1 16+2 0+2", "1 18+2 2+2", "1 20+2 4+2", "1 22+2 6+2"}, b.f.Log)
	b.close()
}

// What cannot be shared out evenly goes to another one at each step.
func TestNoPromptIsAlwaysFirst(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 4, pages: 50, steps: 4})
	for i := range 3 {
		b.add(count(10*i, 9), 1)
	}
	for range 4 {
		b.step()
	}
	require.Equal(t, []string{"1 0+2 0+1 0+1", "1 2+1 1+2 1+1", "1 3+1 3+1 2+2", "1 4+2 4+1 4+1"}, b.f.Log)
	b.all()
	b.close()
}

// Pages with the same tokens behind different ones are different pages.
func TestNobodyWaitsForAPageThatOnlyLooksAlike(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 2, pages: 50, steps: 4})
	b.add([]int{1, 2, 8, 9, 9}, 1)
	b.add([]int{3, 4, 8, 9, 9}, 1)
	b.all()
	require.Equal(t, []string{"1 0+2 0+2", "1 2+2 2+2", "1 4+1 4+1"}, b.f.Log)
	b.close()
}

// A launch ends when somebody has had enough before the kernel could know; who is
// gone is asked before each token.
func TestALaunchEndsWhenAClientHasEnough(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 4, pages: 50, steps: 30})
	b.f.Ahead = 1
	one, two, three := b.add(count(1, 1), 30), b.add(count(2, 1), 30), b.add(count(3, 1), 30)
	one.stop, two.goneAt = one.alone(30)[4], 9
	require.NotContains(t, one.alone(4), one.stop)
	b.all()
	require.Equal(t, one.alone(5), one.got)
	require.Equal(t, two.alone(9), two.got)
	require.Equal(t, three.alone(30), three.got)
	require.Equal(t, []string{"30 0+1 0+1 0+1", "24 6+1 6+1", "19 11+1"}, b.f.Log)
	b.close()
}

// A prompt alone has all rows; launches of many steps begin when all decode, and
// end with who wants the fewest tokens.
func TestLaunchesAreLongWhenAllDecode(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 4, pages: 50, steps: 6})
	b.add(count(1, 9), 5)
	b.add(count(20, 1), 20)
	b.all()
	require.Equal(t, []string{"1 0+3 0+1", "1 3+3 1+1", "1 6+3 2+1", "4 9+1 3+1", "6 7+1", "6 13+1", "1 19+1"}, b.f.Log)
	b.close()
}

func TestEndTokensEndALaunchAndOneJob(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 4, pages: 50, steps: 50})
	one, two := b.add(count(1, 1), 30), b.add(count(2, 1), 30)
	one.stop = one.alone(30)[11]
	b.f.Ends = map[int]bool{one.stop: true}
	b.all()
	require.LessOrEqual(t, len(one.got), 12)
	require.Equal(t, one.stop, one.got[len(one.got)-1])
	require.Equal(t, one.alone(len(one.got)), one.got)
	require.Equal(t, two.alone(30), two.got)
	b.close()
}

// Of jobs that begin alike one computes what they share, and the others wait for
// it page by page.
func TestASharedPromptIsComputedOnce(t *testing.T) {
	b := newBench(t, sizes{rows: 16, page: 4, pages: 60, steps: 4})
	var all []*client
	for i := range 8 {
		all = append(all, b.add(append(count(1, 64), i), 10))
	}
	b.all()
	fed := 0
	for i, c := range all {
		require.Equal(t, c.alone(10), c.got)
		fed += c.stats.Fed
		want := 64
		if i == 0 {
			want = 0
		}
		require.Equal(t, want, c.stats.Reused, "job %d", i)
	}
	require.Equal(t, 64+8*10, fed) // the last one chosen is not fed
	require.Equal(t, fed, b.f.Fed)
	b.close()
}

// A job that goes on from another's end pays for what is new.
func TestAPrefixIsRememberedInWholePages(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 4, pages: 20, steps: 5})
	first := b.add(count(1, 5), 6)
	b.all()
	next := b.add(append(append(count(1, 5), first.got...), 7), 3)
	b.all()
	require.Equal(t, 8, next.stats.Reused) // 10 of 11 were cached, 2 pages of 4
	same := b.add(count(1, 8), 3)
	b.all()
	require.Equal(t, 4, same.stats.Reused) // one token must be fed
	require.Equal(t, same.alone(3), same.got)
	b.Forget()
	free, idle, all := b.Pages()
	require.Equal(t, []int{20, 0, 20}, []int{free, idle, all})
	gone := b.add(count(1, 8), 1)
	b.all()
	require.Zero(t, gone.stats.Reused)
	b.close()
}

// When pages run out the least recently used prefix goes first, from its end.
func TestTheOldestPrefixIsForgottenFirst(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 4, pages: 6, steps: 1})
	prompts := [][]int{count(1, 9), count(11, 9), count(21, 9)}
	for _, p := range []int{0, 1, 0, 2} { // the last one needs a third page for a while
		b.add(prompts[p], 1)
		b.all()
	}
	reused := func(p []int) int {
		c := b.add(p, 1)
		b.all()
		require.Equal(t, c.alone(1), c.got)
		return c.stats.Reused
	}
	require.Equal(t, 8, reused(prompts[0]))
	require.Equal(t, 4, reused(prompts[1])) // its second page had to go
	b.close()
}

// When nothing is left to forget, the newest gives way, goes on later, and has lost
// nothing.
func TestTheNewestGivesItsPagesUp(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 2, pages: 10, steps: 3})
	old, young := b.add(count(1, 2), 17), b.add(count(11, 2), 17)
	b.all()
	require.Equal(t, old.alone(17), old.got)
	require.Equal(t, young.alone(17), young.got)
	require.Zero(t, old.stats.Preempted)
	require.Positive(t, young.stats.Preempted)
	require.Equal(t, 1, young.stats.Preempted, "%v", b.f.Log)
	require.NoError(t, errors.Join(old.err, young.err))
	b.close()
}

// Who would have to give way soon does not start.
func TestAJobStartsWhenThereIsRoomToGrow(t *testing.T) {
	b := newBench(t, sizes{rows: 8, page: 2, pages: 10, steps: 1})
	old := b.add(count(1, 8), 12)
	b.step()
	young := b.add(count(11, 10), 2) // 5 pages; 6 are free, and the other one needs one now
	b.all()
	require.Equal(t, old.alone(12), old.got)
	require.Equal(t, young.alone(2), young.got)
	require.Zero(t, young.stats.Preempted)
	require.Equal(t, 11, young.stats.Fed)
	b.close()
}

// Jobs start in their order, even when a later one would fit.
func TestNobodyOvertakes(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 4, pages: 10, sequences: 3, steps: 1})
	var ended []int
	var all []*client
	for i, n := range []int{20, 30, 1, 1, 1} {
		c := b.add(count(5*i, n), 1)
		c.onEnd = func() { ended = append(ended, i) }
		all = append(all, c)
	}
	b.step()
	running, queued := b.Counts()
	require.Equal(t, []int{1, 4}, []int{running, queued}) // 5 and 8 pages are too many for 10
	b.all()
	require.Equal(t, 0, ended[0])
	for i, c := range all {
		require.Equal(t, c.alone(1), c.got, "job %d", i)
	}
	b.close()
}
