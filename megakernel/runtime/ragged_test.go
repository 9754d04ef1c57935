package runtime_test

import (
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/megakernel/runtime"
	"github.com/mkgen/mkgen/megakernel/runtime/batch"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// raggedOnSim is a ragged session of tiny on the executor with 8 pages.
func raggedOnSim(t *testing.T, tokens int, o runtime.RaggedOptions) *runtime.Ragged {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Tokens: tokens})
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	o.Pages = 8
	s, err := runtime.OpenRagged(t.Context(), mk, sim, runtime.FromTensors(synth.NewWeights(1, reference.ShapeOf(c).Dims()), runtime.LoadOptions{}), o)
	require.NoError(t, err)
	return s
}

// A sequence fed in pieces beside another one chooses what it chooses alone, a
// token a step.
func TestRowsOfTwoSequencesChooseWhatEachChoosesAlone(t *testing.T) {
	prompts := [][]int{{5, 6, 7, 8, 9, 10, 11}, {40, 41}}
	var want [2][]int
	for i, p := range prompts {
		s, _ := onSim(t, megakernel.Options{SMs: 2})
		var err error
		want[i], err = s.Generate(p, 6)
		require.NoError(t, err)
	}
	r := raggedOnSim(t, 4, runtime.RaggedOptions{Steps: 8})
	a, b := batch.Sequence{New: prompts[0][:3], Pages: []uint32{6}}, batch.Sequence{New: prompts[1][:1], Pages: []uint32{1}}
	_, err := r.Run(t.Context(), batch.StepRequest{Sequences: []batch.Sequence{a, b}, Steps: 1})
	require.NoError(t, err)
	a.New, a.Cached, b.New, b.Cached = prompts[0][3:6], 3, prompts[1][1:], 1
	got, err := r.Run(t.Context(), batch.StepRequest{Sequences: []batch.Sequence{b, a}, Steps: 1})
	require.NoError(t, err)
	require.Equal(t, want[1][0], got[0][0])
	a.New, a.Cached, b.New, b.Cached = prompts[0][6:], 6, want[1][:1], 2
	heard := 0
	got, err = r.Run(t.Context(), batch.StepRequest{Sequences: []batch.Sequence{a, b}, Steps: 5, Each: func(chosen []int) bool {
		require.Equal(t, []int{want[0][heard], want[1][heard+1]}, chosen)
		heard++
		return true
	}})
	require.NoError(t, err)
	require.Len(t, got, 5)
	require.Equal(t, 5, heard)
}
