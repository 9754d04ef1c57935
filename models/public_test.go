package models

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// publicFile is a block of testdata/public.txt.
type publicFile struct{ name, verdict, text string }

func publicFiles(t *testing.T) (files []publicFile) {
	all, err := os.ReadFile("testdata/public.txt")
	require.NoError(t, err)
	_, blocks, ok := strings.Cut(string(all), "\n\n")
	require.True(t, ok)
	for block := range strings.SplitSeq(strings.TrimSpace(blocks), "\n\n") {
		lines := strings.Split(block, "\n")
		require.Len(t, lines, 3, block)
		files = append(files, publicFile{lines[0], lines[1], lines[2]})
	}
	return files
}

// A file of a popular model is read, or its refusal names every feature that is missing and nothing else.
func TestPublicFilesAreReadOrRefusedByFeature(t *testing.T) {
	accepted, refused := 0, 0
	for _, f := range publicFiles(t) {
		c, err := Parse(strings.NewReader(f.text))
		if family, ok := strings.CutPrefix(f.verdict, "accepted as "); ok {
			require.NoError(t, err, f.name)
			require.Equal(t, family, c.Family, f.name)
			accepted++
			continue
		}
		features, ok := strings.CutPrefix(f.verdict, "refused for ")
		require.True(t, ok, f.verdict)
		require.Error(t, err, f.name)
		require.NotContains(t, err.Error(), "models.", "a Go type of "+f.name)
		require.NotContains(t, err.Error(), "--ignore-field", f.name)
		require.NotContains(t, err.Error(), "adding-a-family", f.name)
		for feature := range strings.SplitSeq(features, "; ") {
			require.Contains(t, err.Error(), feature, f.name)
		}
		o, err := readObject(strings.NewReader(f.text))
		require.NoError(t, err)
		text, _ := textPart(o)
		// these say it in other words, or of the whole
		if model, _ := text.get("model_type"); model != "granitemoehybrid" && model != "chatglm" && model != "gemma" {
			require.Len(t, missingFeatures(text), strings.Count(features, "; ")+1, f.name)
		}
		refused++
	}
	require.GreaterOrEqual(t, accepted, 20)
	require.GreaterOrEqual(t, refused, 45)
}

// A fine-tune of a family that is read must not be refused for the family's name.
func TestNoFamilyOfOursIsASignOfAMissingFeature(t *testing.T) {
	for _, f := range Families() {
		for _, s := range signs() {
			require.NotContains(t, strings.Fields(s.types), f.Name)
			for _, part := range f.Parts {
				require.NotContains(t, strings.Fields(s.types), part)
			}
		}
	}
}

// What is not said in a sign's usual field, and where a text part is sought, is said instead of that a family may be
// added.
func TestRefusalsOfWholeModelsDoNotAdviseToAddAFamily(t *testing.T) {
	const sought = `this file is of a multimodal model, whose text part is sought in text_config, llm_config, ` +
		`language_config: none of them is there`
	for text, says := range map[string]string{
		`"smallthinker", "moe_num_primary_experts": 32`: "mixtures of experts (moe_num_primary_experts 32)",
		`"qwen2_5_omni", "thinker_config": {"text_config": {"model_type": "qwen2_5_omni_text"}}`: "" +
			"the rotary embedding in three dimensions (mrope)",
		`"qwen3_omni_moe", "thinker_config": {"text_config": {"num_experts": 128}}`: "mixtures of experts",
		`"new", "vision_config": {"depth": 1}`:                                      sought,
		`"new", "audio_config": {"depth": 1}, "text_config": null`:                  sought,
		`"new", "thinker_config": {"text_config": {}}`:                              sought,
		`"new", "vision_config": null`:                                              "docs/adding-a-family.md may add it",
	} {
		_, err := Parse(strings.NewReader(`{"model_type": ` + text + "}"))
		require.ErrorContains(t, err, says, text)
		if !strings.Contains(says, "may add it") {
			require.NotContains(t, err.Error(), "adding-a-family", text)
		}
	}
}
