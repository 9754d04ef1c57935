package quant_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mkgen/mkgen/models/quant"
	"github.com/stretchr/testify/require"
)

// TestRefusedConfigurations replaces a text of a fixture's config.json, once, and wants the error that begins a line.
func TestRefusedConfigurations(t *testing.T) {
	for _, c := range []struct{ fixture, old, new, want string }{
		{"gptq_i4g32", `"quant_method": "gptq"`, `"quant_method": "bitsandbytes"`,
			`quantization_config.quant_method: found "bitsandbytes", want "gptq", "awq", "compressed-tensors", "fp8" or "modelopt"; load it with transformers`},
		{"gptq_i4g32", `"quant_method": "gptq"`, `"quant_method": "gguf"`,
			`quantization_config.quant_method: found "gguf", want `},
		{"gptq_i4g32", `"quant_method": "gptq"`, `"quant_method": "torchao"`,
			`quantization_config.quant_method: found "torchao", want "gptq", "awq", "compressed-tensors", "fp8" or "modelopt"; quantise the model that it was made from with one of these`},
		{"gptq_i4g32", `"quant_method": "gptq"`, `"quant_method": 7`,
			`quantization_config.quant_method: found 7, want a string`},
		{"gptq_i4g32", `"bits": 4`, `"bits": 3`, `quantization_config.bits: found 3, want 4 or 8`},
		{"gptq_i4g32", `"bits": 4`, `"bits": "four"`, `quantization_config.bits: found "four", want an integer`},
		{"gptq_i4g32", `"bits": 4`, `"bits": 4, "bits": 8`, `quantization_config.bits: found it twice, want each name once`},
		{"gptq_i4g32", `"bits": 4`, `"bits": 4, "tilt": 1`,
			`quantization_config.tilt: found 1, want no such field; it is not known what it changes`},
		{"gptq_i4g32", `"bits": 4`, `"bits": 4, "rotation": "hadamard"`,
			`quantization_config.rotation: found "hadamard", want nothing or {}; it changes what a product computes`},
		{"gptq_i4g32", `"group_size": 32`, `"group_size": 0`,
			`quantization_config.group_size: found 0, want -1 or 1 to 2^20 columns`},
		{"gptq_i4g32", `"group_size": 32`, `"group_size": 1000000000`,
			`quantization_config.group_size: found 1000000000, want -1 or 1 to 2^20 columns`},
		{"awq_i4g32", `"group_size": 32`, `"q_group_size": -2`,
			`quantization_config.q_group_size: found -2, want -1 or 1 to 2^20 columns`},
		{"ct_i4g32", `"group_size": 32`, `"group_size": 1000000000`,
			`quantization_config.config_groups.group_0.weights.group_size: found 1000000000, want 1 to 2^20 columns`},
		{"ct_mxfp4", `"group_size": 32`, `"group_size": 16`,
			`quantization_config.config_groups.group_0.weights.group_size: found 16, want 32; format is mxfp4-pack-quantized`},
		{"ct_mxfp4", `"type": "float"`, `"type": "int"`,
			`quantization_config.config_groups.group_0.weights.type: found "int", want "float"; format is mxfp4-pack-quantized`},
		{"gptq_i4g32", `"checkpoint_format": "gptq"`, `"checkpoint_format": "marlin"`,
			`quantization_config.checkpoint_format: found "marlin", want "gptq" or "gptq_v2"; it is packed for one kernel`},
		{"gptq_i4g32", `"pack_dtype": "int32"`, `"pack_dtype": "int16"`,
			`quantization_config.pack_dtype: found "int16", want nothing or "int32"`},
		{"gptq_dynamic", `-:.*\\.k_proj`, `-:(?!x)`,
			`quantization_config.dynamic: found "-:(?!x)", want a pattern without look-ahead, look-behind, back references and counted repetitions; they are not supported: list the modules`},
		{"gptq_dynamic", `-:.*\\.k_proj`, `x{1000}`,
			`quantization_config.dynamic: found "x{1000}", want a pattern without look-ahead`},
		{"gptq_dynamic", `-:.*\\.k_proj`, `+:(`,
			`quantization_config.dynamic: found "+:(", want a regular expression; missing closing )`},
		{"fp8_block_sharded", `"lm_head"`, `"(", "*proj"`,
			`quantization_config.modules_to_not_convert: found "(", want a regular expression; missing closing )` + "\n" +
				`quantization_config.modules_to_not_convert: found "*proj", want a regular expression; missing argument to repetition operator`},
		{"ct_i4g32", `"lm_head"`, `"re:[` + strings.Repeat("x", 200) + `"`,
			`quantization_config.ignore: found "re:[` + strings.Repeat("x", 76) + `...", want a regular expression; missing closing ]`},
		{"ct_i4g32", `"lm_head"`, `"re:[[:alpha:]]"`,
			`quantization_config.ignore: found "re:[[:alpha:]]", want a pattern without [:class:], \p, \Q, \z and \C; they mean something else in Python`},
		{"gptq_dynamic", `"bits": 8`, `"bits": 2`,
			`quantization_config.dynamic.+:.*\\.(gate|up)_proj.bits: found 2, want 4 or 8`},
		{"gptq_dynamic", `-:.*\\.k_proj`, `-:.*\\.q_proj`,
			`model.safetensors: model.layers.0.self_attn.q_proj.qweight: found I32 of a quantised weight, want BF16, F16 or F32 in model.layers.0.self_attn.q_proj.weight; dynamic excludes the module`},
		{"awq_i4g32", `"gemm"`, `"gemv"`,
			`quantization_config.version: found "gemv", want "gemm"; it is packed for another kernel`},
		{"awq_i4g32", `"zero_point": true`, `"zero_point": false`,
			`model.layers.0.mlp.down_proj.qzeros: found a zero point of -3 from the middle (row 0, group 0), want 0; zero_point is false`},
		{"awq_i4g32", `"version": "gemm"`, `"version": "gemm", "checkpoint_format": "gemv_fast"`,
			`quantization_config.checkpoint_format: found "gemv_fast", want "gemm"; it is packed for another kernel`},
		{"awq_i4g32", `"bits": 4`, `"bits": 4, "dynamic": {"-:.*k_proj": {}}`,
			`quantization_config.dynamic: found {"-:.*k_proj": {}}, want nothing or {}; rules for single modules`},
		{"gptq_i4g32", `"quant_method": "gptq"`, `"quant_method": "auto-round", "packing_format": "auto_round:marlin"`,
			`quantization_config.quant_method: found "auto-round", want "gptq", "awq"`},
		{"gptq_i4g32", `"bits": 4`, `"bits": 4, "data_type": "fp"`,
			`quantization_config.data_type: found "fp", want nothing or "int"`},
		{"awq_i4g32", `"modules_to_not_convert": null`, `"modules_to_not_convert": ["mlp.up"]`,
			`model.safetensors: model.layers.0.mlp.up_proj.qweight: found I32 of a quantised weight`},
		{"awq_i4g32", `"bits": 4`, `"bits": 8`, `quantization_config.bits: found 8, want 4`},
		{"ct_i4g32", `"num_bits": 4`, `"num_bits": 2`,
			`quantization_config.config_groups.group_0.weights.num_bits: found 2, want 4 or 8; format is pack-quantized`},
		{"ct_i4g32", `"format": "pack-quantized"`, `"format": "marlin-24"`,
			`quantization_config.config_groups.group_0.format: found "marlin-24", want pack-quantized, int-quantized`},
		{"ct_i4g32", `"transform_config": {}`, `"transform_config": {"R1": {}}`,
			`quantization_config.transform_config: found {"R1": {}}, want nothing or {}; rotated inputs are not supported`},
		{"ct_i4g32", `"sparsity_config": {}`, `"sparsity_config": {"format": "sparse-24-bitmask"}`,
			`quantization_config.sparsity_config.format: found "sparse-24-bitmask", want nothing or "dense"; sparse weights`},
		{"ct_i4g32", `"output_activations": null`, `"output_activations": {"num_bits": 8}`,
			`quantization_config.config_groups.group_0.output_activations: found {"num_bits": 8}, want nothing; quantised outputs`},
		{"ct_i4g32", `"Linear"`, `"re:.*up_proj"`,
			`model.safetensors: model.layers.0.mlp.down_proj.weight_packed: found I32 of a quantised weight, want BF16, F16 or F32 in model.layers.0.mlp.down_proj.weight; no group of config_groups has it as target`},
		{"ct_i4g32", `"lm_head"`, `"re:.*mlp.up_proj$"`,
			`model.safetensors: model.layers.0.mlp.up_proj.weight_packed: found I32 of a quantised weight, want BF16, F16 or F32 in model.layers.0.mlp.up_proj.weight; ignore lists it`},
		{"ct_i4g32", `"group_size": 32`, `"group_size": 48`,
			`model.safetensors: model.layers.0.mlp.gate_proj.weight_scale: found groups of 48 columns, want a divisor of the 64 columns`},
		{"ct_i4g32", `"group_size": 32`, `"group_size": 16`,
			`model.safetensors: model.layers.0.mlp.down_proj.weight_scale: found shape [64, 3], want [64, 6]`},
		{"ct_i4g32", `"symmetric": true`, `"symmetric": false`,
			`model.layers.0.mlp.down_proj.weight_zero_point: found nothing, want it; model.layers.0.mlp.down_proj is quantised: there is weight_packed`},
		{"ct_i4g32", `"type": "int"`, `"type": "complex"`,
			`quantization_config.config_groups.group_0.weights.type: found "complex", want "int" or "float"`},
		{"ct_i4g32", `"symmetric": true,`, `"symmetric": true, "width": 3,`,
			`quantization_config.config_groups.group_0.weights.width: found 3, want no such field`},
		{"ct_nvfp4", `"group_size": 16`, `"group_size": 32`,
			`quantization_config.config_groups.group_0.weights.group_size: found 32, want 16; format is nvfp4-pack-quantized`},
		{"ct_nvfp4", `"strategy": "tensor_group"`, `"strategy": "group"`,
			`quantization_config.config_groups.group_0.weights.strategy: found "group", want "tensor_group"; format is nvfp4-pack-quantized`},
		{"fp8_block_sharded", `"scale_fmt": "float"`, `"scale_fmt": "float", "fmt": "e5m2"`,
			`quantization_config.fmt: found "e5m2", want nothing or "e4m3"`},
		{"fp8_block_sharded", `"scale_fmt": "float"`, `"bits": 8, "sym": true, "weight_scale_semantics": "inverse"`,
			`checkpoint: quantization_config.weight_scale_semantics: found "inverse", want no such field; GPTQModel's own`},
		{"fp8_block_sharded", "128,\n      128", "128",
			`quantization_config.weight_block_size: found [ 128 ], want a list of two positive integers`},
		{"fp8_block_sharded", "128,\n      128", "64, 128",
			`model.layers.0.mlp.down_proj.weight_scale_inv: found shape [1, 1], want [2, 1]`},
		{"fp8_block_sharded", `"lm_head"`, `"model.*.mlp"`,
			`model.layers.0.mlp.up_proj.weight: found F8_E4M3 of a quantised weight, want BF16, F16 or F32 in model.layers.0.mlp.up_proj.weight; modules_to_not_convert lists it`},
		{"modelopt_nvfp4", `"quant_algo": "NVFP4"`, `"quant_algo": "NVFP4_AWQ"`,
			`quantization_config.quant_algo: found "NVFP4_AWQ", want "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4" or "W4A16_NVFP4"`},
		{"modelopt_nvfp4", `"lm_head"`, `"model.layers.0.mlp*"`,
			`model.layers.0.mlp.up_proj.weight: found U8 of a quantised weight`},
	} {
		files := load(t, "testdata/"+c.fixture)
		text := string(files["config.json"].Data)
		require.Contains(t, text, c.old, c.fixture)
		files["config.json"].Data = []byte(strings.Replace(text, c.old, c.new, 1))
		if strings.Contains(c.old, `"checkpoint_format"`) {
			files["config.json"].Data = []byte(strings.Replace(string(files["config.json"].Data), `"format": "gptq"`,
				`"format": null`, 1))
		}
		requireRefused(t, files, c.want)
	}
}

