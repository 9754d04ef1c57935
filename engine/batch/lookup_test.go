package batch_test

import (
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/engine/batch/batchtest"
	"github.com/stretchr/testify/require"
)

// Of a model that says one token over and over, nearly every row counts.
func TestDraftsOfTextThatRepeatsComeEightAStep(t *testing.T) {
	b := newBench(t, sizes{rows: 16, page: 4, pages: 100, steps: 8, drafts: 8, few: 1})
	c := b.add([]int{7, 0, 0, 0, 0}, 200)
	b.all()
	require.Equal(t, batchtest.AloneOfFew(c.prompt, 200, 1), c.got)
	require.Less(t, b.f.Launches, 200/8+5)
	require.Equal(t, c.stats.Drafted, c.stats.Accepted)
	b.close()
}

// Where guesses are wrong there are soon none: a few launches more than without, in all.
func TestDraftsThatLoseArePutOff(t *testing.T) {
	launches := map[int]int{}
	var wrong int
	for _, drafts := range []int{0, 8} {
		b := newBench(t, sizes{rows: 16, page: 4, pages: 400, steps: 8, drafts: drafts, few: 8, positions: 5000})
		r := rand.New(rand.NewPCG(1, 1))
		var prompt []int
		for range 600 { // most three tokens are there already, and what the model says next is another in 7 of 8 cases
			prompt = append(prompt, r.IntN(8))
		}
		c := b.add(prompt, 1000)
		b.all()
		require.Len(t, c.got, 1000)
		require.Equal(t, c.alone(1000), c.got)
		launches[drafts], wrong = b.f.Launches, c.stats.Drafted-c.stats.Accepted
		b.close()
	}
	require.Positive(t, wrong)
	require.Less(t, launches[8], launches[0]+60)
	require.Less(t, wrong, 7*40)
}

// Sequences that decode have their rows before any draft has one.
func TestDraftsTakeNoRowFromOthers(t *testing.T) {
	b := newBench(t, sizes{rows: 8, page: 4, pages: 400, steps: 8, drafts: 8, few: 1})
	var all []*client
	for range 8 {
		all = append(all, b.add(count(1, 5), 60))
	}
	b.all()
	for _, c := range all {
		require.Equal(t, batchtest.AloneOfFew(c.prompt, 60, 1), c.got)
		require.Zero(t, c.stats.Drafted)
	}
	require.Less(t, b.f.Launches, 30)
	b.close()
}
