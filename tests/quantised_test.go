package tests

import (
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/quant"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// Checkpoints that the quantisers' packages wrote run on the executor, in bf16 and rounded to
// e4m3, and compute what float64 does with the weights that the packages dequantise them to.
func TestQuantisedCheckpointsRun(t *testing.T) {
	ran := 0
	dirs, err := filepath.Glob("../models/quant/testdata/*/config.json")
	require.NoError(t, err)
	for i, file := range dirs {
		if i%3 != 1 && !deep.On() { // of every kind one or two
			continue
		}
		dir := filepath.Dir(file)
		m, err := quant.OpenModel(dir, models.Reading{})
		require.NoError(t, err, dir)
		o := megakernel.Options{SMs: 2, Consumers: 2}
		if i%2 == 1 {
			o.Weights = pipeline.FormatE4M3
		}
		mk, err := megakernel.Build(m.Config(), o)
		if m.Config().HeadDim%16 != 0 { // of the smallest ones with blocks of 128
			require.ErrorContains(t, err, "head_dim", dir)
		} else {
			require.NoError(t, err, dir)
			runsRight(t, mk, m, dir)
			ran++
		}
		require.NoError(t, m.Close())
	}
	require.Greater(t, ran, 5)
}

func runsRight(t *testing.T, mk *megakernel.Kernel, m *quant.Model, dir string) {
	runsRightOn(t, mk, m, m.Config(), dir)
}

func runsRightOn(t *testing.T, mk *megakernel.Kernel, m megakernel.Tensors, c models.Config, dir string) {
	rounded, shape := mk.Rounded(m), c
	weights := reference.Weights{}
	for name, dims := range checkpoint.ShapesOf(c) {
		columns, rows := dims[len(dims)-1], 1
		if len(dims) > 1 {
			rows = dims[0]
		}
		weights[name] = make([]half.BF16, rows*columns)
		for row := range rows {
			require.NoError(t, rounded.Row(name, row, weights[name][row*columns:][:columns]))
		}
	}
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	s, err := runtime.NewSequence(mk, sim, m, 2, nil, 0)
	require.NoError(t, err, dir)
	ref, err := reference.NewModel(shape, weights, reference.AsKernelWith(shape, mk.RoundInput, mk.RoundHeadInput))
	require.NoError(t, err)
	prompt, want := []int{3, 1, 4}, []float64(nil)
	for _, token := range prompt {
		want = ref.Step(token)
	}
	_, err = s.Generate(prompt, 1)
	require.NoError(t, err, dir)
	got := make([]float32, c.Vocab)
	require.NoError(t, s.Logits(got))
	most := 0.0
	for _, x := range want {
		most = max(most, x, -x)
	}
	for i, x := range want {
		require.InDelta(t, x, float64(got[i]), 0.03*most, "%s, token %d", dir, i)
	}
}
