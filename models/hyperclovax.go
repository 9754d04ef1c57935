package models

// hyperCLOVAX is HyperCLOVA X: Granite 3 with norms of what the branches give, too, unless the file says otherwise, and
// a factor of logits where Granite has a divisor (transformers: modeling_hyperclovax.py).
func hyperCLOVAX() Family {
	return Family{
		Name: "hyperclovax", Title: "HyperCLOVA X", Class: "HyperCLOVAXForCausalLM",
		Defaults: `{"bos_token_id": 1, "eos_token_id": 2, "use_post_norm": true}`,
		Names: TensorNames{RolePostAttn: "model.layers.%d.post_norm1.weight",
			RolePostMLP: "model.layers.%d.post_norm2.weight"},
		Read: func(f *Fields, c *Config) {
			f.graniteTraits(c)
			c.Traits.LogitScale = f.Positive("logits_scaling")
			c.Traits.MLPBias = f.Bool("mlp_bias")
			if f.Bool("use_post_norm") {
				c.Traits.Norms = NormsAround
			}
			f.Pass("summary_first_dropout", "end_token_id")
		},
	}
}
