package models

// internLM3 is InternLM 3: Llama, with biases where the file says so, under two names. transformers computes it with
// Llama's class and saves that one's name (transformers: modeling_llama.py).
func internLM3() Family {
	return Family{
		Name: "internlm3", Title: "InternLM 3", Class: "InternLM3ForCausalLM", Also: "LlamaForCausalLM",
		Defaults: `{"bos_token_id": 1, "eos_token_id": 2}`,
		Read: func(f *Fields, c *Config) {
			c.Traits.Act = f.Activation("hidden_act")
			attention, mlp := f.Bool("qkv_bias") || f.Bool("attention_bias"), f.Bool("bias") || f.Bool("mlp_bias")
			if attention != mlp {
				f.Refuse("qkv_bias", "the same as bias", "biases are in all projections or in none")
			}
			c.Traits.QKVBias, c.Traits.OBias, c.Traits.MLPBias = attention, attention, attention
		},
	}
}
