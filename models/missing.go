package models

import (
	"fmt"
	"slices"
	"strings"
)

// sign is a feature that no family has: fields of config.json that show it, the first with a value other than 0 and
// false counts, and model types that have it although no field says so.
type sign struct{ feature, fields, types string }

// signs lists them; what a fine-tune of a type has, too, is listed by type. Fields inside an object stand behind a dot.
func signs() []sign {
	return []sign{
		{"mixtures of experts", `num_local_experts num_experts n_routed_experts moe_num_experts num_experts_per_tok
			moe_intermediate_size ffn_config.moe_num_experts moe_num_primary_experts`,
			"mixtral qwen3_moe qwen3_omni_moe qwen3_omni_moe_thinker"},
		{"latent attention (MLA)", "kv_lora_rank q_lora_rank qk_rope_head_dim", ""},
		{"state-space layers", `state_size ssm_cfg mamba_d_state mamba_n_heads ssm_state_size d_state conv_kernel
			time_step_rank layers_block_type`, "mamba mamba2 jamba zamba"},
		{"linear attention", "linear_num_key_heads linear_key_head_dim linear_attn_config rwkv_version head_size_divisor",
			"rwkv minimax"},
		{"recurrent layers", "lru_width", "recurrent_gemma xlstm hrm_text"},
		{"short convolutions", "conv_L_cache", "lfm2 lfm3"},
		{"an encoder", "is_encoder_decoder num_decoder_layers encoder_layers", `t5 mt5 umt5 bart mbart marian pegasus whisper
			bert roberta distilbert xlm-roberta electra deberta deberta-v2 modernbert nomic_bert`},
		{"cross-attention layers", "cross_attention_layers cross_layer_interval", "idefics evolla trocr"},
		{"LayerNorm", "layer_norm_eps layer_norm_epsilon norm_epsilon", `nemotron olmo opt xglm stablelm cohere cohere2 phi
			gpt2 gpt_neox gptj mpt bloom falcon starcoder2 orion persimmon modernbert-decoder`},
		{"parallel attention and MLP", "parallel_attn use_parallel_residual", "cohere cohere2 phi gptj codegen gpt_neox"},
		{"an MLP without a gate", "", `arcee apertus nanochat nemotron opt xglm gpt2 gpt_neo gpt_neox gptj gpt_bigcode bloom
			mpt falcon phi starcoder2 persimmon jais2 cosmos3_edge_text`},
		{"norms inside attention and MLP", "", "bitnet"},
		{"norms of q and k behind the rotary embedding", "", "hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text nanochat"},
		{"norms of q and k that subtract a mean", "", "chameleon"},
		{"the rotary embedding in three dimensions (mrope)", `rope_scaling.mrope_section rope_parameters.mrope_section
			use_mrope`, `qwen2_5_omni qwen2_5_omni_thinker qwen2_5_omni_text
			glm_ocr_text paddleocr_vl_text hunyuan_vl_text cosmos3_edge_text`},
		{"learned positions", "", "gpt2 gpt_neo gpt_bigcode opt"},
		{"ALiBi", "alibi attn_config.alibi", "bloom"},
		{"attention sinks", "", "gpt_oss granite_swa"},
		{"differential attention", "", "diffllama"},
		{"blocksparse attention", "blocksparse_num_local_blocks", ""},
		{"keys and values of other layers", "num_kv_shared_layers use_cla", ""},
		{"embeddings of every layer", "hidden_size_per_layer_input", ""},
		{"alternating updates (AltUp)", "altup_num_inputs", ""},
		{"layers of different widths", "block_configs per_layer_config", "nemotron-nas"},
		{"adapters by modality", "vision_lora speech_lora", "phi4_multimodal phi4mm"},
		{"attention in both directions within a prompt", "num_image_tokens", "paligemma"},
		{"patches of bytes", "", "blt"},
	}
}

// missingFeatures names what a file of no known family would need and no family has: by the fields that show it, each
// with its value, else by its model_type alone.
func missingFeatures(o object) (features []string) {
	name := (&Fields{object: o}).modelType()
	for _, s := range signs() {
		if s.feature == "LayerNorm" && len(features) > 0 && !slices.Contains(strings.Fields(s.types), name) {
			continue // a field of this name holds the epsilon of other norms, too: T5, Mamba
		}
		field, value := s.shown(o)
		switch {
		case field != "":
			features = append(features, fmt.Sprintf("%s (%s %s)", s.feature, field, show(value)))
		case slices.Contains(strings.Fields(s.types), name):
			features = append(features, s.feature)
		}
	}
	return features
}

// shown returns the first of the sign's fields that the file has, and its value; "" for none.
func (s sign) shown(o object) (field string, value any) {
	for _, field := range strings.Fields(s.fields) {
		in, name := o, field
		if outer, inner, ok := strings.Cut(field, "."); ok {
			value, _ := o.get(outer)
			in, _ = value.(object)
			name = inner
		}
		if value, ok := in.get(name); ok && !whenZero.holds(value) && !isEmpty(value) {
			return field, value
		}
	}
	return "", nil
}

// modelType is model_type, "" where that is no text.
func (r *Fields) modelType() string {
	value, _ := r.object.get("model_type")
	name, _ := value.(string)
	return name
}

// aroundPart refuses the text part of a model, the whole file being o, that computes otherwise within it.
func (r *Fields) aroundPart(o object) {
	const want = "a model whose text part computes as it does alone"
	whole, _ := o.get("model_type")
	if features := missingFeatures(object{{"model_type", whole}}); len(features) > 0 {
		r.p.add("model_type", show(whole), want, "this model needs what no kernel has: "+strings.Join(features, ", "))
	}
}

// isWhole reports whether the fields are of a multimodal model, not of its text part.
func (r *Fields) isWhole() bool {
	return slices.ContainsFunc([]string{"vision_config", "audio_config", "thinker_config"}, r.has)
}

// familyOf finds the family that model_type names, nil after reporting that there is none: what the model would need,
// where its file or its model_type shows that.
func (r *Fields) familyOf(families []Family) *Family {
	value, ok := r.take("model_type")
	name := r.modelType()
	if i := slices.IndexFunc(families, func(f Family) bool {
		return ok && (name == f.Name || slices.Contains(f.Parts, name))
	}); i >= 0 {
		return &families[i]
	}
	var names []string
	for _, f := range families {
		names = append(names, f.Name)
	}
	known := "one of " + strings.Join(names, ", ")
	_, own := r.object.get("padded_vocab_size")
	missing := missingFeatures(r.object)
	switch {
	case len(missing) > 0 && ok:
		r.refuse("model_type", value, "a dense decoder with RMSNorm, rotary attention and a gated MLP",
			"this model needs what no kernel has: "+strings.Join(missing, ", "))
	case !ok:
		r.missing("model_type", known)
	case own:
		r.refuse("model_type", value, known, "this file is of the model's own code: "+
			"take the repository whose config.json transformers wrote, such as glm-4-9b-chat-hf")
	case r.isWhole():
		r.refuse("model_type", value, known, "this file is of a multimodal model, whose text part is sought in "+
			strings.Join(TextParts(), ", ")+": none of them is there")
	default:
		r.refuse("model_type", value, known, "nothing in this file shows a feature that no kernel has, "+
			"so docs/adding-a-family.md may add it")
	}
	return nil
}
