package addresses_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/bounds"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/addresses"
	"github.com/stretchr/testify/require"
)

// 8B at two lengths of a step, and a cache whose pages are smaller than a block of attention.
func TestPrefillKernels(t *testing.T) {
	type subject struct {
		model  string
		o      megakernel.Options
		tokens int
	}
	for _, x := range deep.Most([]subject{
		{"tiny", megakernel.Options{SMs: 4}, 64}, {"llama3-70b", megakernel.Options{Weights: "i4g64-zeros"},
			1024}, {"tiny", megakernel.Options{SMs: 4, Page: 4, KV: "e4m3"}, 128},
		{"llama3-8b", megakernel.Options{}, 128}, {"llama3-8b", megakernel.Options{KV: "e4m3"}, 512},
		{"llama3-8b", megakernel.Options{}, 1024}, {"llama3-8b", megakernel.Options{}, 512},
		{"llama3-8b", megakernel.Options{Weights: "e4m3"}, 1024}, {"llama3-8b", megakernel.Options{Weights: "mxfp4"},
			128}, {"llama3-8b", megakernel.Options{Weights: "nvfp4"}, 128},
		{"tiny", megakernel.Options{SMs: 4, Weights: "i8"}, 64},
		// windows, norms of heads and behind branches
		{"mistral-7b-v0.1", megakernel.Options{}, 1024}, {"gemma-3-27b", megakernel.Options{}, 1024},
		{"olmo-2-7b", megakernel.Options{}, 512}, {"qwen2.5-7b", megakernel.Options{}, 1024},
		{"glm-4-32b", megakernel.Options{}, 128},
	}, 4) {
		mk := kernel(t, x.model, x.o)
		p, err := megakernel.BuildPrefill(mk, megakernel.PrefillOptions{Tokens: x.tokens})
		require.NoError(t, err)
		r := addresses.CheckPrefill(p, p.IR, addresses.Positions)
		require.Empty(t, r.Findings)
		require.Greater(t, r.Accesses, 300)
		require.Greater(t, r.Values, 300)
	}
}

// Of several sequences, too: each has rows of the step and entries of the table.
func TestPrefillKernelsOfSeveralSequences(t *testing.T) {
	deep.Only(t)
	for _, x := range []struct {
		model             string
		tokens, sequences int
	}{{"tiny", 1024, 4}, {"llama3.2-1b", 64, 2}, {"llama3-8b", 1024, 8}, {"llama3-8b", 512, 16}} {
		p, err := megakernel.BuildPrefill(kernel(t, x.model, megakernel.Options{SMs: 4}),
			megakernel.PrefillOptions{Tokens: x.tokens, Sequences: x.sequences})
		require.NoError(t, err)
		r := addresses.CheckPrefill(p, p.IR, addresses.Positions)
		require.Empty(t, r.Findings)
		require.Greater(t, r.Accesses, 300)
	}
}

// Of a down projection in parts, too: each has sums of its own.
func TestPrefillKernelsWithPartsOfTheDownProjection(t *testing.T) {
	for _, tokens := range deep.Most([]int{128, 1024}, 1) {
		p, err := megakernel.BuildPrefill(kernel(t, "llama3-8b", megakernel.Options{}),
			megakernel.PrefillOptions{Tokens: tokens, DownParts: 4})
		require.NoError(t, err)
		r := addresses.CheckPrefill(p, p.IR, addresses.Positions)
		require.Empty(t, r.Findings)
		require.Greater(t, r.Accesses, 300)
	}
}

// What reaches one too far is reported where it tells.
func TestPrefillIndicesOneTooFar(t *testing.T) {
	for _, x := range []struct {
		page       int
		file, text string
	}{{0, "tasks/attention/prefillqkv.go", "return pos, s.Table.Load(pos.DivC(t.KV.Page))"},
		{4, "tasks/attention/prefillgather.go", "x.Set(g.page("}} {
		p, err := megakernel.BuildPrefill(kernel(t, "tiny", megakernel.Options{SMs: 4, Page: x.page}),
			megakernel.PrefillOptions{Tokens: 64})
		require.NoError(t, err)
		m := mutant{at: line(t, x.file, x.text), op: ir.OpDiv, edit: plus(1)}
		m.lines = []string{m.at}
		k, n := m.plant(p.IR)
		require.Positive(t, n)
		r := addresses.CheckPrefill(p, k, addresses.Positions)
		require.NotEmpty(t, r.Findings)
		require.Equal(t, bounds.Outside, r.Findings[0].Kind)
	}
}
