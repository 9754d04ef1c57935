package verify

import (
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// LM heads of all formats beside layers of others, of one row and of several, tied to the embedding and not: the
// product's input comes in the layers' type and order.
func TestFormatsOfTheHeadPass(t *testing.T) {
	deep.Only(t) // TestFormatsOfWeightsPass and TestFormatsAttentionAndRowsCrossed have some
	tied, err := models.Lookup("tiny")
	require.NoError(t, err)
	untied := tied
	untied.TieEmbeddings, untied.Vocab = false, 1001
	for i, o := range []megakernel.Options{
		{Head: pipeline.FormatI8}, {Tokens: 8, Head: pipeline.FormatI8},
		{Tokens: 9, Weights: pipeline.FormatE4M3, Head: pipeline.FormatI8},
		{Weights: "i4g32-zeros-f16"},
		{Tokens: 3, Weights: pipeline.FormatI4G32, Head: pipeline.FormatE4M3}, {Head: pipeline.FormatE4M3},
		{Tokens: 8, Head: pipeline.FormatE4M3}, {Tokens: 16, Weights: pipeline.FormatI4G32, Head: pipeline.FormatI8},
		{Tokens: 8, Head: pipeline.FormatI4G32}, {Weights: pipeline.FormatI8, Head: pipeline.FormatI4G128},
		{Tokens: 5, Weights: pipeline.FormatE4M3B128, Head: pipeline.FormatMXFP4}, {Head: pipeline.FormatE4M3B128},
		{Tokens: 8, Head: pipeline.FormatE4M3B128}, {Weights: pipeline.FormatI8, Head: "i4g32-zeros"},
		{Weights: "i8,qkv=nvfp4,down=i4g32-zeros", Head: "mxfp4"}, {Tokens: 8, Weights: "i4g32,o=i8,gate_up=nvfp4"},
		{Weights: "i4g32,qkv=bf16,down=e4m3"}, {Tokens: 8, Weights: "nvfp4,o=bf16,gate_up=e4m3"},
		{Weights: pipeline.FormatNVFP4}, {Tokens: 16, Weights: pipeline.FormatNVFP4, Head: pipeline.FormatNVFP4},
	} {
		c := tied
		if i%3 == 2 {
			c = untied
		}
		r, err := Check(t.Context(), Request{Config: c, Options: o, Seeds: 1, Steps: 2})
		require.NoError(t, err, "%+v", o)
		require.NoError(t, r.Err(), "%+v", o)
	}
}
