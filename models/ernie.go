package models

// ernie45 is ERNIE 4.5, the dense models: Llama with neighbours rotated together, and biases where the file says so
// (transformers: modeling_ernie4_5.py).
func ernie45() Family {
	return Family{
		Name: "ernie4_5", Title: "ERNIE 4.5", Class: "Ernie4_5ForCausalLM",
		Defaults: `{"bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": true, "head_dim": 128, "rope_theta": 500000}`,
		Read: func(f *Fields, c *Config) {
			c.Traits.Act = f.Activation("hidden_act")
			c.Rope.Interleaved = true
			f.Biases(c, "use_bias")
			c.Traits.MLPBias = c.Traits.QKVBias
			f.Pass("compression_ratio")
		},
	}
}
