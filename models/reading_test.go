package models

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnknownFieldsMayBePassedOverByName(t *testing.T) {
	text := changed(t, [][2]string{{"frobnicate", "3"}, {"clip_qkv", "8"}})
	_, err := Reading{Ignore: []string{"frobnicate", "clip_qkv"}}.Parse(strings.NewReader(text))
	require.EqualError(t, err, "clip_qkv: found 8, want null; clipping is not supported",
		"a field that is known to matter is not passed over")
	text = changed(t, [][2]string{{"frobnicate", "3"}})
	_, err = Parse(strings.NewReader(text))
	require.ErrorContains(t, err, "go on with --ignore-field frobnicate")
	got, err := Reading{Ignore: []string{"frobnicate"}}.Parse(strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, parsed(t), got)
}

func TestNamesToBePassedOverAreFieldsOfTheFile(t *testing.T) {
	text := changed(t, [][2]string{{"frobnicate", "3"}, {"quantization_config", "{}"}, {"pad_token_id", "null"}})
	for _, c := range []struct {
		text   string
		ignore []string
		want   string
	}{
		{text, []string{"frobnicate"}, ""},
		{text, []string{"frobnicate", "quantization_config", "pad_token_id", "hidden_size"}, ""},
		{text, []string{"nosuch", "neither"}, `--ignore-field: found "neither", want a field of the file`},
		{text, []string{"nosuch", "frobnicate"}, `--ignore-field: found "nosuch", want a field of the file`},
		{`{"model_type": "llava", "projector": 1, "text_config": ` + text + "}", []string{"frobnicate", "projector"}, ""},
		{`{"model_type": "llava", "text_config": ` + text + "}", []string{"projector"},
			`--ignore-field: found "projector", want a field of the file`},
	} {
		_, _, err := Reading{Ignore: c.ignore}.ParseQuantised(strings.NewReader(c.text))
		if c.want == "" {
			require.NoError(t, err, c.ignore)
			continue
		}
		require.ErrorContains(t, err, c.want, c.ignore)
	}
}

func TestTextPartTakesWhatSurroundsIt(t *testing.T) {
	tiny := changed(t, [][2]string{{"eos_token_id", ""}, {"torch_dtype", ""}})
	c, err := Parse(strings.NewReader(
		`{"model_type": "llava", "vision_config": {}, "eos_token_id": [5, 6], "torch_dtype": "float16", "tie_word_embeddings": false, "text_config": ` + tiny + "}"))
	require.NoError(t, err)
	require.True(t, c.TextPart)
	require.Equal(t, []int{5, 6}, c.EOS)
	require.Equal(t, F16, c.CheckpointDType)
	want := parsed(t)
	want.TextPart, want.EOS, want.CheckpointDType, want.TieEmbeddings = true, c.EOS, F16, false
	require.Equal(t, want, c)
}

// The published file of gemma-3-4b-it relies on the defaults of Gemma3TextConfig for most of its fields.
func TestTextPartOfGemma3HasItsFamilysDefaults(t *testing.T) {
	c, err := Parse(strings.NewReader(
		`{"architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eos_token_id": [1, 106],
		"model_type": "gemma3", "torch_dtype": "bfloat16", "mm_tokens_per_image": 256, "vision_config": {"hidden_size": 1152},
		"text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
			"rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}}`))
	require.NoError(t, err)
	require.EqualValues(t, 3_880_263_168, c.ParamCount())
	a := c.Arch()
	require.Equal(t, 1024, a.Layer(0).Attn.Window)
	require.Equal(t, 10000.0, a.Layer(0).Attn.Rope.Theta)
	require.Nil(t, a.Layer(0).Attn.Rope.Scaling)
	require.Zero(t, a.Layer(5).Attn.Window)
	require.Equal(t, 1e6, a.Layer(5).Attn.Rope.Theta)
	require.Equal(t, 8.0, a.Layer(5).Attn.Rope.Scaling.Factor)
}

func TestLayersOfOneKindHaveNoKinds(t *testing.T) {
	c := tiny()
	c.Windows(0, func(int) bool { return true })
	require.Equal(t, tiny(), c)
	c.Layers = 6
	c.Windows(8, func(l int) bool { return l%3 != 2 })
	require.Equal(t, []Kind{{Window: 8}, {}}, c.Traits.Kinds)
	require.Equal(t, []int{0, 0, 1}, c.Traits.Pattern)
	c.Windows(8, func(int) bool { return true })
	require.Equal(t, []int{0}, c.Traits.Pattern)
}

// Published files carry fields that transformers does not read: Falcon 3 names its activation twice, Gemma 2 its
// window.
func TestFieldsThatTransformersDoesNotReadChangeNothing(t *testing.T) {
	for name, field := range map[string]string{"falcon3-7b": `"activation": "swiglu"`,
		"gemma-2-9b": `"sliding_window_size": 4096`} {
		text := string(lines()[name])
		c, err := Parse(strings.NewReader(strings.TrimSuffix(text, "}") + ", " + field + "}"))
		require.NoError(t, err, name)
		c.Name = name
		want, err := Lookup(name)
		require.NoError(t, err)
		require.Equal(t, want, c)
	}
}

func TestTextPartMaySayHowItIsQuantised(t *testing.T) {
	tiny := changed(t, [][2]string{{"quantization_config", `{"quant_method": "gptq"}`}})
	whole := `{"model_type": "llava", "text_config": ` + tiny + "}"
	c, quantised, err := Reading{}.ParseQuantised(strings.NewReader(whole))
	require.NoError(t, err)
	require.True(t, quantised && c.TextPart)
	_, err = Parse(strings.NewReader(whole))
	require.ErrorContains(t, err, "quantization_config")
}
