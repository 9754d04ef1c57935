package verify

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

// Sequences of all lengths that matter, growing, sharing pages, as draft trees: every
// row against float64, whatever attention the layers have.
func TestRaggedStepsAreWhatTheReferenceSays(t *testing.T) {
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	cases := []Request{
		{Options: megakernel.Options{Tokens: 5, Attention: "window=20+sinks=3/causal", Selection: true}},
		{Options: megakernel.Options{Tokens: 4}},
		{Options: megakernel.Options{Tokens: 3, Attention: "streaming=24+sinks=2/alibi+softcap=2", Page: 8}},
		{Options: megakernel.Options{Tokens: 2, Page: 1, Attention: "streaming=20"}},
		{Options: megakernel.Options{Tokens: 8, Attention: "mask/sigmoid=-3", Page: 32}},
		{Options: megakernel.Options{Tokens: 6, KV: attention.KVE4M3, Attention: "head-scale/window=30"}},
		{Options: megakernel.Options{Tokens: 4, Consumers: 3, Watchdog: megakernel.WatchAll}, Pin: 32},
		{Options: megakernel.Options{Tokens: 16}},
		{Options: megakernel.Options{Tokens: 2, Page: 128, Attention: "streaming=20+sinks=4/mask", Selection: true}},
	}
	for _, q := range deep.Most(cases, 1) {
		t.Run(fmt.Sprintf("%d rows %s", q.Options.Tokens, q.Options.Attention), func(t *testing.T) {
			q.Config, q.Seeds, q.Steps = tiny, 1, 2
			r, err := Check(t.Context(), q)
			require.NoError(t, err)
			require.NoError(t, r.Err())
			var text strings.Builder
			require.NoError(t, r.Write(&text))
			require.Contains(t, text.String(), "Ran 1 schedule (seed 1: uniform), 14 launches each")
		})
	}
}

// With more than 8 query heads a KV head no plan has an item of so few rows: a real kernel
// has no instruction that only such items would come to.
func TestRaggedStepsOfWideGroups(t *testing.T) {
	deep.Only(t)
	for _, q := range []Request{
		{Options: megakernel.Options{Tokens: 2}, Config: like(t, wide(16))},
		{Options: megakernel.Options{Tokens: 3, Selection: true, Consumers: 4}, Config: like(t, wide(24))},
		{Options: megakernel.Options{Tokens: 4, Attention: "window=20+sinks=3/causal"}, Config: like(t, wide(9)), Pin: 32},
	} {
		// what many rows read goes too far for Ring's Take, what few read does not
		q.Options.Stages, q.Options.StageBytes = 9, 16384
		q.Seeds, q.Steps = 1, 2
		r, err := Check(t.Context(), q)
		require.NoError(t, err)
		require.NoError(t, r.Err(), "%d heads a KV head", q.Config.Heads/q.Config.KVHeads)
	}
}

// Wide is heads of 128 in groups of n.
func wide(group int) func(c *models.Config) {
	return func(c *models.Config) { c.HeadDim, c.Heads, c.KVHeads = 128, 2*group, 2 }
}

func TestPlantedFaultsOfRaggedKernelsAreReportedByTheValues(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for i, fault := range deep.Most(megakernel.Faults(), 1) {
		r, err := Check(t.Context(),
			Request{Config: c, Options: megakernel.Options{Fault: fault, Tokens: 4,
				Attention: []string{"", "window=24/alibi"}[i%2]}, Seeds: 1, Steps: 2})
		require.NoError(t, err)
		require.Empty(t, r.Findings)
		require.ErrorContains(t, r.Err(), "logits, seed 1 off by", "%s", fault)
	}
}

// Broken synchronisation is found in steps of several rows as in those of one.
func TestBrokenRaggedTemplatesAreReported(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for name, edit := range map[string]func(*ir.Kernel) (*ir.Kernel, error){"missing sync": noSync("sync after qkv"),
		"off-by-one page": nextEntry} {
		r, err := check(t.Context(), Request{Config: c, Options: megakernel.Options{Tokens: 4}, Seeds: 2, Steps: 2}, edit)
		require.NoError(t, err)
		require.NotEmpty(t, r.Findings, name)
		require.ErrorContains(t, r.Err(), "data race", name)
	}
}

// nextEntry looks a page of the cache up one entry too far.
func nextEntry(k *ir.Kernel) (*ir.Kernel, error) { return nextPageIn(k, megakernel.BufferEntries) }

func TestAPinThatIsNoPartIsRefused(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for pin, want := range map[int]string{
		24:  "verify: parts pinned at multiples of 24 tokens, want a multiple of the 16 of a stage",
		-16: "verify: parts pinned at multiples of -16 tokens"} {
		_, err := Check(t.Context(), Request{Config: c, Options: megakernel.Options{Tokens: 2}, Seeds: 1, Steps: 2, Pin: pin})
		require.ErrorContains(t, err, want)
	}
	_, err = Check(t.Context(), Request{Config: c, Seeds: 1, Steps: 2, Pin: 16})
	require.EqualError(t, err, "verify: parts pinned of a kernel of one row a step, which has the same parts anyway")
}
