package models

// olmoNames are the names of OLMo 2's norms, which stand behind both branches.
func olmoNames() TensorNames {
	return TensorNames{
		RolePostAttn: "model.layers.%d.post_attention_layernorm.weight",
		RolePostMLP:  "model.layers.%d.post_feedforward_layernorm.weight",
	}
}

func (f *Fields) olmoTraits(c *Config) {
	c.Traits.Norms = NormsAfter
	c.Traits.QKNorm = QKNormWide
	c.Traits.Act = f.Activation("hidden_act")
	f.Biases(c, "attention_bias")
}

// olmo2 is OLMo 2: norms of what attention and MLP give instead of what they take, one norm over all heads of q, and
// one of k (transformers: modeling_olmo2.py).
func olmo2() Family {
	return Family{
		Name: "olmo2", Title: "OLMo 2", Class: "Olmo2ForCausalLM",
		Defaults: `{"eos_token_id": 50279}`, Names: olmoNames(),
		Read: func(f *Fields, c *Config) { f.olmoTraits(c) },
	}
}

// olmo3 is OLMo 3: OLMo 2 with windows in three layers of four, whose rotary embedding is not scaled (transformers:
// modeling_olmo3.py).
func olmo3() Family {
	return Family{
		Name: "olmo3", Title: "OLMo 3", Class: "Olmo3ForCausalLM",
		Defaults: `{"eos_token_id": 50279, "rope_theta": 500000, "sliding_window": 4096}`, Names: olmoNames(),
		Read: func(f *Fields, c *Config) {
			f.olmoTraits(c)
			local := f.SlidingRope()
			if local == nil && c.Rope.Scaling != nil {
				local = &Rope{Theta: c.Rope.Theta}
			}
			window := f.Window("sliding_window", c)
			sliding := f.Sliding(c, func(layer int) bool { return (layer+1)%4 != 0 })
			c.LayerKinds(func(l int) Kind {
				if sliding(l) {
					return Kind{Window: window, Rope: local}
				}
				return Kind{}
			})
		},
	}
}
