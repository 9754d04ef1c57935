package quant_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/models/quant"
	"github.com/stretchr/testify/require"
)

// TestConfigurationsOfTodaysPackages puts what newer packages write around the same tensors into fixtures' config.json.
func TestConfigurationsOfTodaysPackages(t *testing.T) {
	const autoRound = `"amp": false, "autoround_version": "0.16.1", "data_type": "int", "enable_quanted_input": false, ` +
		`"provider": "auto-round", `
	const down = "model.layers.0.mlp.down_proj.weight"
	for _, c := range []struct{ what, fixture, old, new, want string }{
		{"auto-round 0.16.1, auto_gptq", "gptq_i4g32", `"bits": 4`, autoRound + `"bits": 4`, "i4g32 with f16 scales"},
		{"auto-round 0.16.1, auto_round", "gptq_i4g32", `"quant_method": "gptq"`,
			autoRound + `"packing_format": "auto_round:auto_gptq", "quant_method": "auto-round"`, "i4g32 with f16 scales"},
		{"auto-round 0.16.1, auto_awq", "awq_i4g32", `"bits": 4`, autoRound + `"sym": false, "bits": 4`,
			"i4g32 with f16 scales, zero points"},
		{"gptqmodel 7.7.0, AWQ", "awq_i4g32", `"bits": 4`, `"bits": 4, "desc_act": false, "lm_head": false, "method": "awq",
			"format": "gemm", "checkpoint_format": "gemm", "pack_dtype": "int32", "meta": {"quantizer": []}`,
			"i4g32 with f16 scales, zero points"},
		{"auto-round 0.16.1, auto_awq, symmetric", "awq_i4g32", `"zero_point": true`, `"zero_point": false`,
			"i4g32 with f16 scales"},
	} {
		files := load(t, "testdata/"+c.fixture)
		text := string(files["config.json"].Data)
		require.Contains(t, text, c.old, c.what)
		files["config.json"].Data = []byte(strings.Replace(text, c.old, c.new, 1))
		if strings.HasSuffix(c.what, "symmetric") {
			for _, of := range strings.Fields("mlp.down mlp.gate mlp.up self_attn.k self_attn.o self_attn.q self_attn.v") {
				patch(t, files["model.safetensors"].Data, "model.layers.0."+of+"_proj.qzeros",
					func(b []byte) { copy(b, bytes.Repeat([]byte{0x88}, len(b))) })
			}
		}
		opened, err := quant.OpenFS(files)
		require.NoError(t, err, c.what)
		require.Equal(t, c.want, opened.Matrix(down).Format.String(), c.what)
		require.NoError(t, opened.Close())
	}
}

// TestOnlyTheCacheIsQuantised has what llm-compressor 0.14.0.1 writes for a recipe of a kv_cache_scheme alone.
func TestOnlyTheCacheIsQuantised(t *testing.T) {
	files := load(t, "testdata/ct_i4g32")
	files["config.json"].Data = []byte(`{"quantization_config": {"config_groups": {}, "format": "dense", "ignore": [],
		"kv_cache_scheme": {"num_bits": 8, "type": "float"}, "quant_method": "compressed-tensors"}}`)
	requireRefused(t, files, `found I32 of a quantised weight, want BF16, F16 or F32 in `)
	files["config.json"].Data = bytes.Replace(files["config.json"].Data, []byte(`{"num_bits": 8, "type": "float"}`),
		[]byte("null"), 1)
	requireRefused(t, files, `quantization_config.config_groups: found {}, want at least one group`)
}
