package attend_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/lab/attend"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

func config() attend.Config {
	return attend.Config{Heads: 4, KVHeads: 2, HeadDim: 32, Layers: 3, Page: 16, Rows: 4, SMs: 2}
}

func TestWhatAKernelOfAttentionAloneRefuses(t *testing.T) {
	window := attention.SlidingWindow(32, 0)
	for want, change := range map[string]func(c *attend.Config){
		"attend: KVHeads is 0, want at least 1": func(c *attend.Config) {
			c.KVHeads = 0
		},
		"attend: 4 query heads of 3 KV heads and 4 rows, want whole groups and at most 16 rows": func(c *attend.Config) {
			c.KVHeads = 3
		},
		"attend: 4 query heads of 2 KV heads and 17 rows, want whole groups and at most 16 rows": func(c *attend.Config) {
			c.Rows = 17
		},
		"attend: no variants, want one at least; nil is plain attention": func(c *attend.Config) {
			c.Variants = func(*dsl.Kernel) []*attention.Variant { return nil }
		},
		`attend: variant "sliding window" has a window; with Selection want none`: func(c *attend.Config) {
			c.Selection, c.Variants = true, func(*dsl.Kernel) []*attention.Variant { return []*attention.Variant{window} }
		},
		"pipeline: InFlight is 99, want 0 to 32": func(c *attend.Config) { c.InFlight = 99 },
	} {
		c := config()
		change(&c)
		_, err := attend.Build(c)
		require.EqualError(t, err, want)
	}
}

func TestLayersOfOneVariantAreOneClass(t *testing.T) {
	c := config()
	near, far := attention.SlidingWindow(16, 0), attention.SlidingWindow(64, 4)
	c.Variants = func(*dsl.Kernel) []*attention.Variant { return []*attention.Variant{near, far, near, nil} }
	k, err := attend.Build(c)
	require.NoError(t, err)
	require.Equal(t, []kv.Class{{Window: 16}, {Window: 64, Sinks: 4}, {}}, k.Classes())
	require.Equal(t, 4, k.Limits(0).Rows)
}
