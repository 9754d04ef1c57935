package addresses_test

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/addresses"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// coded are the formats of 4 bits whose kernels of several rows the other tests lack: floats, groups whose inputs'
// sums are of other sizes, zero points.
var coded = []pipeline.Format{pipeline.FormatMXFP4, pipeline.FormatNVFP4, "i4g32", "i4g64-zeros"}

// Shared memory beside stages of 4 bits is laid out by hidden size, rows and group. Hidden sizes of gemma-3-4b are no
// powers of two. Every other kernel draws. With -every all 48 are proved, in some minutes.
func TestFormatsOfFourBitsOfSeveralRows(t *testing.T) {
	deep.Only(t)
	n := 0
	for _, model := range []string{"llama3-8b", "qwen3-8b", "gemma-3-4b"} {
		for _, rows := range []int{2, 4, 8, 16} {
			for _, f := range coded {
				if n++; n%24 != 0 && !*every {
					continue
				}
				t.Run(fmt.Sprintf("%s %d rows %s", model, rows, f), func(t *testing.T) {
					proved(t, model, megakernel.Options{Tokens: rows, Weights: f, Draws: n%2 == 0})
				})
			}
		}
	}
}

// The prefill kernels of 8B that make bf16 of each format, with -every all.
func TestPrefillKernelsOfEachFormat(t *testing.T) {
	deep.Only(t)
	for i, f := range append(coded, pipeline.FormatI8, pipeline.FormatI4G128, pipeline.FormatE4M3B128, "i4g128-zeros",
		"i4g128,down=i8") {
		if i != 8 && !*every {
			continue
		}
		t.Run(string(f), func(t *testing.T) {
			p, err := megakernel.BuildPrefill(kernel(t, "llama3-8b", megakernel.Options{Weights: f}),
				megakernel.PrefillOptions{Tokens: 1024})
			require.NoError(t, err)
			r := addresses.CheckPrefill(p, p.IR, addresses.Positions)
			require.Empty(t, r.Findings)
			require.Greater(t, r.Accesses, 300)
		})
	}
}