// TestOneFieldIsRefusedOnce: what follows from a value of another type is not told, too.
func TestOneFieldIsRefusedOnce(t *testing.T) {
	for _, c := range []struct{ config, want string }{
		{`"quant_method": "gptq", "bits": "4"`, `quantization_config.bits: found "4", want an integer`},
		{`"quant_method": "gptq", "bits": 4.0`, `quantization_config.bits: found 4.0, want an integer`},
		{`"quant_method": 7`, `quantization_config.quant_method: found 7, want a string`},
		{`"quant_method": "compressed-tensors", "config_groups": []`,
			`quantization_config.config_groups: found [], want an object of UTF-8 text`},
		{`"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"a": {"targets": ["Linear"],
			"weights": {"type": "float", "strategy": "block", "block_structure": 128}}}`,
			`quantization_config.config_groups.a.weights.block_structure: found 128, want a list of two positive integers`},
	} {
		files := load(t, "testdata/ct_e4m3_block")
		files["config.json"].Data = []byte(`{"quantization_config": {` + c.config + `}}`)
		_, err := quant.OpenFS(files)
		require.EqualError(t, err, "checkpoint: "+c.want)
	}
}

func requireRefused(t *testing.T, files fstest.MapFS, want string) {
	t.Helper()
	c, err := quant.OpenFS(files)
	if err == nil {
		require.NoError(t, c.Close())
	}
	require.ErrorContains(t, err, want, "want: %s", want)
}

