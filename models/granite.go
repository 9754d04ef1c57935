package models

// granite is Granite 3's dense models: Llama with factors of the embedding, of what the branches add, of scores and of
// logits (transformers: modeling_granite.py).
func granite() Family {
	return Family{
		Name: "granite", Title: "Granite", Class: "GraniteForCausalLM",
		Defaults: `{"bos_token_id": 1, "eos_token_id": 2, "attention_multiplier": 1}`,
		PartDefaults: `{"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
			"num_attention_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6}`,
		Read: func(f *Fields, c *Config) {
			f.graniteTraits(c)
			c.Traits.MLPBias = f.Bool("mlp_bias")
		},
	}
}

// graniteTraits are those of all dense Granites.
func (f *Fields) graniteTraits(c *Config) {
	c.Traits.Act = f.Activation("hidden_act")
	f.Biases(c, "attention_bias")
	c.Traits.EmbedScale = f.Positive("embedding_multiplier")
	c.Traits.ResidualScale = f.Positive("residual_multiplier")
	c.Traits.AttnScale = f.Positive("attention_multiplier")
	if divisor := f.Positive("logits_scaling"); divisor != 0 {
		c.Traits.LogitScale = 1 / divisor
	}
}

// granite4 is the dense models of Granite 4: Granite 3 whose MLP is the one that experts would share, and whose layers
// may have no rotary embedding. The other models of this model_type have experts, state-space layers or both, and are
// refused for them (transformers: modeling_granitemoehybrid.py).
func granite4() Family {
	const gateUp = "model.layers.%d.shared_mlp.input_linear.weight"
	return Family{
		Name: "granitemoehybrid", Title: "Granite 4 (dense)", Class: "GraniteMoeHybridForCausalLM",
		Defaults: `{"bos_token_id": 1, "eos_token_id": 2, "attention_multiplier": 1, "num_local_experts": 8,
			"shared_intermediate_size": 1024}`,
		Names: TensorNames{RoleGate: gateUp, RoleUp: gateUp, RoleDown: "model.layers.%d.shared_mlp.output_linear.weight"},
		Read: func(f *Fields, c *Config) {
			f.graniteTraits(c)
			if f.Integer("num_local_experts", 0, MaxIntermediate) != 0 {
				f.Refuse("num_local_experts", "0", "mixtures of experts are not supported")
			}
			if kinds, _ := f.take("layer_types"); !isAll(kinds, "attention", "full_attention") {
				f.Refuse("layer_types", `only "attention"`, "state-space layers are not supported")
			}
			c.Intermediate = f.Integer("shared_intermediate_size", 1, MaxIntermediate)
			f.Word("normalization_function", "rmsnorm")
			if f.Word("position_embedding_type", "rope", "nope") != "rope" {
				c.LayerKinds(func(int) Kind { return Kind{NoRope: true} })
			}
			f.Pass("num_experts_per_tok", "output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "init_method",
				"mamba_chunk_size", "mamba_conv_bias", "mamba_d_conv", "mamba_d_head", "mamba_d_state", "mamba_expand",
				"mamba_n_groups", "mamba_n_heads", "mamba_proj_bias", "time_step_limit", "layers_block_type")
		},
	}
}
