package models

const glmDefaults = `{"eos_token_id": [151329, 151336, 151338], "attention_bias": true, "partial_rotary_factor": 0.5}`

// glmTraits are those of both GLMs: biases of q, k and v, half of each head rotated, neighbour with neighbour.
func (f *Fields) glmTraits(c *Config) {
	c.Traits.Act = f.Activation("hidden_act")
	c.Traits.QKVBias = f.Bool("attention_bias")
	c.Rope.Interleaved = true
}

// glmNames has gate and up in one tensor.
func glmNames() TensorNames {
	const gateUp = "model.layers.%d.mlp.gate_up_proj.weight"
	return TensorNames{RoleGate: gateUp, RoleUp: gateUp}
}

// glm is GLM-4-9B of 2024 in transformers' form (transformers: modeling_glm.py).
func glm() Family {
	return Family{
		Name: "glm", Title: "GLM-4 9B (2024)", Class: "GlmForCausalLM",
		Defaults: glmDefaults, PartialRotary: true, Names: glmNames(),
		Read: func(f *Fields, c *Config) { f.glmTraits(c) },
	}
}

// glm4 is GLM-4-0414: GLM with norms around both branches (transformers: modeling_glm4.py).
func glm4() Family {
	names := glmNames()
	names[RolePostAttn] = "model.layers.%d.post_self_attn_layernorm.weight"
	names[RolePostMLP] = "model.layers.%d.post_mlp_layernorm.weight"
	return Family{
		Name: "glm4", Title: "GLM-4-0414", Class: "Glm4ForCausalLM",
		Parts:    []string{"glm4v", "glm4v_text"},
		Defaults: glmDefaults, PartialRotary: true, Names: names,
		Read: func(f *Fields, c *Config) {
			f.glmTraits(c)
			c.Traits.Norms = NormsAround
		},
	}
}