// TestRefusedTensors replaces a text of a fixture's header by one as long.
func TestRefusedTensors(t *testing.T) {
	for _, c := range []struct{ fixture, old, new, want string }{
		{"gptq_i4g32", "o_proj.qzeros", "o_proj.qzeroz",
			`model.layers.0.self_attn.o_proj.qzeros: found nothing, want it; model.layers.0.self_attn.o_proj is quantised: there is qweight`},
		{"gptq_i4g32", "o_proj.qweight", "o_proj.qbitsss", `model.layers.0.self_attn.o_proj.qweight: found nothing, want it`},
		{"gptq_i4g32", "self_attn.o_proj.g_idx", "self_attn.o_proj.g_odd",
			`model.layers.0.self_attn.o_proj.g_odd: found dtype I32, want BF16, F16 or F32; only the weights of linear layers are read quantised`},
		{"ct_nvfp4", "o_proj.weight_global_scale", "o_proj.weight_globallscale",
			`model.layers.0.self_attn.o_proj.weight_global_scale: found nothing, want it`},
		{"fp8_block_exponents", "up_proj.weight_scale_inv", "up_proj.weight_scale_odd",
			`model.layers.0.mlp.up_proj.weight_scale_inv: found nothing, want it; model.layers.0.mlp.up_proj is quantised: there is weight`},
		{"ct_i4g32", "model.embed_tokens.weight", "model.embed_tokens.absmax",
			`model.embed_tokens.weight_packed: found nothing, want it; model.embed_tokens is quantised: there is absmax`},
	} {
		require.Len(t, c.new, len(c.old))
		files := load(t, "testdata/"+c.fixture)
		data := files["model.safetensors"].Data
		require.Equal(t, 1, bytes.Count(data, []byte(c.old)), c.old)
		files["model.safetensors"].Data = bytes.Replace(data, []byte(c.old), []byte(c.new), 1)
		requireRefused(t, files, c.want)
	}
}

