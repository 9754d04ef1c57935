package verify

import (
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// Models whose residual vectors are kept beside a norm want them in whole blocks of coded weights.
func TestModelsAreWidenedInEveryFormat(t *testing.T) {
	formats := []pipeline.Format{"i4g128", "i8", "mxfp4", "e4m3b128", "bf16"}
	for _, name := range deep.Most([]string{"gemma-3-1b", "olmo-2-7b", "gemma-2-2b", "gemma-3-4b", "llama3.2-1b"}, 2) {
		for _, f := range deep.Most(formats, 1) {
			c, err := models.Lookup(name)
			require.NoError(t, err)
			real, err := megakernel.Build(c, megakernel.Options{Weights: f, SMs: 20})
			require.NoError(t, err)
			mk, _, err := widen(real)
			require.NoError(t, err, "%s in %s", name, f)
			require.Equal(t, real.Options.SMs, mk.Options.SMs)
		}
	}
}
