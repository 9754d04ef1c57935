package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// formatZeros is the format of AWQ's checkpoints and of most of GPTQ's: groups of 128 with zero points.
const formatZeros pipeline.Format = "i4g128-zeros"

// shippedKernel is a kernel of llama3-8b at its real size, as it is generated for 132 SMs.
type shippedKernel struct {
	name   string // "i4g128, 8 rows"
	family family
	kinds  map[kind]int // of its mutants, and how many of each
}

// shippedKernels are decode kernels of 1, 8 and 16 rows and a prefill kernel of each of eight weight formats, or of
// every format that weights can be rounded to, with every number of rows, and of those of checkpoints' own codes with
// 1, 8 and 16.
func shippedKernels(t *testing.T, every bool) (all []shippedKernel) {
	t.Helper()
	c, err := models.Lookup("llama3-8b")
	require.NoError(t, err)
	formats := []pipeline.Format{pipeline.FormatBF16, pipeline.FormatE4M3, pipeline.FormatE4M3B128, pipeline.FormatI4G128,
		pipeline.FormatI8, pipeline.FormatMXFP4, pipeline.FormatNVFP4, formatZeros}
	rows := []int{1, 8, 16}
	few := rows
	if every {
		formats, rows = slices.Concat(pipeline.Formats(), pipeline.OwnFormats()), nil
		for n := range 16 {
			rows = append(rows, n+1)
		}
	}
	for _, f := range formats {
		rows := rows
		if slices.Contains(pipeline.OwnFormats(), f) {
			rows = few
		}
		for _, n := range rows {
			name, of := fmt.Sprintf("%s, %d rows", f, n), manyRows
			if n == 1 {
				name, of = fmt.Sprintf("%s, 1 row", f), oneRow
			}
			mk := buildOf(t, c, megakernel.Options{Tokens: n, Weights: f, Draws: n > 1})
			all = append(all, shippedKernel{name, of, kindsOf(of, mk.IR)})
			if n == 1 {
				p, err := megakernel.BuildPrefill(mk, megakernel.PrefillOptions{})
				require.NoError(t, err)
				all = append(all, shippedKernel{fmt.Sprintf("%s, prefill", f), prompts, kindsOf(prompts, p.IR)})
			}
		}
	}
	return all
}

// kind is what mutations of equal keys have in common, wherever they are.
type kind struct {
	family family
	name   string
	key    mutate.Key
}

func (k kind) String() string { return fmt.Sprintf("%s: %s (%s)", k.family, k.name, k.key) }

// kindsOf counts a kernel's mutants by their kinds.
func kindsOf(f family, k *ir.Kernel) map[kind]int {
	kinds := map[kind]int{}
	for _, m := range mutate.List(k) {
		kinds[kind{f, m.Name, m.Key}]++
	}
	return kinds
}

// Every mutant of every kernel that ships is of a kind that a subject small enough to be run has: the same instruction
// between the same others, in the same role and region, broken in the same way.
func TestSmallSubjectsHaveEveryKindOfMutantThatShips(t *testing.T) {
	has := map[kind]bool{}
	for _, s := range killSubjects(t) {
		if s.kernel == nil {
			continue
		}
		for k := range kindsOf(s.family, s.kernel(t)) {
			has[k] = true
		}
	}
	missing, all := map[kind]string{}, map[kind]bool{}
	for _, s := range shippedKernels(t, deep.On()) {
		for k := range s.kinds {
			if all[k] = true; !has[k] {
				missing[k] = s.name
			}
		}
	}
	var lines []string
	for k, kernel := range missing {
		lines = append(lines, kernel+" has "+k.String())
	}
	slices.Sort(lines)
	require.Empty(t, lines, "of %d kinds no subject has\n%s", len(all), strings.Join(lines, "\n"))
	t.Logf("%d kinds", len(all))
}
