package models

// mistral is Mistral 7B, Nemo and Small: Llama, in version 0.1 with a window in all layers (transformers:
// modeling_mistral.py). A file without sliding_window has 4096.
func mistral() Family {
	return Family{
		Name: "mistral", Title: "Mistral", Class: "MistralForCausalLM",
		PartDefaults: `{"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
			"num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6}`,
		Defaults: `{"bos_token_id": 1, "eos_token_id": 2, "sliding_window": 4096}`,
		Read: func(f *Fields, c *Config) {
			c.Traits.Act = f.Activation("hidden_act")
			c.Windows(f.Window("sliding_window", c), func(int) bool { return true })
		},
	}
}

// ministral3 is Ministral 3, the text part of models of type mistral3: Mistral with yarn and a factor of scores that
// grows with the position (transformers: modeling_ministral3.py).
func ministral3() Family {
	return Family{
		Name: "ministral3", Title: "Ministral 3", Class: "Ministral3ForCausalLM",
		Defaults: `{"bos_token_id": 1, "eos_token_id": 2}`,
		Read: func(f *Fields, c *Config) {
			c.Traits.Act = f.Activation("hidden_act")
			c.Windows(f.Window("sliding_window", c), func(int) bool { return true })
			c.Traits.Grows = f.Growth()
		},
	}
}

// ministral is Ministral 8B: Mistral with windows by layer_types (transformers: modeling_ministral.py).
func ministral() Family {
	return Family{
		Name: "ministral", Title: "Ministral", Class: "MinistralForCausalLM",
		Defaults: `{"bos_token_id": 1, "eos_token_id": 2, "sliding_window": 4096}`,
		Read: func(f *Fields, c *Config) {
			c.Traits.Act = f.Activation("hidden_act")
			c.Windows(f.Window("sliding_window", c), f.Sliding(c, func(int) bool { return true }))
		},
	}
}
