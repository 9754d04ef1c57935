package megakernel

import (
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
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

// Every format has a kernel for every number of rows and both formats of the KV cache: none is refused, in 1056 builds
// of tiny, and in 198 of a model whose stages are of full size. In the quick run each format has one, with rows of its
// own.
func TestEveryFormatHasAKernelForAllNumbersOfRows(t *testing.T) {
	formats := append(pipeline.Formats(), pipeline.OwnFormats()...)
	formats = append(formats, "i4g128,qkv=bf16,down=i8", "nvfp4,qkv=e4m3,o=bf16")
	built := 0
	build := func(model string, f pipeline.Format, rows int, kv attention.KVType) {
		c, err := models.Lookup(model)
		require.NoError(t, err)
		_, err = Build(c, Options{Weights: f, Tokens: rows, KV: kv})
		require.NoError(t, err, "%s, %s, %d rows, KV %s", model, f, rows, kv)
		built++
	}
	for i, f := range formats {
		if !deep.On() {
			build("tiny", f, 1+i%16, attention.KVBF16)
			continue
		}
		for _, kv := range []attention.KVType{attention.KVBF16, attention.KVE4M3} {
			for rows := range 16 {
				build("tiny", f, rows+1, kv)
			}
			for _, rows := range []int{1, 8, 16} {
				build("llama3.2-1b", f, rows, kv)
			}
		}
	}
	require.Equal(t, deep.Count(1056+198, 33), built)
}
