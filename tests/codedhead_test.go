package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/quant"
	"github.com/mkgen/mkgen/models/quantise"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tests/enginecases"
	"github.com/stretchr/testify/require"
)

const untiedConfig = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
"num_hidden_layers": 1, "hidden_size": 128, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
"head_dim": 32, "vocab_size": 77, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000,
"tie_word_embeddings": false, "torch_dtype": "bfloat16"}`

// An LM head that mkgen quantize wrote is packed with its own codes and scales, whatever form the layers have, and the
// kernel of one row is right with them. Without its codes the head is widened.
func TestCodesOfTheHeadAreTheCheckpoints(t *testing.T) {
	from := t.TempDir()
	config, err := models.Parse(strings.NewReader(untiedConfig))
	require.NoError(t, err)
	require.NoError(t, enginecases.WriteTensors(from, config, 1))
	require.NoError(t, os.WriteFile(filepath.Join(from, "config.json"), []byte(untiedConfig), 0o666))
	for _, format := range []pipeline.Format{pipeline.FormatI8, pipeline.FormatE4M3, pipeline.FormatI4G32} {
		of, err := quantise.Parse(string(format))
		require.NoError(t, err)
		out := filepath.Join(t.TempDir(), string(format))
		_, err = quantise.Checkpoint(t.Context(), from, out, quantise.Options{Format: of, Head: true})
		require.NoError(t, err)
		m, err := quant.OpenModel(out, models.Reading{})
		require.NoError(t, err)
		c, why := m.Coded()
		require.NotNil(t, c, why)
		c.Head, why = m.CodedHead()
		require.NotNil(t, c.Head, why)
		mk, err := megakernel.Build(m.Config(), megakernel.Options{SMs: 2, Consumers: 2, Weights: format, Head: format})
		require.NoError(t, err)
		image, head := make([]byte, mk.Plan.FinalBytes), &mk.Plan.Final[0]
		require.NoError(t, mk.PackLayer(image, pipeline.FinalLayer, c))
		holdsRows(t, mk, m, c.Head, pipeline.FinalLayer, len(mk.Plan.Layer), head, image, string(format))
		runsRightOn(t, mk, c, m.Config(), string(format))
		require.NoError(t, m.Close())
	}
}
