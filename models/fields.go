package models

import "strings"

// refusal is a field that changes the mathematics in a way that is not
// supported, unless it is absent, null, or neutral.
type refusal struct {
	name    string
	neutral neutral
	why     string
}

// harmlessFields lists fields that may hold anything: they concern training,
// text generation, file formats, or the program that wrote the file.
func harmlessFields() []string {
	return strings.Fields(`
		_name_or_path transformers_version _commit_hash _attn_implementation
		_attn_implementation_autoset attn_implementation torchscript use_bfloat16
		use_cache is_decoder initializer_range return_dict output_attentions
		output_hidden_states output_scores output_past return_dict_in_generate
		pad_token_id unk_token_id sep_token_id decoder_start_token_id
		prefix tokenizer_class task_specific_params problem_type finetuning_task
		id2label label2id num_labels chunk_size_feed_forward max_sequence_length
		max_length min_length do_sample early_stopping num_beams num_beam_groups
		diversity_penalty temperature top_k top_p typical_p repetition_penalty
		length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
		bad_words_ids num_return_sequences remove_invalid_values
		exponential_decay_length_penalty suppress_tokens begin_suppress_tokens
		forced_bos_token_id forced_eos_token_id tf_legacy_loss is_llama_config
		image_token_id image_start_token_id image_end_token_id video_token_id video_start_token_id video_end_token_id
		vision_token_id vision_start_token_id vision_end_token_id
		pretraining_tp cache_implementation auto_map
		attention_dropout hidden_dropout residual_dropout resid_pdrop attn_pdrop embd_pdrop embed_dropout
		transformers.js_config unsloth_fixed unsloth_version`)
}

// refusedFields lists the refused fields of the outer object.
func refusedFields() []refusal {
	var all []refusal
	add := func(n neutral, why string, names string) {
		for _, name := range strings.Fields(names) {
			all = append(all, refusal{name, n, why})
		}
	}
	add(whenFalse, "this family has no such biases", `attention_bias mlp_bias qkv_bias
		attention_out_bias attn_bias use_bias use_qkv_bias bias add_bias_linear lm_head_bias`)
	add(whenOne, "this family rotates whole heads",
		`partial_rotary_factor rotary_pct rope_pct`)
	add(onlyNull, "this family has another rotary embedding", `rotary_dim rope_ratio
		rotary_emb_base rope_local_base_freq local_rope_theta rope_type no_rope_layers
		no_rope_layer_interval position_embedding_type qk_rope_head_dim`)
	add(whenFalse, "this family has another rotary embedding", `rope_interleaved alibi use_alibi`)
	add(onlyNull, "this family has no sliding windows",
		`sliding_window sliding_window_pattern max_window_layers attention_chunk_size`)
	add(whenFalse, "this family has no sliding windows", `use_sliding_window`)
	add(whenAllFull, "in this family all layers are of one kind", `layer_types`)
	add(whenEmpty, "quantised weights are not supported",
		`quantization_config quantization compression_config sparsity_config`)
	add(whenZero, "mixtures of experts are not supported", `num_local_experts num_experts
		n_routed_experts n_shared_experts num_shared_experts moe_num_experts
		num_experts_per_tok num_experts_per_token moe_top_k moe_intermediate_size
		shared_expert_intermediate_size shared_intermediate_size
		router_aux_loss_coef router_jitter_noise first_k_dense_replace
		moe_layer_freq decoder_sparse_step interleave_moe_layer_step`)
	add(whenFalse, "mixtures of experts are not supported", `norm_topk_prob output_router_logits`)
	add(whenEmpty, "mixtures of experts are not supported", `mlp_only_layers moe_layers`)
	add(whenFalse, "this family has no norms of queries and keys",
		`use_qk_norm qk_norm qk_layernorm use_qk_layernorm`)
	add(onlyNull, "other norms are not supported", `layer_norm_eps layer_norm_epsilon
		norm_eps norm_epsilon norm_type`)
	add(onlyNull, "this family has no soft caps", `attn_logit_softcapping
		final_logit_softcapping attention_logit_soft_cap output_logit_soft_cap logit_soft_cap`)
	add(onlyNull, "this family scales scores by 1/sqrt(head_dim)",
		`attention_multiplier query_pre_attn_scalar attn_scale attention_scale`)
	add(whenFalse, "this family scales scores by 1/sqrt(head_dim)", `attn_temperature_tuning`)
	add(whenOne, "this family does not scale embeddings, residuals or logits",
		`residual_multiplier embedding_multiplier logits_scaling logit_scale
		lm_head_multiplier embedding_scale scale_emb residual_scale`)
	add(onlyNull, "this family does not scale embeddings, residuals or logits",
		`scale_depth dim_model_base mup_base_hidden_size`)
	add(whenFalse, "this family does not scale embeddings, residuals or logits", `mup_enabled`)
	add(onlyNull, "clipping is not supported", `clip_qkv`)
	add(whenOne, "other attention is not supported", `full_attn_mod interpolate_factor`)
	add(whenFalse, "rotary embedding in three dimensions is not supported", `use_mrope`)
	add(onlyNull, "scores scaled by position are not supported", `llama_4_scaling_beta`)
	add(onlyNull, "other activations are not supported",
		`hidden_activation activation_function`)
	add(whenSwiGLU, "other activations are not supported", `activation`)
	add(whenFalse, "parallel blocks are not supported", `parallel_attn use_parallel_residual`)
	add(whenTrue, "only causal attention is supported", `is_causal`)
	add(whenFalse, "only causal attention is supported", `use_bidirectional_attention`)
	add(whenFalse, "only decoders are supported",
		`is_encoder_decoder add_cross_attention tie_encoder_decoder`)
	add(onlyNull, "only decoders are supported", `cross_attention_hidden_size`)
	add(whenEmpty, "pruned heads are not supported", `pruned_heads`)
	add(onlyNull, "want text_config beside it, which holds the text part of a multimodal model",
		`text_config llm_config language_config vision_config audio_config`)
	add(onlyNull, "latent attention is not supported", `q_lora_rank kv_lora_rank
		qk_nope_head_dim v_head_dim`)
	add(whenZero, "further prediction heads are not supported",
		`num_nextn_predict_layers num_kv_shared_layers`)
	return all
}

// refusedRopeFields lists those inside rope_scaling and rope_parameters.
func refusedRopeFields() []refusal {
	const other = "it has no meaning in the supported scalings"
	all := []refusal{{"partial_rotary_factor", whenOne,
		"this family rotates whole heads"}}
	for _, name := range strings.Fields(`factor low_freq_factor high_freq_factor
		original_max_position_embeddings attention_factor beta_fast beta_slow mscale
		mscale_all_dim short_factor long_factor truncate mrope_section alpha finetuned`) {
		all = append(all, refusal{name, onlyNull, other})
	}
	for _, name := range strings.Fields(`full_attention sliding_attention chunked_attention linear_attention`) {
		all = append(all, refusal{name, onlyNull, "in this family all layers share a rotary embedding"})
	}
	return all
}
