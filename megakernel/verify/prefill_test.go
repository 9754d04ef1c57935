package verify

import (
	"cmp"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
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
		kv            tasks.KVType
	}{{200, pipeline.FormatI4G64, pipeline.FormatI8, 0, 0, tasks.KVE4M3}, {tokens: 64, page: 1, kv: tasks.KVE4M3},
		{tokens: 200, dims: 256}, {64, pipeline.FormatE4M3, pipeline.FormatE4M3, 0, 0, ""}}, 1) {
		c := c
		c.HeadDim = cmp.Or(x.dims, c.HeadDim)
		r, err := Check(t.Context(), Request{Config: c, Options: megakernel.Options{Weights: x.weights, Head: x.head,
			Page: x.page, KV: x.kv}, Seeds: deep.Count(2, 1), Steps: 2, Prefill: x.tokens})
		require.NoError(t, err)
		require.NoError(t, r.Err())
	}
}

func TestABrokenPrefillKernelIsReported(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	r, err := check(t.Context(), Request{Config: c, Seeds: 1, Steps: 2, Prefill: 64},
		func(k *ir.Kernel) (*ir.Kernel, error) {
			return mutant("parity wait.mbar @tiles_full: the other parity", "qkv", "tasks/prefillgemm.go")(k)
		})
	require.NoError(t, err)
	require.NotEmpty(t, r.Findings)
}
