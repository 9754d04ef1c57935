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

// coded are all formats of 4 and 8 bits that ship but e4m3, which other tests have of every model, and those of
// checkpoints' codes that TestEveryFormatIsProved asks for. Of each a kernel of one row and one of several is proved;
// the first ones are in the quick run, of tiny and without drawing.
//
// Shared memory beside the stages is laid out by hidden size, rows and group. Hidden sizes of gemma-3-4b are no powers
// of two, nor are those of llama3.2-3b. Several rows take 2 to 12 s, so each format has one number of rows of one
// model; TestFormatsOfSeveralRowsWithEveryModel has all.
var coded = []struct {
	format       pipeline.Format
	one, several string
	rows         int
}{
	{pipeline.FormatI8, "gemma-3-4b", "llama3-8b", 16},
	{pipeline.FormatNVFP4, "llama3-8b", "qwen3-8b", 8},
	{pipeline.FormatMXFP4, "qwen3-8b", "llama3.2-3b", 16},
	{pipeline.FormatI4G64, "llama3-70b", "qwen3-8b", 4},
	{pipeline.FormatI4G32, "gemma-3-4b", "llama3-8b", 8},
	{pipeline.FormatI4, "llama3-8b", "qwen3-8b", 16},
	{pipeline.FormatI4G128, "gemma-3-4b", "llama3-8b", 4},
	{pipeline.FormatE4M3B128, "llama3.2-1b", "llama3.2-1b", 9},
	{"i4g64-zeros", "qwen3-8b", "gemma-3-4b", 2},
	{"i8g128", "llama3.2-1b", "llama3-8b", 8},
	{"i8g32-zeros-f16", "llama3-8b", "qwen3-8b", 4},
	{"i4g128-zeros-f16", "gemma-3-4b", "llama3.2-3b", 16},
	{"i8g64-f16", "qwen3-8b", "llama3.2-1b", 2},
}

func TestFormatsOfOneRowAndOfSeveral(t *testing.T) {
	for i, f := range deep.Most(coded, 2) {
		one, several := f.one, f.several
		if !deep.On() {
			one, several = "tiny", "tiny"
		}
		t.Run(fmt.Sprintf("%s %s", f.format, one), func(t *testing.T) {
			proved(t, one, megakernel.Options{Weights: f.format})
		})
		t.Run(fmt.Sprintf("%s %s %d rows", f.format, several, f.rows), func(t *testing.T) {
			proved(t, several, megakernel.Options{Weights: f.format, Tokens: f.rows, Draws: deep.On() && i%2 == 0})
		})
	}
}

// A format that ships without a proof in the deep run is a hole that nothing else would show. Of those of checkpoints'
// codes, which are many, any two properties of bits, columns of a group, zero points and binary16 scales that one has
// are proved in one kernel.
func TestEveryFormatIsProved(t *testing.T) {
	proved := []pipeline.Format{pipeline.FormatBF16, pipeline.FormatE4M3} // of every model and number of rows
	kinds := map[string]bool{}
	for _, f := range coded {
		proved = append(proved, f.format)
		require.Greater(t, f.rows, 1)
		for _, kind := range kindsOf(f.format) {
			kinds[kind] = true
		}
	}
	require.Subset(t, proved, pipeline.Formats())
	for _, f := range pipeline.OwnFormats() {
		for _, kind := range kindsOf(f) {
			require.True(t, kinds[kind], "%s of %s", kind, f)
		}
	}
}

// kindsOf are the pairs of properties of a format of integers, such as "8 bits, f16 true"; none of others.
func kindsOf(f pipeline.Format) (pairs []string) {
	shape, integers := f.Int4(1024)
	if !integers || f.E2M1() {
		return nil
	}
	properties := []string{fmt.Sprintf("%d bits", f.Bits()), fmt.Sprintf("group %d", shape.Group),
		fmt.Sprintf("zeros %t", f.Zeros()), fmt.Sprintf("f16 %t", f.F16Scales())}
	for i, a := range properties {
		for _, b := range properties[:i] {
			pairs = append(pairs, b+", "+a)
		}
	}
	return pairs
}

// Every format with three models and all numbers of rows: 156 kernels, half of which draw, in some minutes.
func TestFormatsOfSeveralRowsWithEveryModel(t *testing.T) {
	deep.Only(t)
	if !*every {
		t.Skip("with -every")
	}
	for i, model := range []string{"llama3-8b", "qwen3-8b", "gemma-3-4b"} {
		for j, rows := range []int{2, 4, 8, 16} {
			for k, f := range coded {
				t.Run(fmt.Sprintf("%s %d rows %s", model, rows, f.format), func(t *testing.T) {
					proved(t, model, megakernel.Options{Tokens: rows, Weights: f.format, Draws: (i+j+k)%2 == 0})
				})
			}
		}
	}
}

// Prefill kernels that make bf16 of formats that TestPrefillKernels has not: of tiny, the last of 8B, and with -every
// all of 8B.
func TestPrefillKernelsOfEachFormat(t *testing.T) {
	deep.Only(t)
	formats := []pipeline.Format{pipeline.FormatI4, pipeline.FormatI4G32, pipeline.FormatI4G64, pipeline.FormatI4G128,
		pipeline.FormatE4M3B128, "i4g128,down=i8"}
	for i, f := range formats {
		t.Run(string(f), func(t *testing.T) {
			model, tokens := "tiny", 64
			if *every || i == len(formats)-1 {
				model, tokens = "llama3-8b", 1024
			}
			p, err := megakernel.BuildPrefill(kernel(t, model, megakernel.Options{Weights: f}),
				megakernel.PrefillOptions{Tokens: tokens})
			require.NoError(t, err)
			r := addresses.CheckPrefill(p, p.IR, addresses.Positions)
			require.Empty(t, r.Findings)
			require.Greater(t, r.Accesses, 300)
		})
	}
}
