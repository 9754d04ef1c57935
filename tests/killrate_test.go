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
	"github.com/mkgen/mkgen/tasks/attention"
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

// shippedKernels are kernels of llama3-8b as commands make them: every format that weights can be rounded to with every
// number of rows, those of checkpoints' own codes, layers of several formats and coded LM heads with 1, 8 and 16; each
// greedy and drawing, with the watchdog of compile and bench and with that of run and serve; and prefill kernels of
// each, for long prompts and for short ones, of one sequence as bench makes them and of as many as there are rows, as
// run and serve do; with weights in e4m3 also prefill kernels whose activations are. Without -killrate most are those
// that draw, with run's watchdog, and without -deep formats and numbers of rows are fewer.
func shippedKernels(t *testing.T, of ...family) (all []shippedKernel) {
	t.Helper()
	c, err := models.Lookup("llama3-8b")
	require.NoError(t, err)
	ships := shipped()
	built := make([][]shippedKernel, len(ships))
	atOnce(len(ships), func(i int) { built[i] = ships[i].build(t, c, of) })
	if t.Failed() {
		t.FailNow()
	}
	return slices.Concat(built...)
}

// shippedAs is a format of weights and the steps that kernels are made for.
type shippedAs struct {
	weights, head pipeline.Format
	kv            attention.KVType
	rows          []int
	activations   pipeline.Format // of prefill kernels; "": those of bf16, and kernels of rows beside them
}

// fewRows are the numbers of rows that all formats are made for.
var fewRows = []int{1, 8, 16}

// shipped lists them.
func shipped() (all []shippedAs) {
	rows, codes := fewRows, []pipeline.Format{pipeline.FormatI8, pipeline.FormatI4G128}
	formats, own := append([]pipeline.Format{pipeline.FormatBF16}, codes...), []pipeline.Format{formatZeros}
	if deep.On() {
		rows, formats, own = nil, pipeline.Formats(), pipeline.OwnFormats()
		for n := range 16 {
			rows = append(rows, n+1)
		}
		codes = slices.DeleteFunc(slices.Clone(formats), func(f pipeline.Format) bool { return f == pipeline.FormatBF16 })
	}
	for _, f := range formats {
		all = append(all, shippedAs{weights: f, rows: rows})
	}
	for _, f := range append(own, "i4g128,down=i8", "i4g32,qkv=nvfp4,down=i8") {
		all = append(all, shippedAs{weights: f, rows: fewRows})
	}
	all = append(all, shippedAs{weights: pipeline.FormatBF16, kv: attention.KVE4M3, rows: fewRows},
		shippedAs{weights: pipeline.FormatE4M3, activations: pipeline.FormatE4M3, rows: rows},
		shippedAs{weights: pipeline.FormatE4M3, activations: pipeline.FormatE4M3, kv: attention.KVE4M3, rows: fewRows})
	for _, f := range codes {
		all = append(all, shippedAs{head: f, rows: fewRows})
	}
	return all
}

// build are its kernels of the families.
func (s shippedAs) build(t *testing.T, c models.Config, families []family) (all []shippedKernel) {
	t.Helper()
	name := string(s.weights)
	if s.head != "" {
		name = "LM head " + string(s.head)
	}
	if s.kv != "" {
		name += ", KV " + string(s.kv)
	}
	if s.activations != "" {
		name += ", activations " + string(s.activations)
	}
	add := func(what string, of family, k *ir.Kernel) {
		all = append(all, shippedKernel{name + ", " + what, of, kindsOf(of, k)})
	}
	for _, n := range s.rows {
		of, what := manyRows, fmt.Sprintf("%d rows", n)
		if n == 1 {
			of, what = oneRow, "1 row"
		}
		o := megakernel.Options{Tokens: n, Weights: s.weights, Head: s.head, KV: s.kv}
		for _, x := range []struct {
			what    string
			draws   bool
			watch   megakernel.Watchdog
			without bool // without -killrate, too
		}{{"", false, megakernel.WatchGrid, slices.Contains(fewRows, n)}, {", draws", true, megakernel.WatchGrid, false},
			{", all waits watched", false, megakernel.WatchAll, false},
			{", draws, all waits watched", true, megakernel.WatchAll, true}} {
			if o.Draws, o.Watchdog = x.draws, x.watch; slices.Contains(families, of) && s.activations == "" &&
				(*killrate || x.without) {
				add(what+x.what, of, buildOf(t, c, o).IR)
			}
		}
		if n == 1 && slices.Contains(families, prompts) {
			s.prefills(t, c, n, 0, func(what string, k *ir.Kernel) { add(what, prompts, k) })
		}
		if most := n == megakernel.MaxPrefillSequences; s.head == "" && n > 1 && (*killrate || most) &&
			slices.Contains(families, manyPrompts) {
			s.prefills(t, c, n, longPrefill, func(what string, k *ir.Kernel) {
				add(fmt.Sprintf("%s of %d sequences", what, n), manyPrompts, k)
			})
		}
	}
	return all
}

// longPrefill is the tokens of a prefill step of run and serve.
const longPrefill = 1024

// prefills builds the prefill kernels beside one of n rows: of steps of that many tokens, 0 for the default, and those
// of fewer beside it.
func (s shippedAs) prefills(t *testing.T, c models.Config, n, tokens int, add func(what string, k *ir.Kernel)) {
	t.Helper()
	all, err := megakernel.BuildPrefills(buildOf(t, c, megakernel.Options{Tokens: n, Weights: s.weights, Head: s.head,
		KV: s.kv}), tokens, s.activations)
	require.NoError(t, err)
	for _, p := range all {
		add(fmt.Sprintf("prefill of %d tokens", p.Options.Tokens), p.IR)
	}
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
	for _, s := range shippedKernels(t, killFamilies...) {
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
