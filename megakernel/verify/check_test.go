package verify

import (
	"context"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

func TestEveryModelPasses(t *testing.T) {
	for _, c := range models.Checked() {
		if c.Name != "tiny" && c.Name != "llama3.2-1b" && !deep.On() {
			continue
		}
		r, err := Check(t.Context(), Request{Config: c, Seeds: deep.Count(2, 1), Steps: 2})
		require.NoError(t, err, c.Name)
		require.NoError(t, r.Err())
		for _, want := range []string{"phases", "syncs", "roles", "page size", "copies in flight",
			"query heads a KV head", "head dimension"} {
			require.True(t, hasFact(r, want), "%s: %s is not what the real kernel has", c.Name, want)
		}
	}
}

func hasFact(r *Report, name string) bool {
	for _, f := range r.Equal {
		if f.Name == name {
			return true
		}
	}
	return false
}

// Kernels of e4m3, of one row and of several, and of integers. Without -deep there is one, of one row with a head of
// another format: formats of layers and of heads with several rows are in TestFormatsAttentionAndRowsCrossed.
func TestFormatsOfWeightsPass(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, o := range deep.Most([]megakernel.Options{{Weights: "i4g32-zeros-f16", Head: pipeline.FormatI8},
		{Tokens: 9, Weights: pipeline.FormatI8}, {Weights: pipeline.FormatE4M3}, {Weights: pipeline.FormatE4M3B128},
		{Tokens: 3, Weights: "i4g64-zeros"}, {Weights: pipeline.FormatI8}, {Tokens: 4,
			Weights: pipeline.FormatE4M3}, {Tokens: 9, Weights: pipeline.FormatE4M3B128}, {Tokens: 3,
			Weights: pipeline.FormatE4M3B128}, {Weights: pipeline.FormatI4G32},
		{Tokens: 10, Weights: pipeline.FormatI4G32, KV: attention.KVE4M3}}, 1) {
		r, err := Check(t.Context(), Request{Config: c, Options: o, Seeds: 1, Steps: 2})
		require.NoError(t, err)
		require.NoError(t, r.Err())
	}
}

// Kernels of integers in which each warp stages the columns that it multiplies, several groups side by side, the LM
// head's among them; one has a residual vector of its own. Without -deep it is a smaller one, under one schedule.
func TestKernelsWhoseWarpsStageWhatTheyMultiplyPass(t *testing.T) {
	for _, name := range deep.Most([]string{"tiny", "gemma-3-4b"}, 1) {
		c, err := models.Lookup(name)
		require.NoError(t, err)
		c.Layers, c.Hidden, c.Intermediate, c.Heads, c.KVHeads, c.HeadDim, c.Vocab = 2, 1024, 512, 16, 2, 64, 320
		if !deep.On() {
			c.Layers, c.Heads, c.Vocab = 1, 8, 72
		}
		o := megakernel.Options{Weights: pipeline.FormatI4G128, Head: pipeline.FormatI8, Consumers: 2, SMs: 3}
		mk, err := megakernel.Build(c, o)
		require.NoError(t, err)
		for i, stride := range []int{4, c.Heads / 4, 4, 2} {
			require.Equal(t, stride, mk.OwnGroups(i), mk.Plan.Layer[i].Name)
		}
		require.Greater(t, mk.OwnGroups(4), 1, "the LM head")
		if !deep.On() {
			oneRunOf(t, mk)
			continue
		}
		twoRunsOf(t, mk)
	}
}

// Kernels that draw, of one row and of several: their launches execute all that they have, lists of log-probabilities
// and of few tokens among it.
func TestKernelsThatDrawPass(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Layers = 1
	for _, rows := range deep.Most([]int{1, 4}, 1) {
		o := megakernel.Options{Tokens: rows, Draws: true}
		r, err := Check(t.Context(), Request{Config: c, Options: o, Seeds: 1, Steps: 2})
		require.NoError(t, err)
		require.NoError(t, r.Err())
	}
}

func TestOptionsAreKept(t *testing.T) {
	deep.Only(t)
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	wide := tiny // as many KV heads as query heads, untied, sizes that are no multiples of the tiles
	wide.Heads, wide.KVHeads, wide.TieEmbeddings, wide.Vocab, wide.Hidden, wide.Intermediate = 6, 6, false, 1001, 200, 1000
	for name, test := range map[string]Request{
		"page of one token":    {Config: tiny, Options: megakernel.Options{Page: 1}},
		"page of many stages":  {Config: tiny, Options: megakernel.Options{Page: 256}},
		"one SM":               {Config: tiny, Options: megakernel.Options{SMs: 1}},
		"one split":            {Config: tiny, Options: megakernel.Options{Splits: 1}},
		"shallow ring":         {Config: tiny, Options: megakernel.Options{Stages: 2, InFlight: 1}},
		"large stages":         {Config: tiny, Options: megakernel.Options{StageBytes: 40960}},
		"few consumers":        {Config: tiny, Options: megakernel.Options{Consumers: 2}},
		"no grouping, untied":  {Config: wide},
		"e4m3 cache":           {Config: tiny, Options: megakernel.Options{KV: attention.KVE4M3}},
		"e4m3, wide heads":     {Config: wide, Options: megakernel.Options{KV: attention.KVE4M3, Page: 1}},
		"one KV head, a layer": {Config: func() models.Config { c := wide; c.KVHeads, c.Layers = 1, 1; return c }()},
	} {
		test.Seeds, test.Steps = 2, 2
		r, err := Check(t.Context(), test)
		require.NoError(t, err, name)
		require.NoError(t, r.Err(), name)
	}
}

func TestCheckRefuses(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for want, r := range map[string]Request{
		"verify: 0 seeds, want at least 1": {Config: c, Steps: 2},
		"verify: 1 step, want at least 2":  {Config: c, Steps: 1, Seeds: 1},
		"options: page size 3":             {Config: c, Steps: 2, Seeds: 1, Options: megakernel.Options{Page: 3}},
		"pipeline: 9 copies in flight need 9 stages": {Config: c, Steps: 2, Seeds: 1,
			Options: megakernel.Options{Stages: 8, InFlight: 9}},
	} {
		_, err := Check(t.Context(), r)
		require.ErrorContains(t, err, want)
	}
}

func TestCheckEndsWithItsContext(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Check(ctx, Request{Config: c, Seeds: 4, Steps: 2})
	require.ErrorIs(t, err, context.Canceled)
}

// What the report says of a run is measured: a run that does less shows it.
func TestConditionsAreMeasured(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Layers, c.Intermediate = 1, 64
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 3, Splits: 3, Stages: 32})
	require.NoError(t, err)
	trial, err := NewTrial(mk, 2)
	require.NoError(t, err)
	trial.context = 3 // as if the cache were nearly empty
	for l := range trial.cache {
		trial.cache[l] = trial.cache[l][:3]
	}
	run, err := trial.Run(t.Context(), mk.IR, 1)
	require.NoError(t, err)
	require.Empty(t, run.Findings)
	met := map[string]bool{}
	for _, cond := range trial.conditions([]*Run{run}, mk) {
		met[cond.Name] = cond.Met
	}
	require.Equal(t, map[string]bool{"layers that stored KV": true, "the ring went round": false,
		"matrices shared unevenly": true, "KV splits with tokens": false, "KV pages that got new tokens": false,
		"order of the KV pages": true, "bytes through the ring": true, "grid barrier arrivals": true,
		"barrier counter passed 2^32": true, "tokens read back in one launch": true, "kinds of instructions executed": true,
		"launches given up midway": true, "launches ended by a stop token": true, "outputs under all schedules": true}, met)
}

// More than 16 query heads to a KV head are several items, the last with fewer
// heads where they do not divide.
func TestManyQueryHeadsToAKVHeadPass(t *testing.T) {
	deep.Only(t)
	for _, heads := range []int{32, 71} {
		c, err := models.Lookup("llama3.2-1b")
		require.NoError(t, err)
		c.Heads, c.KVHeads, c.HeadDim = heads, 1, 32
		r, err := Check(t.Context(), Request{Config: c, Seeds: 2, Steps: 2})
		require.NoError(t, err)
		require.NoError(t, r.Err(), "%d query heads", heads)
	}
}
