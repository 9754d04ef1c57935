package tests

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/megakernel/runtime"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// stepsOf feeds tokens one a launch and then lets a launch choose more; it returns the
// logits of the steps fed and all tokens chosen.
func stepsOf(t *testing.T, mk *megakernel.Kernel, seed, weightSeed uint64, tokens []int, more int) (logits [][]float32, chosen []int) {
	t.Helper()
	var sim *runtime.Sim
	var err error
	if mk.Graph != nil {
		sim, err = runtime.NewSimGraph(mk.Graph, seed)
	} else {
		sim, err = runtime.NewSim(mk.IR, seed)
	}
	require.NoError(t, err)
	pages := (len(tokens)+more+mk.KV.Page-1)/mk.KV.Page + 1
	s, err := runtime.NewSession(mk, sim, synth.NewWeights(weightSeed, reference.ShapeOf(mk.Config).Dims()), pages, nil, 0)
	require.NoError(t, err)
	for _, id := range tokens {
		next, err := s.Step(id)
		require.NoError(t, err, "seed %d, position %d", seed, s.Pos())
		row := make([]float32, mk.Config.Vocab)
		require.NoError(t, s.Logits(row))
		logits, chosen = append(logits, row), append(chosen, next)
	}
	if more > 0 {
		last, err := s.Generate([]int{chosen[len(chosen)-1]}, more)
		require.NoError(t, err)
		chosen = append(chosen, last...)
	}
	require.NoError(t, sim.Close())
	return logits, chosen
}

// A graph of the phases' kernels makes the same bits as the single kernel with the same
// sizes, whenever a kernel lets the next one start.
func TestAGraphOfKernelsComputesWhatTheSingleKernelDoes(t *testing.T) {
	g, c := readGolden(t, "tiny_hf.json")
	tokens := g.Tokens[:min(19, len(g.Tokens))]
	base := megakernel.Options{SMs: 3, Splits: 2, StageBytes: 2048, Stages: 5, InFlight: 2, Consumers: 3}
	one, err := megakernel.Build(c, base)
	require.NoError(t, err)
	wantLogits, want := stepsOf(t, one, 1, g.Seed, tokens, 3)
	for i, dependents := range megakernel.AllDependents() {
		for _, merge := range megakernel.Mergings() {
			t.Run(fmt.Sprintf("%s, merge %s", dependents, merge), func(t *testing.T) {
				t.Parallel()
				o := base
				o.Launch, o.Dependents, o.Merge = megakernel.LaunchGraph, dependents, merge
				mk, err := megakernel.Build(c, o)
				require.NoError(t, err)
				logits, got := stepsOf(t, mk, uint64(10+i), g.Seed, tokens, 3)
				require.Equal(t, want, got)
				require.Equal(t, wantLogits, logits)
			})
		}
	}
}
