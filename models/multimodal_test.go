package models

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fieldsOf are the fields of a small text model, without the braces around; more come behind them.
func fieldsOf(modelType, more string) string {
	return `"model_type": "` + modelType + `", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
		"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 64,
		"head_dim": 16, "rms_norm_eps": 1e-6, "hidden_act": "silu", "eos_token_id": 2` + more
}

func parsedText(t *testing.T, text string) Config {
	t.Helper()
	c, err := Parse(strings.NewReader(text))
	require.NoError(t, err, text)
	return c
}

// With text alone the three positions of mrope are one: these text parts are the plain families.
func TestRotaryEmbeddingInThreeDimensionsIsTheUsualOneOfText(t *testing.T) {
	const v4, v5 = `, "rope_theta": 1e6, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}`,
		`, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3],
			"mrope_interleaved": true}`
	const beside = `, "vision_config": {"depth": 1}, "image_token_id": 5, "vision_start_token_id": 6`
	for _, c := range []struct{ plain, part, whole string }{
		{"qwen2", "qwen2_vl_text", "qwen2_vl"}, {"qwen2", "qwen2_5_vl_text", "qwen2_5_vl"},
		{"qwen3", "qwen3_vl_text", ""}, {"glm4", "glm4v_text", "glm4v"},
	} {
		want := parsedText(t, "{"+fieldsOf(c.plain, `, "rope_theta": 1e6`)+"}")
		want.TextPart = true
		for _, rope := range []string{v4, v5} {
			require.Equal(t, want, parsedText(t, `{"model_type": "x", "text_config": {`+fieldsOf(c.part, rope)+"}}"), c.part)
			if c.whole != "" {
				require.Equal(t, want, parsedText(t, "{"+fieldsOf(c.whole, rope+beside)+"}"), c.whole)
			}
		}
	}
	_, err := Parse(strings.NewReader("{" + fieldsOf("qwen2", v5) + "}"))
	require.ErrorContains(t, err, "mrope_section")
}

// A text part computes otherwise within PaliGemma, whatever its fields say.
func TestATextPartWhoseWholeChangesItIsRefused(t *testing.T) {
	text := `{"model_type": "paligemma", "text_config": {` + fieldsOf("gemma", `, "num_image_tokens": 4`) + "}}"
	for _, ignore := range [][]string{nil, {"num_image_tokens"}} {
		_, err := Reading{Ignore: ignore}.Parse(strings.NewReader(text))
		require.ErrorContains(t, err, `model_type: found "paligemma", want a model whose text part computes as it does alone; `+
			"this model needs what no kernel has: attention in both directions within a prompt")
	}
}

// transformers 4 wrote of a text part only what differs from its class's defaults; a file of text alone has its sizes.
func TestAbsentSizesOfATextPartAreTheClasses(t *testing.T) {
	const sparse = `{"model_type": %q, "vocab_size": 32064}`
	for family, want := range map[string]Config{
		"llama":   {Layers: 32, Hidden: 4096, Intermediate: 11008, Heads: 32, KVHeads: 32, HeadDim: 128, MaxPositions: 2048},
		"mistral": {Layers: 32, Hidden: 4096, Intermediate: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, MaxPositions: 131072},
		"qwen2":   {Layers: 32, Hidden: 4096, Intermediate: 22016, Heads: 32, KVHeads: 32, HeadDim: 128, MaxPositions: 32768},
		"qwen3":   {Layers: 32, Hidden: 4096, Intermediate: 22016, Heads: 32, KVHeads: 32, HeadDim: 128, MaxPositions: 32768},
		"granite": {Layers: 32, Hidden: 4096, Intermediate: 11008, Heads: 32, KVHeads: 32, HeadDim: 128, MaxPositions: 2048},
	} {
		text := fmt.Sprintf(sparse, family)
		got := parsedText(t, `{"model_type": "llava", "text_config": `+text+"}")
		sizes := Config{Layers: got.Layers, Hidden: got.Hidden, Intermediate: got.Intermediate, Heads: got.Heads,
			KVHeads: got.KVHeads, HeadDim: got.HeadDim, MaxPositions: got.MaxPositions}
		require.Equal(t, want, sizes, family)
		require.Equal(t, 32064, got.Vocab)
		require.Equal(t, 1e-6, got.NormEps)
		_, err := Parse(strings.NewReader(text))
		require.ErrorContains(t, err, "hidden_size: found nothing", family)
	}
}

// The rotary embedding's own factor of 1 counts before the family's default of a half.
func TestAWholeHeadIsRotatedWhereTheFileSaysSo(t *testing.T) {
	for _, family := range []string{"glm", "glm4"} {
		require.Equal(t, 8, parsedText(t, "{"+fieldsOf(family, "")+"}").Rope.Dims)
		for _, more := range []string{`, "partial_rotary_factor": 1.0`, `, "rope_parameters": {"partial_rotary_factor": 1.0}`} {
			require.Zero(t, parsedText(t, "{"+fieldsOf(family, more)+"}").Rope.Dims, more)
		}
	}
}

// What transformers does not read of these does not matter, and 0 is as good as null where it asks for truth.
func TestFieldsThatTransformersPassesOver(t *testing.T) {
	yarn := func(more string) string {
		return "{" + fieldsOf("llama", `, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
			"original_max_position_embeddings": 16`+more+"}}")
	}
	want := parsedText(t, yarn(""))
	for _, more := range []string{`, "finetuned": true`, `, "mscale": 0, "mscale_all_dim": 0.0`,
		`, "mscale": 1.0, "mscale_all_dim": 0`, `, "beta_fast": 0, "beta_slow": null`} {
		require.Equal(t, want, parsedText(t, yarn(more)), more)
	}
	gemma := fieldsOf("gemma3_text", `, "final_logit_softcapping": 5.0`)
	require.Equal(t, parsedText(t, "{"+gemma+"}"), parsedText(t, "{"+gemma+`, "attn_logit_softcapping": 4.0}`))
	require.Zero(t, parsedText(t, "{"+gemma+"}").Traits.AttnSoftCap)
}
