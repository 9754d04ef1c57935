package models

import "encoding/json"

// smolLM3 is SmolLM 3: Llama where every fourth layer has no rotary embedding (transformers: modeling_smollm3.py).
// no_rope_layers holds 1 for the layers that have one.
func smolLM3() Family {
	return Family{
		Name: "smollm3", Title: "SmolLM 3", Class: "SmolLM3ForCausalLM",
		Defaults: `{"bos_token_id": 128000, "eos_token_id": 128001, "tie_word_embeddings": true, "no_rope_layer_interval": 4,
			"rope_theta": 2000000}`,
		Read: func(f *Fields, c *Config) {
			c.Traits.Act = f.Activation("hidden_act")
			f.Biases(c, "attention_bias")
			c.Traits.MLPBias = f.Bool("mlp_bias")
			every := f.Integer("no_rope_layer_interval", 1, MaxLayers)
			rotated := f.flags("no_rope_layers", c.Layers, "0 or 1 each", func(entry any) (bool, bool) {
				return entry == json.Number("1"), entry == json.Number("1") || entry == json.Number("0")
			})
			hasRope := func(l int) bool {
				if rotated != nil {
					return rotated[l]
				}
				return (l+1)%every != 0
			}
			window := f.Window("sliding_window", c)
			if !f.Bool("use_sliding_window") {
				window = 0
			}
			f.Pass("max_window_layers") // no layer asks for it
			sliding := f.Sliding(c, func(l int) bool { return !hasRope(l) })
			c.LayerKinds(func(l int) Kind {
				k := Kind{NoRope: !hasRope(l)}
				if sliding(l) {
					k.Window = window
				}
				return k
			})
		},
	}
}
