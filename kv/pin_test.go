package kv

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// parts is what the items of a row are, in the order of their states, in step 0: the
// tokens of each and its new ones.
func parts(p *Plan, row, head int) (out [][3]int) {
	var items []Item
	for cta := range p.Limits.CTAs {
		for i := range p.Classes[0].Count(cta) {
			it := DecodeItem(p.Classes[0].Words(cta, i))
			if it.Head == head && slices.Contains(it.Rows, row) {
				items = append(items, it)
			}
		}
	}
	state := func(it Item) int { return it.Partials[slices.Index(it.Rows, row)] }
	slices.SortFunc(items, func(a, b Item) int { return state(a) - state(b) })
	for _, it := range items {
		v := p.Classes[0].Visible(p.Limits.ChunkTokens, it.Cached, 0, int(p.Rows[row*RowWords+RowPosition]))
		from, to := it.Chunks(v.C)
		if from < to || it.Tail > 0 {
			out = append(out, [3]int{from, to, it.Tail})
		}
	}
	return out
}

func TestPinnedPartsDoNotDependOnTheBatch(t *testing.T) {
	for _, length := range []int{1, 2, 33, 128, 129, 700, 5000} {
		for _, class := range []Class{{}, {Window: 300, Sinks: 4}} {
			alone := decoding(16, length)
			alone.PinTokens, alone.Classes = 128, []Class{class}
			want := parts(plan(t, h200(), alone), 0, 3)
			for seed := range uint64(5) {
				batch := decoding(16, append(uniform(seed)[:7], append([]int{length}, zipf()[:8]...)...)...)
				batch.PinTokens, batch.Classes = 128, alone.Classes
				require.Equal(t, want, parts(plan(t, h200(), batch), 7, 3), "length %d, %+v", length, class)
			}
		}
	}
}

func TestPinnedPartsDoNotDependOnTheLaunch(t *testing.T) {
	for _, length := range []int{1, 100, 129, 1000} {
		one := decoding(16, length)
		one.PinTokens = 128
		many := decoding(16, length+999)
		many.Sequences[0].Cached, many.Steps, many.PinTokens = length-1, 1000, 128
		require.Equal(t, parts(plan(t, h200(), one), 0, 0), parts(plan(t, h200(), many), 0, 0), "length %d", length)
	}
}

func TestAPinnedResultIsAlwaysMerged(t *testing.T) {
	r := decoding(16, 5)
	r.PinTokens = 128
	p := plan(t, h200(), r)
	require.Equal(t, 8, p.Classes[0].Partials,
		"or it would take another way in a launch in which it grows into a second part")
}

// A sequence alone may have as many tokens in the cache as PinnedTokens says, and none more.
func TestPinnedTokensHaveRoomAlone(t *testing.T) {
	for _, l := range []Limits{h200(),
		{CTAs: 3, KVHeads: 2, Group: 4, Rows: 16, PageSize: 16, ChunkTokens: 32, ItemsPerCTA: 40, Partials: 1000,
			Pages: 1 << 18},
		{CTAs: 2, KVHeads: 2, Group: 64, Rows: 16, PageSize: 16, ChunkTokens: 32, ItemsPerCTA: 60, Partials: 1000,
			Pages: 1 << 18}} {
		n := l.PinnedTokens(64)
		require.Positive(t, n)
		for _, length := range []int{n, n + 1} {
			r := decoding(16, length)
			r.PinTokens, r.FillRows = 64, true
			plan(t, l, r)
		}
		p, err := NewPlanner(l)
		require.NoError(t, err)
		r := decoding(16, n+2)
		r.PinTokens, r.FillRows = 64, true
		_, err = p.Plan(r)
		require.ErrorAs(t, err, new(LimitError), "%+v", l)
	}
}
