package bench_test

import (
	"testing"

	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

func TestLaunchesAreTimedAtEachContext(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, rows := range []int{1, 2} {
		mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Tokens: rows, Consumers: 1})
		require.NoError(t, err)
		w := synth.NewWeights(1, c)
		var all []bench.Timing
		if mk.Ragged() {
			all, err = (&bench.RaggedSuite{Machine: bench.Executor{Seed: 1}, Kernel: mk, Weights: w}).Time(t.Context(),
				[]int{3, 17}, 1, 2)
		} else {
			all, err = (&bench.Suite{Machine: bench.Executor{Seed: 1}, Kernel: mk, Weights: w}).Time(t.Context(), []int{3, 17},
				2, 2)
		}
		require.NoError(t, err)
		require.Len(t, all, 2)
		for i, context := range []int{3, 17} {
			require.Equal(t, context, all[i].Context)
			require.Len(t, all[i].Launches, 2)
			require.Positive(t, min(all[i].Launches[0], all[i].Launches[1]))
		}
	}
}
