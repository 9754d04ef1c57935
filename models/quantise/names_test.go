package quantise

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Families call the matrices of a layer otherwise than Llama; routers, embeddings and norms are none of them.
func TestMatricesOfLayersAreFoundUnderEveryFamilysNames(t *testing.T) {
	for module, want := range map[string]bool{
		"model.layers.0.self_attn.q_proj": true, "model.layers.11.self_attn.qkv_proj": true,
		"language_model.model.layers.3.mlp.down_proj": true,
		"model.layers.0.attention.wqkv":               true, "model.layers.7.feed_forward.w2": true,
		"model.layers.2.shared_mlp.input_linear": true,
		"model.layers.0.input_layernorm":         false, "model.layers.0.mlp.gate": false, "lm_head": false, "output": false,
		"vision_model.encoder.layers.3.mlp.fc1": false, "model.tok_embeddings": false, "layers.": false, "layers.5": false,
	} {
		require.Equal(t, want, ofLayer(module), module)
	}
}
