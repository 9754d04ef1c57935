package models

// seedOSS is Seed-OSS: Llama with biases of q, k and v unless the file says otherwise, and others where it says so
// (transformers: modeling_seed_oss.py).
func seedOSS() Family {
	return Family{
		Name: "seed_oss", Title: "Seed-OSS", Class: "SeedOssForCausalLM",
		Defaults: `{"bos_token_id": 0, "eos_token_id": 2, "head_dim": 128, "attention_bias": true}`,
		Read: func(f *Fields, c *Config) {
			c.Traits.Act = f.Activation("hidden_act")
			c.Traits.QKVBias, c.Traits.OBias = f.Bool("attention_bias"), f.Bool("attention_out_bias")
			c.Traits.MLPBias = f.Bool("mlp_bias")
		},
	}
}
