package kv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A step alone that is cut for those that follow it has the items of a launch of all of them: the same parts of each
// sequence by the same CTA, the same states merged in the same order.
func TestAStepIsCutAsWithinALongerLaunch(t *testing.T) {
	l := Limits{CTAs: 8, Rows: 4, KVHeads: 2, Group: 4, PageSize: 16, ChunkTokens: 16, Pages: 100, Partials: 1000,
		ItemsPerCTA: 50}
	const steps = 40
	request := func(cached, n, ahead int) Request {
		r := Request{Steps: n, Ahead: ahead}
		for i := range 3 {
			s := Sequence{Cached: cached + 100*i, New: 1, Grow: true}
			for p := range uint32(25) {
				s.Pages = append(s.Pages, 25*uint32(i)+p)
			}
			r.Sequences = append(r.Sequences, s)
		}
		return r
	}
	items := func(r Request) (all []Item, merge []uint32) {
		p, err := NewPlanner(l)
		require.NoError(t, err)
		plan, err := p.Plan(r)
		require.NoError(t, err)
		require.NoError(t, plan.Check(r))
		c := &plan.Classes[0]
		for cta := range l.CTAs {
			for i := range c.Count(cta) {
				it := DecodeItem(c.Words(cta, i))
				it.Entries, it.Cached = 0, cta // of another number of pages, and of tokens
				all = append(all, it)
			}
		}
		return all, c.Merge
	}
	want, merge := items(request(30, steps, 0))
	differ := 0
	for i := range steps {
		got, same := items(request(30+i, 1, steps-1-i))
		require.Equal(t, want, got, "step %d", i)
		require.Equal(t, merge, same)
		if alone, _ := items(request(30+i, 1, 0)); len(alone) != len(want) || alone[0].Of != want[0].Of {
			differ++
		}
	}
	require.NotZero(t, differ, "without it steps are cut in other ways")
	p, err := NewPlanner(l)
	require.NoError(t, err)
	_, err = p.Plan(request(30, 1, -1))
	require.EqualError(t, err, "kv: cut for -1 more steps, want 0 to 1073741824")
}
