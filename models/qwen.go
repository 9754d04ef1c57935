package models

// qwen2 is Qwen 2 and 2.5: Llama with biases of q, k and v (transformers: modeling_qwen2.py).
func qwen2() Family {
	return Family{
		Name: "qwen2", Title: "Qwen 2 and 2.5", Class: "Qwen2ForCausalLM",
		Parts: []string{"qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"},
		PartDefaults: `{"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
			"num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6}`,
		Defaults: qwenDefaults,
		Read: func(f *Fields, c *Config) {
			c.Traits.Act = f.Activation("hidden_act")
			c.Traits.QKVBias = true
			f.qwenWindows(c)
		},
	}
}

// qwen3 is Qwen 3's dense models: Llama with a norm of every head's q and k (transformers: modeling_qwen3.py).
func qwen3() Family {
	return Family{
		Name: "qwen3", Title: "Qwen 3", Class: "Qwen3ForCausalLM",
		Parts: []string{"qwen3_vl_text"},
		PartDefaults: `{"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
			"num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 32768,
			"rms_norm_eps": 1e-6}`,
		Defaults: qwenDefaults,
		Read: func(f *Fields, c *Config) {
			c.Traits.Act = f.Activation("hidden_act")
			c.Traits.QKNorm = QKNormByHead
			f.Biases(c, "attention_bias")
			f.qwenWindows(c)
		},
	}
}

const qwenDefaults = `{"sliding_window": 4096, "max_window_layers": 28}`

// qwenWindows reads windows of the layers from max_window_layers on, which published files switch off.
func (f *Fields) qwenWindows(c *Config) {
	first := f.Optional("max_window_layers", 0, MaxMaxPositions)
	window := f.Window("sliding_window", c)
	if !f.Bool("use_sliding_window") {
		window = 0
	}
	c.Windows(window, f.Sliding(c, func(layer int) bool { return layer >= first }))
}
