package addresses_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/addresses"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

var every = flag.Bool("every", false, "with -deep, every model with every number of rows and every format of weights")

// proved requires that the kernels of a model are, and that this is of enough accesses and
// values to mean something.
func proved(t *testing.T, model string, o megakernel.Options) {
	t.Helper()
	mk := kernel(t, model, o)
	r := addresses.Prove(mk, addresses.Positions)
	require.Empty(t, r.Findings)
	require.Greater(t, r.Accesses, 300)
	require.Greater(t, r.Values, 300)
}

func TestModelsOfOneRow(t *testing.T) {
	for _, name := range []string{"tiny", "llama3.2-1b", "llama3-8b"} {
		t.Run(name, func(t *testing.T) { proved(t, name, megakernel.Options{}) })
	}
	t.Run("e4m3", func(t *testing.T) { proved(t, "llama3.2-1b", megakernel.Options{Weights: pipeline.FormatE4M3}) })
	t.Run("i4g128", func(t *testing.T) { proved(t, "llama3.2-1b", megakernel.Options{Weights: pipeline.FormatI4G128}) })
	t.Run("i4g64-zeros", func(t *testing.T) { proved(t, "tiny", megakernel.Options{Weights: "i4g64-zeros"}) })
	t.Run("i8g32-zeros", func(t *testing.T) { // an SM has 3 to 4 tiles and holds the first
		proved(t, "gemma-3-4b", megakernel.Options{Weights: "i8g32-zeros"})
	})
	t.Run("graph", func(t *testing.T) { proved(t, "llama3-8b", megakernel.Options{Launch: megakernel.LaunchGraph}) })
}

func TestModelsThatDraw(t *testing.T) {
	for _, x := range deep.Most([]struct {
		model string
		rows  int
	}{{"tiny", 1}, {"tiny", 4}, {"llama3.2-1b", 16}, {"llama3.2-1b", 1}, {"llama3-8b", 16}}, 2) {
		t.Run(fmt.Sprintf("%s %d rows", x.model, x.rows), func(t *testing.T) {
			proved(t, x.model, megakernel.Options{Tokens: x.rows, Draws: true})
		})
	}
}

func TestModelsOfSeveralRows(t *testing.T) {
	type subject struct {
		model     string
		rows      int
		attention string
		selection bool
		weights   pipeline.Format
	}
	for _, x := range deep.Most([]subject{
		{"tiny", 16, "", false, ""}, {"tiny", 8, "streaming=1024+sinks=4/mask", true, ""},
		{"tiny", 2, "", false, ""}, {"llama3-8b", 16, "", false, ""},
		{"llama3.2-1b", 8, "", false, pipeline.FormatI4G64},
	}, 2) {
		t.Run(fmt.Sprintf("%s %d %s %s", x.model, x.rows, x.attention, x.weights), func(t *testing.T) {
			proved(t, x.model, megakernel.Options{Tokens: x.rows, Attention: x.attention, Selection: x.selection,
				Weights: x.weights})
		})
	}
}

// Each model with each number of rows, each with each format, and each number of rows with each format. Each of all
// three takes 250 CPU seconds and is for those who change the analysis (-every). Of 8B, whose regions of shared memory
// are the tightest, all with 8 and 16 rows are among them: sums behind a region's end were there alone once.
func TestAllModelsAndVariantsOfSeveralRows(t *testing.T) {
	if !deep.On() {
		t.Skip("analyses two dozen kernels")
	}
	for i, c := range models.Checked() {
		for j, rows := range []int{2, 8, 16} {
			for k, o := range []megakernel.Options{{}, {Weights: pipeline.FormatE4M3, KV: attention.KVE4M3},
				{Weights: pipeline.FormatI4G128}} {
				tight := c.Name == "llama3-8b" && rows > 2
				if (i+j+k)%3 != 0 && !tight && !*every {
					continue
				}
				o.Tokens = rows
				t.Run(fmt.Sprintf("%s %d rows %s %s", c.Name, rows, o.Weights, o.KV), func(t *testing.T) {
					proved(t, c.Name, o)
				})
			}
		}
	}
	for _, o := range []megakernel.Options{{Page: 1}, {Page: 256}, {Attention: "mask"},
		{Attention: "mask", Selection: true}, {Attention: "mask", Selection: true, Page: 128},
		{Attention: "window=4096+sinks=4"}, {Attention: "streaming=1024+sinks=4/causal", Selection: true},
		{Attention: "alibi+softcap=30"}, {Attention: "head-scale/mask"}} {
		o.Tokens = 16
		t.Run(fmt.Sprintf("page %d %s selection %v", o.Page, o.Attention, o.Selection),
			func(t *testing.T) { proved(t, "llama3-8b", o) })
	}
}

func TestAllModelsAndVariantsOfOneRow(t *testing.T) {
	if !deep.On() {
		t.Skip("analyses two dozen kernels")
	}
	for _, c := range models.Checked() {
		for _, o := range []megakernel.Options{{}, {Launch: megakernel.LaunchGraph}, {Weights: pipeline.FormatE4M3},
			{KV: attention.KVE4M3}, {Page: 1}, {Page: 256}} {
			t.Run(fmt.Sprintf("%s %s %s %s page %d", c.Name, o.Launch, o.Weights, o.KV, o.Page),
				func(t *testing.T) { proved(t, c.Name, o) })
		}
	}
	for _, attention := range []string{"window=4096", "window=4096+sinks=4", "streaming=1024+sinks=4", "window=512/causal",
		"alibi+softcap=30", "head-scale"} {
		t.Run(attention, func(t *testing.T) { proved(t, "llama3-8b", megakernel.Options{Attention: attention}) })
	}
}

// A cache above 2^32 bytes and weights above 2^32 elements are among what is proved.
func TestWhatIsProvedIsLarge(t *testing.T) {
	mk := kernel(t, "llama3-70b", megakernel.Options{})
	require.Greater(t, int64(addresses.Positions/mk.Options.Page)*int64(mk.Config.Layers)*int64(mk.KV.PageBytes()),
		int64(1)<<32)
	require.Greater(t, mk.Plan.PackedBytes, int64(1)<<36)
}