// patch changes the data of one tensor of a file.
func patch(t *testing.T, content []byte, tensor string, change func(data []byte)) {
	n := binary.LittleEndian.Uint64(content)
	header := map[string]struct {
		Offsets [2]int `json:"data_offsets"`
	}{}
	require.NoError(t, json.Unmarshal(content[8:8+n], &header))
	entry, ok := header[tensor]
	require.True(t, ok, tensor)
	change(content[8+int(n):][entry.Offsets[0]:entry.Offsets[1]])
}

// TestRefusedData changes the small tensors that Open reads.
func TestRefusedData(t *testing.T) {
	const up = "model.layers.0.mlp.up_proj."
	for _, c := range []struct {
		fixture, tensor string
		change          func([]byte)
		want            string
	}{
		{"gptq_i8g32_zero", up + "qzeros", func(b []byte) { b[5] = 255 },
			`qzeros: found a zero point of 256 (row 5, group 0), want at most 255; the zero points overflowed when it was written: write it as gptq_v2`},
		{"gptq_i4g32", up + "qzeros", func(b []byte) { b[0] = 0x78 },
			`qzeros: found a zero point of 1 from the middle (row 0, group 0), want 0; sym is true`},
		{"gptq_i4g32", up + "g_idx", func(b []byte) { b[4] = 2 }, `g_idx: found group 2 of column 1, want 0 to 1`},
		{"gptq_i4g32", up + "g_idx", func(b []byte) { b[7] = 255 }, `g_idx: found group -16777216 of column 1, want 0 to 1`},
		{"ct_i4g32", up + "weight_shape", func(b []byte) { b[0]++ },
			`weight_shape: found [97, 64], want 96 and 57 to 64; weight_packed holds as many`},
		{"ct_i4g32", up + "weight_shape", func(b []byte) { b[15] = 255 },
			`weight_shape: found [96, -72057594037927872], want 96 and 57 to 64`},
		{"ct_i4g32_order", up + "weight_g_idx", func(b []byte) { clear(b) },
			`weight_g_idx: found no column of group 1, want columns of each group`},
		{"ct_nvfp4", up + "weight_global_scale", func(b []byte) { clear(b) },
			`weight_global_scale: found 0, want a positive number`},
		{"modelopt_nvfp4", up + "weight_scale_2", func(b []byte) { b[3] |= 0x7f; b[2] |= 0x80 }, `weight_scale_2: found `},
	} {
		files := load(t, "testdata/"+c.fixture)
		patch(t, files["model.safetensors"].Data, c.tensor, c.change)
		requireRefused(t, files, c.want)
	}
}

