package gate

import (
	"testing"

	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// Masks and selections are those of tests/gpu/variants.py: the figures are printed by its hidden(1, 2, …) and chosen(1,
// 0, …).
func TestMasksAndSelectionsAreThoseOfTheReference(t *testing.T) {
	r := &Reference{Seed: 1}
	require.Equal(t, []uint32{1}, r.maskWords(2, 0))
	require.Equal(t, []uint32{0xfbef5efd}, r.maskWords(2, 31))
	require.Equal(t, []uint32{0xf7fbffef, 0xffffffbf, 0x3f}, r.maskWords(2, 69))
	require.Equal(t, []int{0, 1, 2, 4, 5, 7}, r.selected(0, 0, 12))
	require.Equal(t, []int{3, 4, 5, 8, 9}, r.selected(0, 1, 12))
	require.Equal(t, []int{1, 3, 7, 10}, r.selected(0, 7, 12))
}

func variantOf(t *testing.T, o megakernel.Options) *megakernel.Kernel {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	o.SMs = 2
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	return mk
}

func TestAReferenceOfAnotherAttentionIsRefused(t *testing.T) {
	plain := Reference{Roundings: Roundings{KV: "bf16"}}
	windowed := plain
	windowed.Variant.Attention = "window=20"
	selected := plain
	selected.Variant.Selection = 16
	quantised := Reference{Roundings: Roundings{KV: "e4m3"}, Variant: Variant{KV: "e4m3"}}
	window, selection := variantOf(t, megakernel.Options{Attention: "window=20"}),
		variantOf(t, megakernel.Options{Tokens: 4, Selection: true})
	require.NoError(t, plain.judges(variantOf(t, megakernel.Options{}), pipeline.FormatBF16))
	require.NoError(t, windowed.judges(window, pipeline.FormatBF16))
	require.NoError(t, selected.judges(selection, pipeline.FormatBF16))
	require.NoError(t, quantised.judges(variantOf(t, megakernel.Options{KV: "e4m3"}), pipeline.FormatBF16))
	require.EqualError(t, plain.judges(window, pipeline.FormatBF16),
		"reference: its attention is causal, that of what runs here window=20")
	require.EqualError(t, plain.judges(selection, pipeline.FormatBF16),
		"reference: its page of selections is 0, that of what runs here 16")
	require.EqualError(t, plain.judges(variantOf(t, megakernel.Options{}), pipeline.FormatE4M3),
		"reference: its rounding of inputs in s is bf16, that of what runs here e4m3")
	head := plain
	head.HeadFormat = "i8"
	require.NoError(t, head.judges(variantOf(t, megakernel.Options{Head: pipeline.FormatI8}), pipeline.FormatBF16))
	require.EqualError(t, plain.judges(variantOf(t, megakernel.Options{Head: pipeline.FormatI8}), pipeline.FormatBF16),
		"reference: its format of the LM head is bf16, that of what runs here i8")
	require.EqualError(t, head.MatchesFormats("i4g128", "i8"),
		"reference: its weight format is bf16, that of what runs here i4g128")
	require.EqualError(t, head.MatchesFormats("", pipeline.FormatE4M3),
		"reference: its format of the LM head is i8, that of what runs here e4m3")
	require.EqualError(t, quantised.judges(window, pipeline.FormatBF16),
		"reference: its format of the KV cache is e4m3, that of what runs here bf16")
}

func TestFaultsAreThoseThatAnAttentionHasAPlaceFor(t *testing.T) {
	require.Equal(t, Faults(), faults(variantOf(t, megakernel.Options{})))
	require.Equal(t, append(Faults(), AttentionChanged), faults(variantOf(t, megakernel.Options{Attention: "softcap=2"})))
	require.Equal(t, []string{KVTokenDropped, RopeOffByOne, NormGainSkipped, PagesSwapped, AttentionChanged},
		faults(variantOf(t, megakernel.Options{Attention: "sigmoid=-2"})))
}

// A step's rows have their own mask words, as many as the launch reads of each, and every KV head its own pages.
func TestRowsGetTheirMasksAndPages(t *testing.T) {
	p := &raggedPass{s: &RaggedSubject{Kernel: variantOf(t,
		megakernel.Options{Tokens: 4, Attention: "mask", Selection: true})}, ref: &Reference{Seed: 1}}
	var a, b kv.Sequence
	words := p.attends(&a, Part{0, 40, 42}, nil)
	words = p.attends(&b, Part{1, 31, 32}, words)
	require.Len(t, a.Masks, 2)
	require.Equal(t, p.ref.maskWords(0, 41), words[a.Masks[1]:][:2])
	require.Equal(t, p.ref.maskWords(1, 31), words[b.Masks[0]:][:1])
	require.Equal(t, [][]int{p.ref.selected(0, 0, 2), p.ref.selected(0, 1, 2)}, a.Select)

	q := &raggedPass{s: p.s, ref: p.ref, fault: AttentionChanged}
	var c kv.Sequence
	words = q.attends(&c, Part{0, 40, 41}, nil)
	require.NotEqual(t, p.ref.maskWords(0, 40), words[:2])
	require.Equal(t, a.Select[1], c.Select[0])
}

func TestPartsEndWithPagesWherePagesAreSelected(t *testing.T) {
	fed := make([]int, 3)
	for _, step := range stepsOf([]int{50, 7, 33}, 8, 16, nil) {
		for _, p := range step {
			require.Equal(t, fed[p.Sequence], p.From)
			require.Equal(t, p.From/16, (p.To-1)/16)
			fed[p.Sequence] = p.To
		}
	}
	require.Equal(t, []int{50, 7, 33}, fed)
}
