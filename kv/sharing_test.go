package kv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// sharing is n sequences that begin with the same pages and go on with own ones.
func sharing(page, n, shared, own int) (r Request) {
	next := uint32(shared)
	for range n {
		s := Sequence{Cached: (shared+own)*page - 1, New: 1, Grow: true}
		for i := range shared {
			s.Pages = append(s.Pages, uint32(i))
		}
		for range own {
			s.Pages = append(s.Pages, next)
			next++
		}
		r.Sequences = append(r.Sequences, s)
	}
	return r
}

func plan(t *testing.T, l Limits, r Request) *Plan {
	t.Helper()
	p, err := NewPlanner(l)
	require.NoError(t, err)
	plan, err := p.Plan(r)
	require.NoError(t, err)
	require.NoError(t, plan.Check(r))
	return plan
}

// read is how many tokens of KV all items of a step read.
func read(p *Plan) int {
	_, mean := tokens(p, 0)
	return int(mean*float64(p.Limits.CTAs) + 0.5)
}

func TestASharedPrefixIsReadOnce(t *testing.T) {
	r := sharing(16, 16, 512, 8)
	shared := plan(t, h200(), r)
	require.Equal(t, 1, shared.Prefixes)
	require.Equal(t, 8*(8192+16*127), read(shared))
	require.Len(t, shared.Entries, 512+16*8, "and stored once")
	r.Single = true
	single := plan(t, h200(), r)
	require.Zero(t, single.Prefixes)
	require.Equal(t, 8*16*(8192+127), read(single))
	require.Less(t, shared.Classes[0].Balance(), 1.1)
}

func TestPrefixesOfPrefixes(t *testing.T) {
	l := h200()
	l.Costs = Costs{Item: 16, Row: 2, Token: 1, State: 8} // short prefixes pay
	r := sharing(16, 8, 128, 64)
	for i := range 4 { // the first four share 40 pages more, two of them another 10
		copy(r.Sequences[i].Pages[128:168], r.Sequences[0].Pages[128:168])
	}
	copy(r.Sequences[1].Pages[168:178], r.Sequences[0].Pages[168:178])
	p := plan(t, l, r)
	require.Equal(t, 3, p.Prefixes)
	require.Equal(t, 8*(16*(128+40+10)+2*(14*16-1)+2*(24*16-1)+4*(64*16-1)), read(p))
	rows := map[int]int{} // prefix units by their position, and the rows of their items
	for cta := range l.CTAs {
		for i := range p.Classes[0].Count(cta) {
			if it := DecodeItem(p.Classes[0].Words(cta, i)); it.Grow == 0 {
				rows[it.Position] = len(it.Rows)
			}
		}
	}
	require.Equal(t, map[int]int{0: 8, 128 * 16: 4, 168 * 16: 2}, rows)
}

func TestAShortPrefixIsNotWorthAUnit(t *testing.T) {
	require.Zero(t, plan(t, h200(), sharing(16, 2, 1, 8)).Prefixes)
	require.Equal(t, 1, plan(t, h200(), sharing(16, 16, 4, 8)).Prefixes)
	l := h200()
	l.Costs = Costs{Item: 1, Token: 1}
	require.Equal(t, 1, plan(t, l, sharing(16, 2, 1, 8)).Prefixes, "where states are free it is")
}

func TestOnlyFullPagesAreShared(t *testing.T) {
	r := sharing(16, 2, 64, 0)
	for i := range r.Sequences { // both are told to have the same 64 pages, the last not full
		r.Sequences[i].Pages = append(append([]uint32{}, r.Sequences[0].Pages[:63]...), uint32(100+i))
	}
	p := plan(t, h200(), r)
	require.Equal(t, 8*(63*16+2*15), read(p))
}

func TestWindowsAndPinningShareNothing(t *testing.T) {
	r := sharing(16, 16, 512, 8)
	r.Classes = []Class{{}, {Window: 4096}}
	p := plan(t, h200(), r)
	require.Equal(t, 1, p.Prefixes)
	for cta := range p.Limits.CTAs {
		for i := range p.Classes[1].Count(cta) {
			it := DecodeItem(p.Classes[1].Words(cta, i))
			require.Zero(t, it.Position)
			require.Len(t, it.Rows, 1)
		}
	}
	require.Len(t, p.Entries, 16*520, "the whole lists, the prefix is part of the first")
	r.Classes, r.PinTokens = nil, 4096
	require.Zero(t, plan(t, h200(), r).Prefixes)
}

func TestSharingGivesWayToTheLimits(t *testing.T) {
	l := h200()
	l.Partials = 100 // 16 rows × 8 heads × 2 states do not fit
	p := plan(t, l, sharing(16, 16, 512, 8))
	require.Zero(t, p.Prefixes)
	require.LessOrEqual(t, p.Classes[0].Partials, 100)
}

func TestHeadsReadTheirSelection(t *testing.T) {
	l := h200()
	l.Selection = true
	r := decoding(16, 32768)
	r.Classes = []Class{{Select: true}, {}}
	for h := range 8 {
		var pages []int
		for i := range 64 {
			pages = append(pages, i*16+h)
		}
		r.Sequences[0].Select = append(r.Sequences[0].Select, pages)
	}
	p := plan(t, l, r)
	require.Equal(t, 8*(64*16+15), read(p))
	r.Sequences[0].Select[2] = nil
	require.Equal(t, 8*15+7*64*16, read(plan(t, l, r)), "a head may select nothing: the page that is being filled stays")
}
