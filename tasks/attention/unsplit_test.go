package attention_test

import (
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

// unsplitCases are attentions of which one SM works on all of a KV head up to some number of cached tokens: groups that
// are several items or do not divide, items of several CTAs and CTAs of several items, and a limit from all sides.
func unsplitCases() (cs []attend) {
	for _, g := range []int{1, 3, 8, 17, 35} {
		cs = append(cs, attend{cached: 37, group: g, kvHeads: 2, splits: 3, unsplit: attention.Unsplit{Tokens: 64, Split: 2}})
	}
	for _, n := range []int{0, 1, 31, 32, 63, 64, 65, 100} { // up to 64 tokens, then split
		cs = append(cs, attend{cached: n, splits: 2, perStage: 32, kvHeads: 3, sms: 4,
			unsplit: attention.Unsplit{Tokens: 64, Split: n % 2}})
	}
	for _, d := range []int{16, 80, 128, 256} {
		cs = append(cs, attend{cached: 40, d: d, group: 3, splits: 4, unsplit: attention.Unsplit{Tokens: 40, Split: 1}})
	}
	return append(cs,
		attend{cached: 90, splits: 5, sms: 1, consumers: 4, unsplit: attention.Unsplit{Tokens: 90}},
		attend{cached: 90, splits: 2, sms: 5, consumers: 1, page: 64, unsplit: attention.Unsplit{Tokens: 1 << 20, Split: 1}},
		attend{cached: 60, scale: 30, splits: 3, consumers: 3, unsplit: attention.Unsplit{Tokens: 60, Split: 2}})
}

// Without splits no state is written, and the output is that of one split, bit by bit.
func TestUnsplitAttention(t *testing.T) {
	for i, c := range unsplitCases() {
		for j, kv := range attention.KVTypes() {
			if !deep.On() && i%2 != j {
				continue
			}
			c := c.withDefaults()
			c.kv, c.meet = kv, "words"
			t.Run(c.String(), func(t *testing.T) {
				s := newScene(c)
				got := s.rig(t).Run()
				s.check(t, got)
				if c.cached > c.unsplit.Tokens {
					return
				}
				c.splits, c.unsplit = 1, attention.Unsplit{}
				require.Equal(t, newScene(c).rig(t).Run()["attn"], got["attn"], "one split")
			})
		}
	}
}

// What is planted in the merge shows where there is one.
func TestAFaultOfTheMergeNeedsSplits(t *testing.T) {
	for _, cached := range []int{48, 49} {
		c := attend{cached: cached, splits: 2, meet: "words", unsplit: attention.Unsplit{Tokens: 48}}.withDefaults()
		want := newScene(c).rig(t).Run()["attn"]
		c.bias = 1
		if got := newScene(c).rig(t).Run()["attn"]; cached <= c.unsplit.Tokens {
			require.Equal(t, want, got, "%d cached", cached)
		} else {
			require.NotEqual(t, want, got, "%d cached", cached)
		}
	}
}
