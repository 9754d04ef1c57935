package quant_test

import (
	"bytes"
	"testing"
	"testing/fstest"

	"github.com/mkgen/mkgen/models/quant"
	"github.com/stretchr/testify/require"
)

// TestAutoFP8 reads AutoFP8's names: the package is in no registry, so what transformers wrote is renamed. A scale of a
// tensor is called weight_scale there, and modules that stay as they are ignored_layers.
func TestAutoFP8(t *testing.T) {
	files := load(t, "testdata/fp8_tensor")
	want := open(t, "testdata/fp8_tensor")
	data := files["model.safetensors"].Data
	require.Contains(t, string(data), `weight_scale_inv"`)
	// as long: JSON allows the spaces
	renamed := bytes.ReplaceAll(data, []byte(`weight_scale_inv"`), []byte(`weight_scale"    `))
	config := `{"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}}`
	c, err := quant.OpenFS(fstest.MapFS{"config.json": {Data: []byte(config)}, "model.safetensors": {Data: renamed}})
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, want.Names(), c.Names())
	quantised := 0
	for _, name := range c.Names() {
		require.Equal(t, want.Matrix(name).Format, c.Matrix(name).Format)
		require.Equal(t, rows(t, want.Matrix(name)), rows(t, c.Matrix(name)), name)
		if c.Matrix(name).Format.Quantised() {
			quantised++
		}
	}
	require.Equal(t, 7, quantised)
	require.Equal(t, []string{"inputs of products in 8-bit floats"}, c.LeftOut())

	listed := bytes.ReplaceAll([]byte(config), []byte(`["lm_head"]`), []byte(`["lm_head", "model.layers.0.mlp.up_proj"]`))
	_, err = quant.OpenFS(fstest.MapFS{"config.json": {Data: listed}, "model.safetensors": {Data: renamed}})
	require.ErrorContains(t, err,
		"model.layers.0.mlp.up_proj.weight: found F8_E4M3 of a quantised weight, want BF16, F16 or F32")
}
