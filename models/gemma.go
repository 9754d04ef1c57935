package models

import "math"

// gemmaNames are the names of Gemma 2's and 3's four norms of a layer.
func gemmaNames() TensorNames {
	return TensorNames{
		RolePostAttn: "model.layers.%d.post_attention_layernorm.weight",
		RolePreMLP:   "model.layers.%d.pre_feedforward_layernorm.weight",
		RolePostMLP:  "model.layers.%d.post_feedforward_layernorm.weight",
	}
}

// gemmaTraits are those of all Gemmas: factors of norms are 1 + gain, the embedding is scaled by sqrt(hidden), the MLP
// is GeGLU.
func (f *Fields) gemmaTraits(c *Config) {
	c.Traits.PlusOne = true
	c.Traits.EmbedScale = math.Sqrt(float64(c.Hidden))
	c.Traits.Act = f.Activation("hidden_activation", "hidden_act")
	f.Biases(c, "attention_bias")
}

// gemmaCaps reads what Gemma 2 and 3 share beyond that: norms around both branches, the scale of scores, the soft cap
// of logits.
func (f *Fields) gemmaCaps(c *Config) {
	c.Traits.Norms = NormsAround
	c.Traits.AttnScale = 1 / math.Sqrt(f.Positive("query_pre_attn_scalar"))
	c.Traits.LogitSoftCap = f.Positive("final_logit_softcapping")
}

// gemma is Gemma 1 and CodeGemma (transformers: modeling_gemma.py).
func gemma() Family {
	return Family{
		Name: "gemma", Title: "Gemma", Class: "GemmaForCausalLM",
		Defaults: `{"bos_token_id": 2, "eos_token_id": 1, "tie_word_embeddings": true, "hidden_activation": "gelu_pytorch_tanh"}`,
		Read: func(f *Fields, c *Config) {
			f.Pass("hidden_act") // "gelu" in files whose hidden_activation is null, and the tanh form all the same
			c.Traits.PlusOne = true
			c.Traits.EmbedScale = math.Sqrt(float64(c.Hidden))
			c.Traits.Act = GELUTanh
			f.Activation("hidden_activation")
			f.Biases(c, "attention_bias")
		},
	}
}

// gemma2 is Gemma 2: every second layer has a window, scores and logits have soft caps (transformers:
// modeling_gemma2.py).
func gemma2() Family {
	return Family{
		Name: "gemma2", Title: "Gemma 2", Class: "Gemma2ForCausalLM",
		Defaults: `{"bos_token_id": 2, "eos_token_id": 1, "tie_word_embeddings": true, "hidden_activation": "gelu_pytorch_tanh",
			"sliding_window": 4096, "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50, "final_logit_softcapping": 30}`,
		Names: gemmaNames(),
		Read: func(f *Fields, c *Config) {
			f.gemmaTraits(c)
			f.gemmaCaps(c)
			c.Traits.AttnSoftCap = f.Positive("attn_logit_softcapping")
			f.Pass("sliding_window_size") // beside sliding_window in published files; transformers does not read it
			c.Windows(f.Window("sliding_window", c), f.Sliding(c, func(layer int) bool { return layer%2 == 0 }))
		},
	}
}

// gemma3 is the text part of Gemma 3: norms of q and k, five layers of six with a window and a rotary base of their own
// (transformers: modeling_gemma3.py). The defaults are those of Gemma3TextConfig, on which multimodal files rely.
func gemma3() Family {
	return Family{
		Name: "gemma3_text", Title: "Gemma 3", Class: "Gemma3ForCausalLM",
		Defaults: `{"bos_token_id": 2, "eos_token_id": 1, "tie_word_embeddings": true, "hidden_activation": "gelu_pytorch_tanh",
			"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6,
			"max_position_embeddings": 131072, "rope_theta": 1000000, "rope_local_base_freq": 10000,
			"sliding_window": 4096, "sliding_window_pattern": 6, "query_pre_attn_scalar": 256}`,
		Names: gemmaNames(),
		Read: func(f *Fields, c *Config) {
			f.gemmaTraits(c)
			f.gemmaCaps(c)
			f.Pass("attn_logit_softcapping") // null in published files; transformers does not cap scores by it
			c.Traits.QKNorm = QKNormByHead
			local := f.SlidingRope()
			if theta, ok := f.Float("rope_local_base_freq"); local == nil && ok {
				local = &Rope{Theta: theta}
			}
			every := f.Optional("sliding_window_pattern", 1, MaxLayers)
			if n := f.Optional("_sliding_window_pattern", 1, MaxLayers); n > 0 {
				every = n
			}
			window := f.Window("sliding_window", c)
			sliding := f.Sliding(c, func(layer int) bool { return (layer+1)%every != 0 })
			c.LayerKinds(func(l int) Kind {
				if sliding(l) {
					return Kind{Window: window, Rope: local}
				}
				return Kind{}
			})
		},
	}
}
