package models

// internLM2 is InternLM 2 and 2.5: Llama under names of its own, with q, k and v packed by KV head (its repository's
// modeling_internlm2.py).
func internLM2() Family {
	const attn, mlp, qkv = "model.layers.%d.attention.", "model.layers.%d.feed_forward.", "model.layers.%d.attention.wqkv."
	return Family{
		Name: "internlm2", Title: "InternLM 2", Class: "InternLM2ForCausalLM",
		Defaults: `{"bos_token_id": 1, "eos_token_id": 2, "bias": true}`,
		ByKVHead: true,
		Names: TensorNames{
			RoleEmbed: "model.tok_embeddings.weight", RoleHead: "output.weight",
			RolePreAttn: "model.layers.%d.attention_norm.weight", RolePreMLP: "model.layers.%d.ffn_norm.weight",
			RoleQ: qkv + "weight", RoleK: qkv + "weight", RoleV: qkv + "weight",
			RoleQBias: qkv + "bias", RoleKBias: qkv + "bias", RoleVBias: qkv + "bias",
			RoleO: attn + "wo.weight", RoleOBias: attn + "wo.bias",
			RoleGate: mlp + "w1.weight", RoleUp: mlp + "w3.weight", RoleDown: mlp + "w2.weight",
		},
		Read: func(f *Fields, c *Config) {
			c.Traits.Act = f.Activation("hidden_act")
			f.Biases(c, "bias")
		},
	}
}
