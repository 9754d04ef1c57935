package kv

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every plan's states are within a bound, one for each way to cut, and the planner
// asserts it for every class.
func TestEveryClassHasABoundOnItsStates(t *testing.T) {
	single, shared := 2*132*16, sharing(16, 16, 512, 8)
	pinned := decoding(16, 1000, 1, 129)
	pinned.PinTokens, pinned.Steps = 128, 100
	for i := range pinned.Sequences {
		pinned.Sequences[i].Pages = make([]uint32, 200)
	}
	for _, c := range []struct {
		r      Request
		class  Class
		want   int
		whose  string
		states int // of the plan
	}{
		{decoding(16, 32768), Class{}, single, "FlashInfer's", 136},
		{decoding(16, 32768), Class{Window: 4096}, single, "FlashInfer's", 128},
		{shared, Class{}, single + 8*16*2, "shared prefixes'", 128 * (13 + 1)},
		{shared, Class{Window: 4096}, single, "FlashInfer's", 0},
		{pinned, Class{}, 8 * (9 + 1 + 2), "pinned parts'", 8 * (9 + 1 + 2)},
		{pinned, Class{Window: 256}, 8 * (9 + 1 + 2), "pinned parts'", 8 * (3 + 1 + 2)},
	} {
		c.r.Classes = []Class{{}, c.class} // where both, the first shares
		p, err := NewPlanner(h200())
		require.NoError(t, err)
		plan, err := p.Plan(c.r)
		require.NoError(t, err)
		class := &plan.Classes[1]
		n, whose := p.bound(&c.r, &class.Class)
		require.Equal(t, c.want, n)
		require.Equal(t, c.whose, whose)
		require.Equal(t, c.states, class.Partials)
		class.Partials = n
		p.assertBound(&c.r, class)
		class.Partials++
		require.PanicsWithValue(t, fmt.Sprintf("BUG: %d partial states, over %s bound of %d", n+1, whose, n),
			func() { p.assertBound(&c.r, class) })
	}
}

// An item has no more rows than a step.
func TestTheBoundCountsTheRowsThereAre(t *testing.T) {
	l := h200()
	l.Rows = 4
	require.Equal(t, 2*132*4, l.SingleFormatPartials())
	l.Rows, l.MaxTile = 16, 2
	require.Equal(t, 2*132*2, l.SingleFormatPartials())
}
