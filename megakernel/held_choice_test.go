package megakernel

import (
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// What is chosen of copies in flight, leads and chunks held, and what of it stays open when
// some of them are given.
func TestCopiesAndChunksHeldAreChosenTogether(t *testing.T) {
	for _, c := range []struct {
		model    string
		o        Options
		inFlight int
		leads    string
		held     int
	}{
		{"llama3-8b", Options{}, 4, "5:2", 5},
		{"llama3.2-3b", Options{}, 4, "5:2", 5},
		{"llama3-70b", Options{}, 4, "5:2", 4},  // 8192 hidden
		{"llama3.2-1b", Options{}, 3, "4:2", 4}, // o has 4 chunks an SM
		{"llama3.2-1b", Options{SMs: 66}, 4, "5:2", 5},
		{"llama3-8b", Options{Tokens: 8}, 3, "4:2", HeldNone},
		{"llama3-8b", Options{InFlight: 3}, 3, "4:2", 4},
		{"llama3-8b", Options{InFlight: 4}, 4, "5:2", 5},
		{"llama3-8b", Options{InFlight: 5}, 5, "none", 4},
		{"llama3-8b", Options{Leads: "none"}, 4, "none", 4},
		{"llama3-8b", Options{Leads: "5:2"}, 4, "5:2", 5},
		{"llama3-8b", Options{Leads: "5:3"}, 4, "5:3", 5},
		{"llama3-8b", Options{Leads: "1:3"}, 4, "1:3", 5},
		{"llama3.2-1b", Options{Leads: "5:2"}, 3, "5:2", 4},
		{"llama3-8b", Options{InFlight: 4, Leads: "none"}, 4, "none", 4},
		{"llama3-8b", Options{InFlight: 4, Leads: "8:2"}, 4, "8:2", 5},
		{"llama3-8b", Options{Held: 6}, 4, "5:2", 6},
		{"llama3-8b", Options{StageBytes: 8192}, 3, "4:2", 4},
		{"llama3-8b", Options{Stages: 7}, 3, "none", 4},
		{"llama3-8b", Options{Stages: 8}, 4, "5:2", 5},
		{"llama3-8b", Options{Consumers: 11}, 4, "5:2", 5},
		{"llama3-8b", Options{Consumers: 7}, 4, "5:2", 5}, // a chunk takes more of fewer threads, which have more
		{"llama3-8b", Options{Consumers: 7, Weights: pipeline.FormatE4M3}, 4, "5:2", 4},
		{"llama3-8b", Options{Weights: pipeline.FormatE4M3B128}, 4, "5:2", 4}, // with its scales a chunk takes more
		{"gemma-3-4b", Options{}, 4, "5:2", 5},                                // o has 6 chunks an SM
		{"llama3.2-3b", Options{Weights: pipeline.FormatE4M3}, 4, "5:2", 5},   // likewise
		{"llama3.2-1b", Options{Weights: pipeline.FormatE4M3}, 3, "4:2", 4},   // o has 2
		{"llama3-8b", Options{Weights: pipeline.FormatI4G128}, 3, "4:2", 3},
		{"llama3-8b", Options{Consumers: 12}, 3, "4:2", HeldNone},
		{"llama3-8b", Options{Held: HeldNone}, 4, "5:2", HeldNone},
	} {
		mk := build(t, c.model, c.o)
		require.Equal(t, []any{c.inFlight, c.leads, c.held}, []any{mk.Options.InFlight, mk.Options.Leads, mk.Options.Held},
			"%s, %+v", c.model, c.o)
	}
}

// Copies in flight are the planner's where one product is short, and where a turn of
// attention's blocks would not lie in the ring any more.
func TestAllProductsAndAttentionMustSuitManyCopies(t *testing.T) {
	copies := func(change func(c *models.Config), o Options) int {
		c, err := models.Lookup("llama3-8b")
		require.NoError(t, err)
		change(&c)
		mk, err := Build(c, o)
		require.NoError(t, err)
		return mk.Options.InFlight
	}
	require.Equal(t, 4, copies(func(c *models.Config) {}, Options{}))
	short := func(c *models.Config) { c.Hidden, c.Heads, c.KVHeads, c.HeadDim = 2048, 32, 32, 64 }
	require.Equal(t, 3, copies(short, Options{}), "o has 4 chunks on an SM, qkv 12")
	wide := func(c *models.Config) { c.HeadDim = 160 }
	require.Equal(t, 3, copies(wide, Options{}), "8 blocks of 16 tokens are 8 chunks, of 11 stages")
	require.Equal(t, 4, copies(wide, Options{Consumers: 7}))
}
