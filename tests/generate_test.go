package tests

import (
	"slices"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// tinySession is the tiny model on the executor, 4 CTAs, pages shuffled, the
// barrier's counter about to wrap.
func tinySession(t *testing.T, seed uint64) (*runtime.Sequence, *runtime.Sim, models.Config) {
	t.Helper()
	return tinySessionOf(t, seed, megakernel.Options{SMs: 4})
}

func tinySessionOf(t *testing.T, seed uint64, o megakernel.Options) (*runtime.Sequence, *runtime.Sim, models.Config) {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, seed)
	require.NoError(t, err)
	s, err := runtime.NewSequence(mk, sim, synth.NewWeights(2, c), 4, []uint32{2, 0, 3, 1}, 0xffffff00)
	require.NoError(t, err)
	return s, sim, c
}

// bySteps generates a token a launch.
func bySteps(t *testing.T, prompt []int, n int) (chosen []int, logits []float32) {
	t.Helper()
	s, _, c := tinySession(t, 1)
	var next int
	for i := range len(prompt) + n - 1 {
		token := next
		if i < len(prompt) {
			token = prompt[i]
		}
		var err error
		next, err = s.Step(token)
		require.NoError(t, err)
		if i >= len(prompt)-1 {
			chosen = append(chosen, next)
		}
	}
	logits = make([]float32, c.Vocab)
	require.NoError(t, s.Logits(logits))
	return chosen, logits
}

func TestOneLaunchGeneratesWhatManyDo(t *testing.T) {
	prompt, n := synth.Tokens(2, 0, 17, 320), 6
	want, wantLogits := bySteps(t, prompt, n)
	for seed := range uint64(deep.Count(3, 1)) {
		s, _, c := tinySession(t, seed)
		got, err := s.Generate(prompt, n)
		require.NoError(t, err)
		require.Equal(t, want, got)
		logits := make([]float32, c.Vocab)
		require.NoError(t, s.Logits(logits))
		require.Equal(t, wantLogits, logits)
		require.Equal(t, len(prompt)+n-1, s.Pos())
	}
}

func TestAnEndTokenEndsTheLaunchAndTheNextGoesOn(t *testing.T) {
	prompt := synth.Tokens(2, 0, 5, 320)
	want, _ := bySteps(t, prompt, 6)
	s, _, _ := tinySession(t, 7)
	end := want[2]
	n := slices.Index(want, end) + 1 // the first of equal tokens
	require.NoError(t, s.SetEnds([]int{end}))
	got, err := s.Generate(prompt, 6)
	require.NoError(t, err)
	require.Equal(t, want[:n], got)
	require.NoError(t, s.SetEnds(nil))
	rest, err := s.Generate(got[n-1:], 6-n)
	require.NoError(t, err)
	require.Equal(t, want[n:], rest)
}

func TestTheHostStopsALaunchAfterAStep(t *testing.T) {
	prompt := synth.Tokens(2, 0, 5, 320)
	want, _ := bySteps(t, prompt, 4)
	s, sim, _ := tinySession(t, 7)
	require.NoError(t, sim.Write("stop", 0, []byte{1, 0, 0, 0}))
	got, err := s.Generate(prompt, 4)
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, 1, s.Pos())
	require.NoError(t, sim.Write("stop", 0, []byte{0, 0, 0, 0}))
	got, err = s.Generate(prompt[1:], 4)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// More SMs than any matrix has tiles: some have nothing to drain and must not
// run ahead of their producer.
func TestSMsWithoutWorkKeepPace(t *testing.T) {
	prompt := synth.Tokens(2, 0, 2, 320)
	want, _ := bySteps(t, prompt, 2)
	for seed := range uint64(deep.Count(2, 1)) {
		s, _, _ := tinySessionOf(t, seed, megakernel.Options{SMs: 132, Splits: 2, Consumers: 1})
		got, err := s.Generate(prompt, 2)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
