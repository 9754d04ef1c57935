package models

// llama is Llama 1 to 3.3 and what shares its mathematics and names: CodeLlama, TinyLlama, SmolLM2, Yi, Falcon 3
// (transformers: modeling_llama.py).
func llama() Family {
	return Family{
		Name: "llama", Title: "Llama", Class: "LlamaForCausalLM",
		Defaults: `{"bos_token_id": 1, "eos_token_id": 2}`,
		Read: func(f *Fields, c *Config) {
			c.Traits.Act = f.Activation("hidden_act")
			f.Biases(c, "attention_bias")
			c.Traits.MLPBias = f.Bool("mlp_bias")
		},
	}
}
