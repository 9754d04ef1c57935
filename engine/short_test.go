package engine

import (
	"testing"

	"github.com/mkgen/mkgen/engine/batch/batchtest"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// A sequence that grows beyond the first training's context of a model with longrope is fed again, and one that is
// short again, too.
func TestASequenceThatGrowsBeyondShortIsFedAgain(t *testing.T) {
	const most = 12
	e, _ := newFake(t, func(o *Options) {
		o.Kernel.Config.Rope = models.Rope{Theta: 1e4,
			Scaling: &models.Scaling{Type: models.ScalingLongRoPE, OriginalPositions: most}}
		o.Kernel.Config.HeadDim = 16
	}, nil)
	for _, prompt := range [][]int{{1, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
		{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, {1, 2, 3}} {
		r, err := e.Generate(t.Context(), Request{Tokens: prompt, MaxTokens: 15}, nil)
		require.NoError(t, err)
		require.Equal(t, batchtest.AloneShort(prompt, 15, false, 0, most), r.Tokens)
	}
}
