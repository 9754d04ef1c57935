package models

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A family may call shared fields otherwise; messages name them as the file does.
func TestAFamilysOwnNamesOfSharedFields(t *testing.T) {
	exaone := Family{Name: "exaone", Title: "EXAONE 3", Class: "ExaoneForCausalLM",
		Fields: map[string]string{"num_hidden_layers": "num_layers", "rms_norm_eps": "layer_norm_epsilon"},
		Read:   func(f *Fields, c *Config) { c.Traits.Act = f.Activation("activation_function") }}
	parse := func(fields string) (Config, error) {
		return Reading{Families: []Family{exaone}}.Parse(strings.NewReader(`{"model_type": "exaone",
			"architectures": ["ExaoneForCausalLM"], "activation_function": "silu", "embed_dropout": 0.0, "hidden_size": 64,
			"intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 320, "max_position_embeddings": 128` + fields + `}`))
	}
	for _, fields := range []string{`, "num_layers": 3, "layer_norm_epsilon": 1e-5`,
		`, "num_hidden_layers": 3, "layer_norm_epsilon": 1e-5`} {
		c, err := parse(fields)
		require.NoError(t, err)
		require.Equal(t, 3, c.Layers)
		require.InDelta(t, 1e-5, c.NormEps, 0)
	}
	for fields, want := range map[string]string{
		`, "layer_norm_epsilon": 1e-5`:                                              "num_layers: found nothing",
		`, "num_layers": 0, "layer_norm_epsilon": 1e-5`:                             "num_layers: found 0",
		`, "num_layers": 3, "num_hidden_layers": 3, "layer_norm_epsilon": 1e-5`:     "num_hidden_layers: found 3",
		`, "num_layers": 3, "layer_norm_epsilon": 1e-5, "rms_norm_eps": 1e-6`:       "rms_norm_eps: found 1e-6",
		`, "num_layers": 3, "layer_norm_epsilon": "small", "tie_word_embeddings":1`: "layer_norm_epsilon: found \"small\"",
	} {
		_, err := parse(fields)
		require.ErrorContains(t, err, want)
	}
}
