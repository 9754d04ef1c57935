package verify

import (
	"cmp"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

func TestPrefillKernelsPass(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, x := range deep.Most([]struct {
		tokens        int
		weights, head pipeline.Format
		dims          int // of a head; 0: tiny's
		page          int // 0: the default
		kv            attention.KVType
		attention     string
		rows          int // and sequences of a step; 0: one
		activations   pipeline.Format
	}{{200, pipeline.FormatI4G64, pipeline.FormatI8, 0, 0, attention.KVE4M3, "", 0, ""},
		{tokens: 64, page: 1, kv: attention.KVE4M3, attention: "window=40+sinks=3+alibi/softcap=3/sigmoid=-2+head-scale"},
		{tokens: 200, dims: 256},
		{64, pipeline.FormatE4M3, pipeline.FormatE4M3, 0, 0, "", "window=30+sinks=5+head-scale/head-scale", 0, ""},
		{tokens: 64, rows: 16, weights: pipeline.FormatE4M3, activations: pipeline.FormatE4M3},
		{tokens: 3, rows: 4, weights: pipeline.FormatI8}}, 1) {
		c := c
		c.HeadDim, c.Layers = cmp.Or(x.dims, c.HeadDim), max(c.Layers, 1+strings.Count(x.attention, "/"))
		r, err := Check(t.Context(), Request{Config: c, Options: megakernel.Options{Weights: x.weights, Head: x.head,
			Page: x.page, KV: x.kv, Attention: x.attention, Tokens: x.rows}, Seeds: deep.Count(2, 1), Steps: 2,
			Prefill: x.tokens, Activations: x.activations})
		require.NoError(t, err)
		require.NoError(t, r.Err())
	}
}

func TestProgressOfAPrefillKernelCountsTheLaunchesOfAllSchedules(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	var told []int
	_, err = Check(t.Context(), Request{Config: c, Seeds: 2, Steps: 2, Prefill: 64, Progress: func(done, of int) {
		require.Equal(t, 10, of, "five launches of each schedule")
		told = append(told, done)
	}})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10}, told)
}

func TestABrokenPrefillKernelIsReported(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	r, err := check(t.Context(), Request{Config: c, Seeds: 1, Steps: 2, Prefill: 64},
		func(k *ir.Kernel) (*ir.Kernel, error) {
			return mutant("parity wait.mbar @tiles_full: the other parity", "qkv", "prefill/gemm.go")(k)
		})
	require.NoError(t, err)
	require.NotEmpty(t, r.Findings)
}
