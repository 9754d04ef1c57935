package models

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func parsed(t *testing.T, edits ...[2]string) Config {
	c, err := Parse(strings.NewReader(changed(t, edits)))
	require.NoError(t, err)
	return c
}

// TestConfigFilesEqualTheRegistry reads the published files of the registered
// models, and what transformers 5 makes of them.
func TestConfigFilesEqualTheRegistry(t *testing.T) {
	for _, c := range Checked() {
		got, err := Reading{}.ParseFile(filepath.Join("testdata/configs", c.Name+".json"))
		require.NoError(t, err)
		got.Name = c.Name
		require.Equal(t, c, got)
	}
}

func TestFilesSavedByTransformers5ReadAsTheirOriginals(t *testing.T) {
	paths, err := filepath.Glob("testdata/saved_by_v5/*.json")
	require.NoError(t, err)
	require.Len(t, paths, 4)
	for _, path := range paths {
		want, err := Reading{}.ParseFile(filepath.Join("testdata/configs", filepath.Base(path)))
		require.NoError(t, err)
		got, err := Reading{}.ParseFile(path)
		require.NoError(t, err)
		require.Equal(t, want, got, path)
	}
}

func TestInstructionTunedFileDiffersOnlyInItsEndTokens(t *testing.T) {
	got, err := Reading{}.ParseFile("testdata/configs/llama3-8b-instruct.json")
	require.NoError(t, err)
	want, err := Lookup("llama3-8b")
	require.NoError(t, err)
	want.Name, want.EOS = "custom", []int{128001, 128008, 128009}
	require.Equal(t, want, got)
}

func TestFileWithoutScalingOrTheta(t *testing.T) {
	c, err := Reading{}.ParseFile("testdata/configs/llama2-7b.json")
	require.NoError(t, err)
	require.Equal(t, Rope{Theta: 10000}, c.Rope)
	require.Equal(t, 1, c.GroupSize())
	require.Equal(t, 128, c.HeadDim)
	require.Equal(t, F16, c.CheckpointDType)
	require.Equal(t, BF16, c.DType)
}

func TestAbsentFieldsTakeTheDefaultsOfTransformers(t *testing.T) {
	c := parsed(t, [][2]string{
		{"num_key_value_heads", ""}, {"head_dim", ""}, {"tie_word_embeddings", ""}, {"hidden_act", ""},
		{"rope_theta", ""}, {"rope_scaling", ""}, {"bos_token_id", ""}, {"eos_token_id", ""},
		{"torch_dtype", ""}, {"architectures", ""},
	}...)
	require.Equal(t, 6, c.KVHeads)
	require.Equal(t, 16, c.HeadDim)
	require.False(t, c.TieEmbeddings)
	require.Equal(t, Rope{Theta: 10000}, c.Rope)
	require.Equal(t, 1, c.BOS)
	require.Equal(t, []int{2}, c.EOS)
	require.Equal(t, DTypeUnstated, c.CheckpointDType)
}

func TestNullTokensMeanNone(t *testing.T) {
	c := parsed(t, [2]string{"bos_token_id", "null"}, [2]string{"eos_token_id", "null"})
	require.Equal(t, NoToken, c.BOS)
	require.Nil(t, c.EOS)
	require.Equal(t, []int{7}, parsed(t, [2]string{"eos_token_id", "7"}).EOS)
	require.Equal(t, []int{7, 5}, parsed(t, [2]string{"eos_token_id", "[7, 5]"}).EOS)
}

func TestBothNamesOfTheWeightType(t *testing.T) {
	require.Equal(t, F32, parsed(t, [2]string{"torch_dtype", `"float32"`}).CheckpointDType)
	require.Equal(t, F16, parsed(t, [2]string{"torch_dtype", ""}, [2]string{"dtype", `"float16"`}).CheckpointDType)
	require.Equal(t, BF16, parsed(t, [2]string{"dtype", `"bfloat16"`}).CheckpointDType)
}

func TestBothLayoutsOfTheRotaryEmbedding(t *testing.T) {
	const inner = `"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64`
	want := parsed(t)
	for _, edits := range [][][2]string{
		{{"rope_scaling", `{"type": "llama3", ` + inner + `}`}},
		{{"rope_scaling", `{"type": "llama3", "rope_type": "llama3", ` + inner + `}`}},
		{{"rope_scaling", `{"rope_type": "llama3", "rope_theta": 10000, ` + inner + `}`}, {"rope_theta", ""}},
		{{"rope_scaling", ""}, {"rope_parameters", `{"rope_type": "llama3", ` + inner + `}`}},
		{{"rope_scaling", ""}, {"rope_theta", ""},
			{"rope_parameters", `{"rope_type": "llama3", "rope_theta": 1e4, "partial_rotary_factor": 1.0, ` + inner + `}`}},
		{{"rope_parameters", "null"}, {"original_max_position_embeddings", "64"}},
	} {
		require.Equal(t, want, parsed(t, edits...), edits)
	}
	unscaled := want
	unscaled.Rope = Rope{Theta: 7}
	for _, text := range []string{`{"rope_theta": 7}`, `{"rope_theta": 7, "rope_type": "default"}`,
		`{"rope_theta": 7, "type": "default", "factor": null}`} {
		require.Equal(t, unscaled, parsed(t, [2]string{"rope_scaling", ""}, [2]string{"rope_theta", ""},
			[2]string{"rope_parameters", text}))
	}
}

// TestPhi3MayStateAnOriginalContextThatNothingUses: transformers writes its default, 4096, of every such model.
func TestPhi3MayStateAnOriginalContextThatNothingUses(t *testing.T) {
	phi3 := [][2]string{{"model_type", `"phi3"`}, {"architectures", `["Phi3ForCausalLM"]`}, {"rope_scaling", "null"}}
	want := parsed(t, phi3...)
	require.Nil(t, want.Rope.Scaling)
	require.Equal(t, want, parsed(t, append(phi3, [2]string{"original_max_position_embeddings", "4096"})...))
}

func TestMissingFileIsAnErrorWithItsPath(t *testing.T) {
	_, err := Reading{}.ParseFile("testdata/nowhere.json")
	require.ErrorContains(t, err, "testdata/nowhere.json")
	_, err = Reading{}.ParseFile("testdata")
	require.ErrorContains(t, err, "testdata: config: reading")
	_, err = Reading{}.ParseFile("testdata/rope_golden.json")
	require.ErrorContains(t, err, "testdata/rope_golden.json: model_type: found nothing")
}

func TestProblemsAreFieldErrors(t *testing.T) {
	_, err := Parse(strings.NewReader(changed(t, [][2]string{{"qkv_bias", "true"}, {"clip_qkv", "8"}})))
	var first *FieldError
	require.ErrorAs(t, err, &first)
	require.Equal(t, &FieldError{"qkv_bias", "true", "false", "this family has no such biases"}, first)
	require.Len(t, err.(interface{ Unwrap() []error }).Unwrap(), 2)
}
