package models

// granite is Granite 3's dense models: Llama with factors of the embedding, of what the branches add, of scores and of
// logits (transformers: modeling_granite.py).
func granite() Family {
	return Family{
		Name: "granite", Title: "Granite", Class: "GraniteForCausalLM",
		Defaults: `{"bos_token_id": 1, "eos_token_id": 2, "attention_multiplier": 1}`,
		Read: func(f *Fields, c *Config) {
			c.Traits.Act = f.Activation("hidden_act")
			f.Biases(c, "attention_bias")
			c.Traits.MLPBias = f.Bool("mlp_bias")
			c.Traits.EmbedScale = f.Positive("embedding_multiplier")
			c.Traits.ResidualScale = f.Positive("residual_multiplier")
			c.Traits.AttnScale = f.Positive("attention_multiplier")
			if divisor := f.Positive("logits_scaling"); divisor != 0 {
				c.Traits.LogitScale = 1 / divisor
			}
		},
	}
}
