package megakernel

import (
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

func TestMatricesMayHaveFormatsOfTheirOwn(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, tokens := range []int{1, 8} {
		mk, err := Build(c, Options{SMs: 4, Tokens: tokens, Weights: "i4g32,down=i8,qkv=nvfp4,o=bf16"})
		require.NoError(t, err)
		var formats []pipeline.Format
		for _, m := range mk.Plan.Layer {
			formats = append(formats, m.Format)
		}
		require.Equal(t, []pipeline.Format{"nvfp4", "bf16", "i4g32", "i8"}, formats)
	}
}

func TestFormatsThatCannotStandBesideEachOther(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for text, want := range map[pipeline.Format]string{
		"bf16,down=i4g32":     `found "bf16" first in "bf16,down=i4g32", want a format of integers, mxfp4 or nvfp4 first`,
		"e4m3,down=i8":        `found "e4m3" first in "e4m3,down=i8", want a format of integers, mxfp4 or nvfp4 first`,
		"i4g32,down=e4m3b128": `found "e4m3b128" in "i4g32,down=e4m3b128", want formats without scales of blocks`,
		"i4g32,up=i8":         `found "up=i8" in "i4g32,up=i8", want a format, and behind it MATRIX=FORMAT`,
		"i4g32,i8":            `found "i8" in "i4g32,i8", want a format, and behind it`,
		"i8,o=i4,o=i4":        `found "o=i4" in "i8,o=i4,o=i4", want`,
		"i8,o=i5":             `found "i5" in "i8,o=i5", want bf16, e4m3`,
		"down=i8":             `found "down=i8", want bf16`,
	} {
		_, err := Build(c, Options{SMs: 4, Weights: text})
		require.ErrorContains(t, err, want, "%s", text)
	}
	_, err = Build(c, Options{SMs: 4, Head: "i8,o=i4"})
	require.ErrorContains(t, err, `found "i8,o=i4", want bf16`)
}
