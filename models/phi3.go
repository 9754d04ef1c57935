package models

// phi3 is Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: Llama with q, k, v and with gate, up in one tensor each, a rotary
// embedding of a part of the head in Phi-4-mini, longrope (transformers: modeling_phi3.py).
func phi3() Family {
	const qkv, gateUp = "model.layers.%d.self_attn.qkv_proj.weight", "model.layers.%d.mlp.gate_up_proj.weight"
	return Family{
		Name: "phi3", Title: "Phi-3 and Phi-4", Class: "Phi3ForCausalLM",
		Defaults:      `{"bos_token_id": 1, "eos_token_id": 32000}`,
		PartialRotary: true,
		Names:         TensorNames{RoleQ: qkv, RoleK: qkv, RoleV: qkv, RoleGate: gateUp, RoleUp: gateUp},
		Read: func(f *Fields, c *Config) {
			f.originalTaken = true // transformers writes it, 4096, of models without scaling, too
			c.Traits.Act = f.Activation("hidden_act")
			c.Windows(f.Window("sliding_window", c), func(int) bool { return true })
		},
	}
}
