package tests

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/megakernel/runtime"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

func TestTinySteps(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, fault := range append([]megakernel.Fault{""}, megakernel.Faults()...) {
		mk, err := megakernel.Build(c, megakernel.Options{SMs: 4, Fault: fault})
		require.NoError(t, err)
		sim, err := runtime.NewSim(mk.IR, 1)
		require.NoError(t, err)
		shape := reference.ShapeOf(c)
		s, err := runtime.NewSession(mk, sim, synth.NewWeights(1, shape.Dims()), 4, []uint32{2, 0, 3, 1}, 0xffffff00)
		require.NoError(t, err)
		w := reference.Synthetic(shape, 1)
		mod := func(h reference.Hooks) *reference.Model {
			ref, err := reference.NewModel(shape, w, h)
			require.NoError(t, err)
			return ref
		}
		ker, old, o, h := mod(reference.AsKernel(shape)), mod(reference.KernelRounding()), mod(reference.Hooks{}), mod(reference.FrameworkRounding(shape))
		logits := make([]float32, c.Vocab)
		fmt.Println("fault", fault)
		for i, id := range synth.Tokens(1, 0, 20, c.Vocab) {
			_, err := s.Step(id)
			require.NoError(t, err)
			require.NoError(t, s.Logits(logits))
			got := make([]float64, len(logits))
			for i, v := range logits {
				got[i] = float64(v)
			}
			dist := func(a, b []float64) string {
				worst, sum := 0.0, 0.0
				for j := range a {
					worst = max(worst, math.Abs(a[j]-b[j]))
					sum += (a[j] - b[j]) * (a[j] - b[j])
				}
				return fmt.Sprintf("%.4f(%.4f)", worst, math.Sqrt(sum/float64(len(a))))
			}
			a, b, cc, d := ker.Step(id), old.Step(id), o.Step(id), h.Step(id)
			fmt.Println(i, "k-ker", dist(got, a), "k-old", dist(got, b), "k-o", dist(got, cc), "h-o", dist(d, cc), "ker-o", dist(a, cc))
		}
	}
}
