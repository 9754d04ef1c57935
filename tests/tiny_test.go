package tests

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/runtime"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/tests/oracle"
	"github.com/stretchr/testify/require"
)

func TestTinySteps(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 4})
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	shape := oracle.ShapeOf(c)
	s, err := runtime.NewSession(mk, sim, synth.NewWeights(1, shape.Dims()), 4, []uint32{2, 0, 3, 1}, 0xffffff00)
	require.NoError(t, err)
	ref, err := oracle.NewModel(shape, oracle.Synthetic(shape, 1), oracle.KernelRounding())
	require.NoError(t, err)
	logits := make([]float32, c.Vocab)
	for i, id := range synth.Tokens(1, 0, 20, c.Vocab) {
		t0 := time.Now()
		next, err := s.Step(id)
		require.NoError(t, err)
		require.NoError(t, s.Logits(logits))
		want := ref.Step(id)
		worst := 0.0
		for j := range want {
			worst = max(worst, math.Abs(want[j]-float64(logits[j])))
		}
		fmt.Println(i, next, oracle.Argmax(want), worst, time.Since(t0), sim.Last.Steps)
	}
}
