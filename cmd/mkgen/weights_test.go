package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/tests/enginecases"
	"github.com/stretchr/testify/require"
)

// Weights that are rounded are told of in one line, by what the tensors are: config.json may not say it.
func TestRoundedWeightsAreTold(t *testing.T) {
	for dir, want := range map[string]string{
		"single_bf16":   "",
		"sharded_f16":   "The checkpoint's weights are float16; they are rounded to bfloat16.",
		"single_f32":    "Some of the checkpoint's weights are float16 and float32; they are rounded to bfloat16.",
		"tied_head_f32": "The checkpoint's weights are float32; they are rounded to bfloat16.",
	} {
		c, err := checkpoint.Open("../../models/checkpoint/testdata/" + dir)
		require.NoError(t, err)
		require.Equal(t, want, rounding(c), dir)
		require.NoError(t, c.Close())
	}

	dir := t.TempDir()
	data, err := os.ReadFile("../../models/checkpoint/testdata/single_f32/model.safetensors")
	require.NoError(t, err)
	config, err := os.ReadFile("../../models/checkpoint/testdata/single_f32/config.json")
	require.NoError(t, err)
	silent := regexp.MustCompile(`"dtype": "float32",`).ReplaceAll(config, nil)
	require.NotEqual(t, config, silent)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), silent, 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), data, 0o666))
	_, _, stderr := mkgen("run", "--checkpoint", dir, "--device", "sim", "--max-tokens", "1", "1 2")
	require.Contains(t, stderr,
		"Some of the checkpoint's weights are float16 and float32; they are rounded to bfloat16.\n")

	// A benchmark tells of it, too. As binary16 the bits of bf16 are other weights.
	dir = t.TempDir()
	require.NoError(t, enginecases.WriteCheckpoint(dir, 5))
	path := filepath.Join(dir, "model.safetensors")
	data, err = os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.ReplaceAll(data, []byte(`"BF16"`), []byte(`"F16" `)), 0o666))
	_, _, stderr = mkgen("bench", "--checkpoint", dir, "--device", "sim", "--cases", filepath.Join(dir, "x.json"))
	require.Contains(t, stderr, "The checkpoint's weights are float16; they are rounded to bfloat16.\n")
}

// A chat template that is missing or broken ends run --chat before the weights are loaded; serve, which
// has completions too, says what it will refuse.
func TestAChatTemplateIsLookedAtBeforeTheWeights(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, enginecases.WriteCheckpoint(dir, 5))
	for content, want := range map[string]string{
		`{"bos_token": "<s>", "eos_token": "</s>"}`:                               "no chat template",
		`{"bos_token": "<s>", "eos_token": "</s>", "chat_template": "{% for %}"}`: "chat template",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(content), 0o666))
		code, stdout, stderr := mkgen("run", "--checkpoint", dir, "--device", "sim", "--chat", "-v", "hi")
		require.Equal(t, []any{1, ""}, []any{code, stdout})
		require.Regexp(t, `^mkgen: --chat: .*`+want+`.*\n$`, stderr, "and nothing of loading")
		// --pin-split is refused with the kernel, before anything is loaded.
		code, _, stderr = mkgen("serve", "--checkpoint", dir, "--listen", "127.0.0.1:0", "--device", "sim", "--pin-split",
			"1")
		require.Equal(t, 2, code)
		require.Regexp(t, `^mkgen: /v1/chat/completions will be refused: .*`+want+`.*\n`, stderr)
	}
}

// Tensors show that a checkpoint is quantised, too, where its config.json does not say so any more.
func TestQuantisedTensorsWithoutAConfigurationAreTold(t *testing.T) {
	for fixture, tensor := range map[string]string{"ct_i4g32": "weight_packed", "gptq_i4g32": "qweight",
		"fp8_block_exponents": "weight"} {
		for _, config := range []string{"", `, "quantization_config": null`, `, "quantization_config": {}`} {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS("../../models/quant/testdata/"+fixture)))
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "quantize_config.json"))) // GPTQ's, which would serve
			path := filepath.Join(dir, "config.json")
			var fields map[string]any
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(text, &fields))
			delete(fields, "quantization_config")
			text, err = json.Marshal(fields)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, []byte(strings.TrimSuffix(string(text), "}")+config+"}"), 0o644))
			code, _, stderr := mkgen("run", "--checkpoint", dir, "--max-tokens", "1", "1 2")
			require.Equal(t, 1, code, "%s %s %s", fixture, config, stderr)
			require.Regexp(t, `^mkgen: checkpoint \S+: model.safetensors: model\.\S+\.`+tensor+`: found \S+ of a quantised weight, `+
				`want a quantization_config in config.json, which says what it means\n$`, stderr, fixture+config)
		}
	}
}
