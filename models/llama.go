package models

// llama is Llama 1 to 3.3 and what shares its mathematics and names: CodeLlama, TinyLlama, SmolLM2, Yi, Falcon 3
// (transformers: modeling_llama.py).
func llama() Family {
	return Family{
		Name: "llama", Title: "Llama", Class: "LlamaForCausalLM",
		Defaults: `{"bos_token_id": 1, "eos_token_id": 2}`,
		PartDefaults: `{"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
			"num_attention_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6}`,
		Read: func(f *Fields, c *Config) {
			c.Traits.Act = f.Activation("hidden_act")
			f.Biases(c, "attention_bias")
			c.Traits.MLPBias = f.Bool("mlp_bias")
		},
	}
}
