package megakernel_test

import (
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// Where a step of few tokens has fewer tiles of the down projection than 132 SMs have clusters, the planner multiplies
// it in parts of its columns, and no other matrix: the models and tokens of docs/RATIONALE.md's table.
func TestDownProjectionsOfFewTilesAreMultipliedInParts(t *testing.T) {
	for _, c := range []struct {
		model       string
		short, long int // parts with 128 and with 512 tokens
	}{{"llama3-8b", 2, 1}, {"llama3.2-3b", 2, 1}, {"qwen2.5-7b", 4, 1}, {"gemma-2-9b", 4, 1}, {"qwen2.5-1.5b", 2, 2}} {
		for tokens, parts := range map[int]int{128: c.short, 512: c.long} {
			p := prefillOfModel(t, c.model, tokens)
			for i, n := range p.KParts {
				want := 1
				if i == megakernel.MatrixDown {
					want = parts
				}
				require.Equal(t, want, n, "%s, %d tokens, matrix %d", c.model, tokens, i)
			}
		}
	}
}

// The rows of a tile of 8B's matrices: qkv, o, gate and up, down, and the LM head.
func TestTilesOf8B(t *testing.T) {
	for tokens, rows := range map[int][]int{128: {48, 32, 224, 64, 208}, 512: {192, 128, 224, 128, 224},
		1024: {192, 256, 256, 256, 224}} {
		require.EqualValues(t, rows, prefillOfModel(t, "llama3-8b", tokens).Columns[:], "%d tokens", tokens)
	}
}

// prefillOfModel is a model's prefill kernel of that many tokens a step, with options at their defaults.
func prefillOfModel(t *testing.T, model string, tokens int) *megakernel.Prefill {
	t.Helper()
	c, err := models.Lookup(model)
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{})
	require.NoError(t, err)
	p, err := megakernel.BuildPrefill(mk, megakernel.PrefillOptions{Tokens: tokens})
	require.NoError(t, err)
	return p
}
