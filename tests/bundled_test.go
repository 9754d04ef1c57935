package tests

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/bundled"
)

// bundledNoise is how far apart the two best logits must be, in transformers' float32, for the kernel to have to agree
// about the best: roundings to bf16 move a logit of the bundled model by less than half of it.
const bundledNoise = 0.6

// The bundled model on the executor chooses the tokens that transformers chose, each after transformers' own choices
// before it.
func TestBundledWeightsGiveTransformersTokensOnTheExecutor(t *testing.T) {
	data, err := os.ReadFile("../models/bundled/testdata/golden.json")
	require.NoError(t, err)
	var g struct {
		Continuations []struct {
			Prompt      string
			IDs, Chosen []int
			Margins     []float64
		}
	}
	require.NoError(t, json.Unmarshal(data, &g))
	require.Len(t, g.Continuations, 3)
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	weights, ok, err := bundled.Checkpoint("tiny")
	require.NoError(t, err)
	require.True(t, ok)
	t.Cleanup(func() { require.NoError(t, weights.Close()) })
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 4, Page: 16, Splits: 2, StageBytes: 2048})
	require.NoError(t, err)
	for i, one := range g.Continuations {
		if i > 0 && !deep.On() {
			break
		}
		t.Run(one.Prompt, func(t *testing.T) {
			t.Parallel()
			sim, err := runtime.NewSim(mk.IR, uint64(i))
			require.NoError(t, err)
			chosen := deep.Most(one.Chosen, 24)
			all := slices.Concat(one.IDs, chosen)
			s, err := runtime.NewSequence(mk, sim, weights, len(all)/mk.KV.Page+1, nil, 0)
			require.NoError(t, err)
			compared := 0
			for at, id := range all[:len(all)-1] {
				next, err := s.Step(id)
				require.NoError(t, err)
				if k := at + 1 - len(one.IDs); k >= 0 && one.Margins[k] > bundledNoise {
					require.Equal(t, one.Chosen[k], next, "token %d of the continuation, %g above the next best", k, one.Margins[k])
					compared++
				}
			}
			require.Greater(t, compared, len(chosen)/2)
		})
	}
}
