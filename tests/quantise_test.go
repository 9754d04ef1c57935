package tests

import (
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/quant"
	"github.com/mkgen/mkgen/models/quantise"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// A checkpoint that is quantised to e4m3 has the weights that a kernel of that format makes of the bf16 one.
func TestQuantisedFloatsAreThoseOfTheKernel(t *testing.T) {
	const dir = "../models/bundled/tiny"
	format, err := quantise.Parse("e4m3")
	require.NoError(t, err)
	out := filepath.Join(t.TempDir(), "out")
	_, err = quantise.Checkpoint(t.Context(), dir, out, quantise.Options{Format: format})
	require.NoError(t, err)
	before, err := checkpoint.Open(dir)
	require.NoError(t, err)
	defer before.Close()
	after, err := quant.OpenModel(out, models.Reading{})
	require.NoError(t, err)
	defer after.Close()
	mk, err := megakernel.Build(before.Config(), megakernel.Options{SMs: 2, Weights: pipeline.FormatE4M3})
	require.NoError(t, err)
	rounded := mk.Rounded(before)
	for name, shape := range checkpoint.ShapesOf(before.Config()) {
		want, got := make([]half.BF16, shape[len(shape)-1]), make([]half.BF16, shape[len(shape)-1])
		for row := range max(1, shape[0]*(len(shape)-1)) {
			require.NoError(t, rounded.Row(name, row, want))
			require.NoError(t, after.Row(name, row, got))
			require.Equal(t, want, got, "%s, row %d", name, row)
		}
	}
}