// TestUnsetOrderIsTheOrderOfColumns: -1 anywhere in weight_g_idx, as compressed-tensors initialises it.
func TestUnsetOrderIsTheOrderOfColumns(t *testing.T) {
	const up = "model.layers.0.mlp.up_proj."
	files := load(t, "testdata/ct_i4g32_order")
	patch(t, files["model.safetensors"].Data, up+"weight_g_idx", func(b []byte) { copy(b, "\xff\xff\xff\xff") })
	c, err := quant.OpenFS(files)
	require.NoError(t, err)
	require.Nil(t, c.Matrix(up+"weight").Groups())
	require.NotNil(t, c.Matrix("model.layers.0.mlp.gate_proj.weight").Groups())
	require.NoError(t, c.Close())
}

// TestTensorsOfOtherPackagesAreRefusedOnce: HQQ and Quanto keep no quantization_config, and many tensors of their own.
func TestTensorsOfOtherPackagesAreRefusedOnce(t *testing.T) {
	for _, c := range []struct{ leaf, want string }{
		{"weight_00.W_q", `weight_00.W_q: found I32 as HQQ writes it`},
		{"weight0._data", `weight0._data: found I32 as Quanto writes it`},
	} {
		files := load(t, "testdata/ct_i4g32")
		files["config.json"].Data = []byte("{}")
		data := files["model.safetensors"].Data
		require.Greater(t, bytes.Count(data, []byte(".weight_packed")), 1)
		files["model.safetensors"].Data = bytes.ReplaceAll(data, []byte(".weight_packed"), []byte("."+c.leaf))
		_, err := quant.OpenFS(files)
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, `want a quantization_config of "gptq", "awq", "compressed-tensors", "fp8" or "modelopt"; quantise the model`)
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestQuantisedTensorsNeedAConfiguration(t *testing.T) {
	files := load(t, "testdata/ct_i4g32")
	files["config.json"].Data = []byte("{}")
	_, err := quant.OpenFS(files)
	require.EqualError(t, err, "checkpoint: model.safetensors: model.layers.0.mlp.down_proj.weight_packed: found I32 of a "+
		"quantised weight, want a quantization_config in config.json, which says what it means", "once")
	for text, want := range map[string]string{
		"[ 1 ]":                   `checkpoint: config.json: found [ 1 ], want an object of UTF-8 text`,
		"null":                    `checkpoint: config.json: found null, want an object of UTF-8 text`,
		`{"a": "` + "\xff" + `"}`: `checkpoint: config.json: found {"a": "?"}, want an object of UTF-8 text`,
		"{":                       `checkpoint: config.json: found text that is not JSON, want an object`,
	} {
		files["config.json"].Data = []byte(text)
		requireRefused(t, files, want)
	}
	delete(files, "config.json")
	requireRefused(t, files, `config.json`)
}
