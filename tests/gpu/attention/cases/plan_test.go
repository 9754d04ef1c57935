package cases

import (
	"strings"
	"testing"

	"github.com/mkgen/mkgen/kv"
	"github.com/stretchr/testify/require"
)

// planned is a plan of a case for 132 CTAs.
func planned(t *testing.T, c *Case, single bool) *kv.Plan {
	t.Helper()
	l := c.Limits()
	l.CTAs, l.ChunkTokens, l.ItemsPerCTA, l.Partials = 132, 64, 64, 1<<16
	p, err := kv.NewPlanner(l)
	require.NoError(t, err)
	plan, err := p.Plan(c.Request(single))
	require.NoError(t, err)
	return plan
}

func TestEveryCaseCanBePlanned(t *testing.T) {
	for _, c := range append(Speed(), Variants(Llama8B())...) {
		t.Run(c.Name, func(t *testing.T) {
			plan := planned(t, c, false)
			require.Equal(t, c.T(), plan.RowCount)
			require.Len(t, plan.Classes, len(c.Variants))
			for i, r := range c.Rows {
				words := plan.Rows[i*kv.RowWords:]
				require.Equal(t, []uint32{uint32(r.Position), r.Tail, uint32(r.Mask)},
					[]uint32{words[kv.RowPosition], words[kv.RowTail], words[kv.RowMask]})
			}
		})
	}
}

// A case's rows are what the planner is asked for, and rows that cannot be are refused.
func TestACaseIsAskedForByItsRows(t *testing.T) {
	c := Ragged("x", Llama8B(), []Sequence{{0, 1}, {17, 3}})
	r := c.Request(true)
	require.True(t, r.Single)
	for i, s := range r.Sequences {
		require.Equal(t, c.Sequences[i], Sequence{s.Cached, s.New})
		require.Equal(t, c.PagesOf(i), s.Pages)
	}
	c.Indices[1] = uint32(c.Pages)
	require.Panics(t, func() { c.Request(true) })
}

func TestASharedPrefixIsAUnitUnlessSingle(t *testing.T) {
	c := Shared("x", Llama8B(), 8192, 128, Batch)
	require.Equal(t, 1, planned(t, c, false).Prefixes)
	require.Zero(t, planned(t, c, true).Prefixes)
}

// Prefixes of prefixes are units on every level, read once for all below them.
func TestPrefixesOnSeveralLevelsAreUnits(t *testing.T) {
	for _, c := range Speed() {
		if c.Name != "prefix-4096-4096" {
			continue
		}
		require.Len(t, c.Sequences, Batch)
		require.Equal(t, int64(4096+4*4096+16*128)*c.TokenBytes(), c.UniqueBytes())
		require.Equal(t, int64(16*(8192+128))*c.TokenBytes(), c.KVBytes())
		require.Equal(t, 1+4, planned(t, c, false).Prefixes)
		require.Zero(t, planned(t, c, true).Prefixes)
		return
	}
	t.Fatal("no such case")
}

// The draws of uniform lengths differ in how well they are balanced: the first, long the
// only one, is the best of the five.
func TestDrawsOfUniformLengthsAreBalancedDifferently(t *testing.T) {
	var first float64
	found := 0
	for _, c := range Speed() {
		if !strings.HasPrefix(c.Name, "uniform-512-1024") {
			continue
		}
		l := c.Limits()
		l.CTAs, l.ChunkTokens, l.ItemsPerCTA, l.Partials = 132, 32, 64, 1<<16
		p, err := kv.NewPlanner(l)
		require.NoError(t, err)
		plan, err := p.Plan(c.Request(false))
		require.NoError(t, err)
		class := &plan.Classes[0]
		t.Logf("%-20s %3d items, busiest CTA %.3f of the mean", c.Name, class.Items, class.Balance())
		if found++; found == 1 {
			first = class.Balance()
		}
		require.GreaterOrEqual(t, class.Balance(), first)
		require.Less(t, class.Balance(), 1.4)
	}
	require.Equal(t, UniformDraws, found)
}

// The pages that the planner reads for a head are those of its block-sparse row.
func TestSelectedPagesAreTheRowsPages(t *testing.T) {
	c := Selected("x", Llama8B(), 1000, 7)
	plan := planned(t, c, false)
	found := map[int][]uint32{}
	class := &plan.Classes[0]
	for cta := range plan.Limits.CTAs {
		for i := range class.Count(cta) {
			it := kv.DecodeItem(class.Words(cta, i))
			require.Equal(t, c.Sequences[0].Cached, it.Cached)
			found[it.Head] = plan.Entries[it.Entries:][:7]
		}
	}
	for h := range c.KVHeads {
		require.Equal(t, c.PagesOf(h), found[h])
	}
}
