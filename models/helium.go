package models

// helium is Helium 1: Llama whose rotary embedding pairs neighbours, and whose o has no bias (transformers:
// modeling_helium.py).
func helium() Family {
	return Family{
		Name: "helium", Title: "Helium", Class: "HeliumForCausalLM",
		Defaults: `{"bos_token_id": 1, "eos_token_id": 2, "rope_theta": 100000, "head_dim": 128}`,
		Read: func(f *Fields, c *Config) {
			c.Traits.Act = f.Activation("hidden_act")
			c.Traits.QKVBias = f.Bool("attention_bias")
			c.Traits.MLPBias = f.Bool("mlp_bias")
			c.Rope.Interleaved = true
		},
	}
}
