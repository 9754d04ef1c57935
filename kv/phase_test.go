package kv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// prompt is n new tokens of one sequence behind cached ones.
func prompt(cached, n int) Request {
	s := Sequence{Cached: cached, New: n, Pages: make([]uint32, ceilDiv(cached+n, 16))}
	for i := range s.Pages {
		s.Pages[i] = uint32(i)
	}
	return Request{Sequences: []Sequence{s}}
}

// A few rows of one sequence are dealt out as items of few rows while it is short, which read its KV again for every
// SettleRows of them, and together when it is long.
func TestFewRowsAnItemWhileAPhaseIsDearer(t *testing.T) {
	for _, c := range []struct {
		name         string
		cached, rows int
		phase        int // Costs.Phase
		wantPhase    bool
		times        int // its KV is read
	}{
		{"short", 1024, 8, 60, false, 4},
		{"short, of more rows", 2048, 16, 60, false, 8},
		{"long", 4096, 8, 60, true, 1},
		{"long, of more rows", 4096, 16, 60, true, 1},
		{"a phase costs nothing", 1024, 8, 0, true, 1},
		{"few rows need none", 16384, SettleRows, 0, false, 1},
		{"a dear one, and many rows", 4096, 16, 1 << 16, false, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := h200()
			l.Costs = DefaultCosts(l.Group)
			l.Costs.Phase = c.phase
			p := plan(t, l, prompt(c.cached, c.rows))
			require.Equal(t, c.wantPhase, p.Classes[0].Phase)
			require.Equal(t, c.times*8*c.cached, read(p))
			most := 0
			for cta := range l.CTAs {
				for i := range p.Classes[0].Count(cta) {
					most = max(most, int(p.Classes[0].Words(cta, i)[ItemRows]))
				}
			}
			require.Equal(t, !c.wantPhase, most <= SettleRows)
		})
	}
}

// Whatever costs say, a kernel that has no room for items of few rows gets those of many.
func TestAKernelWithoutRoomForItemsOfFewRows(t *testing.T) {
	l := h200()
	l.ItemsPerCTA, l.CTAs, l.Costs = 1, 12, DefaultCosts(l.Group)
	l.Costs.Phase = 1 << 16
	r := prompt(1024, 16)
	p := plan(t, l, r)
	require.LessOrEqual(t, p.Classes[0].Items, l.CTAs)
	require.Equal(t, 8*1024, read(p))
}

// Pinned parts do not depend on what a phase costs.
func TestPinnedPartsStayAsTheyAre(t *testing.T) {
	l, r := h200(), prompt(1024, 8)
	r.PinTokens = 128
	want := words(plan(t, l, r))
	l.Costs = DefaultCosts(l.Group)
	l.Costs.Phase = 1 << 16
	require.Equal(t, want, words(plan(t, l, r)))
}
