package gate

import (
	"slices"
	"testing"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// Where down has no codes, or no such codes as a fault changes, the fault is planted in another matrix. Each changes
// what the executor computes, and leaves the right weights behind. A format of bf16 alone has none of them, and no
// kernel with one.
func TestFaultsOfFormatsArePlantedInAnyMatrix(t *testing.T) {
	of4, of8 := []string{BytesExchanged, ScaleOfNeighbour, ScalesNotCopied, NibblesSwapped},
		[]string{BytesExchanged, ScaleOfNeighbour, ScalesNotCopied, HalvesSwapped}
	for i, x := range []struct {
		weights pipeline.Format
		rows    int
		faults  []string
	}{
		{"i4g32-zeros,gate_up=bf16,down=bf16", 1, append(of4[:4:4], ZeroPointOff)},
		{"i4g128,down=bf16", 1, of4},
		{"i4g128,down=bf16", 3, of4},
		{"nvfp4,down=bf16", 3, of4},
		{"i8,o=bf16,gate_up=bf16,down=bf16", 1, of8},
		{"i8g64-zeros-f16,qkv=bf16,gate_up=bf16,down=bf16", 3, append(of8[:4:4], ZeroPointOff)},
		{"i4g32-zeros,gate_up=i8,down=e4m3", 1, append(of4[:4:4], HalvesSwapped, ZeroPointOff)},
		{"i4,qkv=bf16,o=bf16,gate_up=bf16,down=e4m3", 1, of8[1:3]},
		{"i4,qkv=bf16,o=bf16,gate_up=bf16,down=bf16", 1, nil},
	} {
		mk := variantOf(t, megakernel.Options{Weights: x.weights, Tokens: x.rows})
		var list []string
		for _, name := range faults(mk) {
			if !slices.Contains(Faults(), name) {
				list = append(list, name)
			}
		}
		require.Equal(t, x.faults, list, x.weights)
		if i == 0 || deep.On() {
			requireFaultsShow(t, mk, list)
		}
	}
	_, err := megakernel.Build(variantOf(t, megakernel.Options{}).Config, megakernel.Options{SMs: 2,
		Weights: "i4,qkv=bf16,o=bf16,gate_up=bf16,down=bf16", Fault: megakernel.FaultInputBytes})
	require.ErrorContains(t, err, "fault")
}

// requireFaultsShow runs a step on the executor, and one with each fault.
func requireFaultsShow(t *testing.T, mk *megakernel.Kernel, names []string) {
	t.Helper()
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	w := synth.NewWeights(5, mk.Config)
	s, err := runtime.Open(t.Context(), mk, sim, runtime.FromTensors(w, runtime.LoadOptions{}),
		runtime.Options{Pages: 2})
	require.NoError(t, err)
	step := func() []float32 {
		_, err := s.Run(t.Context(), batch.StepRequest{Sequences: []batch.Sequence{{New: []int{7}, Pages: []uint32{0}}},
			Steps: 1})
		require.NoError(t, err)
		logits := make([]float32, mk.Config.Vocab)
		require.NoError(t, s.Logits(0, logits))
		return logits
	}
	right := step()
	for _, name := range names {
		var wrong []float32
		run := func() (Result, error) { wrong = step(); return Result{}, nil }
		if fault, ok := inKernel[name]; ok {
			o := mk.Options
			o.Fault = fault
			broken, err := megakernel.Build(mk.Config, o)
			require.NoError(t, err)
			require.NoError(t, sim.Swap(broken.IR))
			_, _ = run()
			require.NoError(t, sim.Swap(mk.IR))
		} else {
			_, err := spoilWeights(mk, w, sim.Write, name, run)
			require.NoError(t, err, name)
		}
		require.NotEqual(t, right, wrong, "%s: %s", mk.Options.Weights, name)
	}
	require.Equal(t, right, step())
}
