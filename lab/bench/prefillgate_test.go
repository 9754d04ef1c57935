package bench

import (
	"context"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// A step of a prompt beside a sequence that decodes is launches of each alone, and then one of both; a step of no more
// tokens than the decode kernels have rows is none of a prefill kernel.
func TestTheGateOfPromptsRunsAndCountsMixedLaunches(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Tokens: 2})
	require.NoError(t, err)
	p, err := megakernel.BuildPrefill(mk, megakernel.PrefillOptions{Tokens: 8, Groups: 1, Sequences: 2})
	require.NoError(t, err)
	s := &PrefillSuite{Machine: Executor{Seed: 1}, Decode: []*megakernel.Kernel{mk}, Prefill: []*megakernel.Prefill{p},
		Lengths: []int{3 * mk.KV.Page}, Weights: func(context.Context) (runtime.Weights, error) {
			return runtime.FromTensors(synth.NewWeights(1, c), runtime.LoadOptions{}), nil
		}}
	r, err := s.open(t.Context())
	require.NoError(t, err)
	defer r.close()
	g := newPrefillGateRunner(r)
	step := func(silent []int, all ...kv.Sequence) {
		for i := range all {
			all[i].Pages, all[i].Tokens = r.pages[i:i+1], make([]uint32, all[i].New)
		}
		_, err := g.Run(t.Context(), all, silent)
		require.NoError(t, err)
	}
	step([]int{0, 0}, kv.Sequence{New: 1}, kv.Sequence{New: 1})
	require.Equal(t, gate.PrefillLaunches{Sequences: 2}, g.launches)
	step([]int{3, 0}, kv.Sequence{Cached: 1, New: 4}, kv.Sequence{Cached: 1, New: 1})
	require.Equal(t, gate.PrefillLaunches{One: 1, Several: 1, Mixed: 1, Tokens: 5, Sequences: 2}, g.launches)
	step([]int{4}, kv.Sequence{Cached: 5, New: 4})
	require.Equal(t, gate.PrefillLaunches{One: 2, Several: 1, Mixed: 1, Tokens: 5, Sequences: 2}, g.launches)
}
