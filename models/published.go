package models

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// lines holds, by name, what matters of the config.json of published models, and of tiny. The models of a group share
// fields; each has a line with its name, seven sizes, and fields of its own, which win.
func lines() map[string][]byte {
	all := map[string][]byte{}
	add := func(family, shared, group string) {
		for line := range strings.Lines(strings.TrimSpace(group)) {
			name, text := configText(family, shared, strings.TrimSpace(line))
			all[name] = text
		}
	}
	// name layers hidden intermediate heads KV-heads head_dim vocab, and what differs in the group.
	// tiny is the model of the tests on the executor. Its shapes are awkward on purpose: attention rows unlike hidden,
	// an odd number of query heads to a KV head, an intermediate that is no multiple of 64, and a rope whose 16
	// frequencies fall into all three bands of the scaling. hidden is a multiple of heads, which transformers insists
	// on, though head_dim is not the quotient.
	add("llama", `"rms_norm_eps": 1e-5, "max_position_embeddings": 512, "rope_theta": 10000, "tie_word_embeddings": true, "bos_token_id": 0, "eos_token_id": [1, 2],
		"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64}`, `
		tiny 2 96 352 6 2 32 320`)
	// Llama 3.1 and 3.2, the base models.
	add("llama", `"rms_norm_eps": 1e-5, "max_position_embeddings": 131072, "rope_theta": 500000, "bos_token_id": 128000, "eos_token_id": 128001,
		"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}`, `
		llama3-8b 32 4096 14336 32 8 128 128256
		llama3-70b 80 8192 28672 64 8 128 128256`)
	add("llama", `"rms_norm_eps": 1e-5, "max_position_embeddings": 131072, "rope_theta": 500000, "tie_word_embeddings": true, "bos_token_id": 128000, "eos_token_id": 128001,
		"rope_scaling": {"rope_type": "llama3", "factor": 32, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}`, `
		llama3.2-1b 16 2048 8192 32 8 64 128256
		llama3.2-3b 28 3072 8192 24 8 128 128256`)
	add("llama", `"rms_norm_eps": 1e-5, "max_position_embeddings": 4096`, `
		llama2-7b 32 4096 11008 32 32 128 32000
		llama2-13b 40 5120 13824 40 40 128 32000`)
	add("llama", `"rms_norm_eps": 1e-5, "max_position_embeddings": 2048`, `
		tinyllama-1.1b 22 2048 5632 32 4 64 32000`)
	add("llama", `"rms_norm_eps": 1e-5, "max_position_embeddings": 8192, "tie_word_embeddings": true, "rope_theta": 100000, "bos_token_id": 0, "eos_token_id": 0`, `
		smollm2-135m 30 576 1536 9 3 64 49152
		smollm2-360m 32 960 2560 15 5 64 49152
		smollm2-1.7b 24 2048 8192 32 32 64 49152 "rope_theta": 130000`)
	add("llama", `"rms_norm_eps": 1e-6, "max_position_embeddings": 4096, "rope_theta": 5000000`, `
		yi-1.5-6b 32 4096 11008 32 4 128 64000
		yi-1.5-9b 48 4096 11008 32 4 128 64000`)
	add("llama", `"rms_norm_eps": 1e-6, "max_position_embeddings": 32768, "rope_theta": 1000042, "bos_token_id": null, "eos_token_id": 11`, `
		falcon3-1b 18 2048 8192 8 4 256 131072
		falcon3-3b 22 3072 9216 12 4 256 131072
		falcon3-7b 28 3072 23040 12 4 256 131072
		falcon3-10b 40 3072 23040 12 4 256 131072`)
	add("mistral", `"rms_norm_eps": 1e-5, "max_position_embeddings": 32768`, `
		mistral-7b-v0.1 32 4096 14336 32 8 128 32000 "sliding_window": 4096
		mistral-7b 32 4096 14336 32 8 128 32768 "sliding_window": null, "rope_theta": 1000000
		mistral-nemo-12b 40 5120 14336 32 8 128 131072 "sliding_window": null, "rope_theta": 1000000, "max_position_embeddings": 131072
		mistral-small-24b 40 5120 32768 32 8 128 131072 "sliding_window": null, "rope_theta": 100000000
		ministral-8b 36 4096 12288 32 8 128 131072 "sliding_window": 32768, "rope_theta": 100000000`)
	add("qwen2", `"rms_norm_eps": 1e-6, "max_position_embeddings": 32768, "rope_theta": 1000000, "use_sliding_window": false, "eos_token_id": 151645`, `
		qwen2.5-0.5b 24 896 4864 14 2 64 151936 "tie_word_embeddings": true
		qwen2.5-1.5b 28 1536 8960 12 2 128 151936 "tie_word_embeddings": true
		qwen2.5-3b 36 2048 11008 16 2 128 151936 "tie_word_embeddings": true
		qwen2.5-7b 28 3584 18944 28 4 128 152064
		qwen2.5-14b 48 5120 13824 40 8 128 152064
		qwen2.5-32b 64 5120 27648 40 8 128 152064
		qwen2.5-72b 80 8192 29568 64 8 128 152064`)
	add("qwen3", `"rms_norm_eps": 1e-6, "max_position_embeddings": 40960, "rope_theta": 1000000, "eos_token_id": 151645`, `
		qwen3-0.6b 28 1024 3072 16 8 128 151936 "tie_word_embeddings": true
		qwen3-1.7b 28 2048 6144 16 8 128 151936 "tie_word_embeddings": true
		qwen3-4b 36 2560 9728 32 8 128 151936 "tie_word_embeddings": true
		qwen3-8b 36 4096 12288 32 8 128 151936
		qwen3-14b 40 5120 17408 40 8 128 151936
		qwen3-32b 64 5120 25600 64 8 128 151936`)
	add("phi3", `"rms_norm_eps": 1e-5`, `
		phi-3-mini-4k 32 3072 8192 32 32 96 32064 "max_position_embeddings": 4096, "sliding_window": 2047
		phi-4 40 5120 17920 40 10 128 100352 "max_position_embeddings": 16384, "rope_theta": 250000, "bos_token_id": 100257, "eos_token_id": [100257, 100265]`)
	add("phi3", `"rms_norm_eps": 1e-5, "max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "sliding_window": 262144,
		"tie_word_embeddings": true, "bos_token_id": 199999, "eos_token_id": [200020, 199999], "partial_rotary_factor": 0.75,
		"rope_scaling": {"type": "longrope", "short_factor": [1`+strings.Repeat(", 1", 47)+
		`], "long_factor": [1, 1.118320672, 1.250641126, 1.398617824,
			1.564103225, 1.74916897, 1.956131817, 2.187582649, 2.446418898, 2.735880826, 3.059592084, 3.421605075, 3.826451687, 4.279200023,
			4.785517845, 5.351743533, 5.984965424, 6.693110555, 7.485043894, 8.370679318, 9.36110372, 10.4687158, 11.70738129, 13.09260651,
			14.64173252, 16.37415215, 18.31155283, 20.47818807, 22.90118105, 25.61086418, 28.64115884, 32.03, 32.1, 32.13, 32.23, 32.6,
			32.61, 32.64, 32.66, 32.7, 32.71, 32.93, 32.97, 33.28, 33.49, 33.5, 44.16, 47.77]}`, `
		phi-4-mini 32 3072 8192 24 8 128 200064`)
	add("gemma2", `"rms_norm_eps": 1e-6, "max_position_embeddings": 8192, "sliding_window": 4096`, `
		gemma-2-2b 26 2304 9216 8 4 256 256000
		gemma-2-9b 42 3584 14336 16 8 256 256000
		gemma-2-27b 46 4608 36864 32 16 128 256000 "query_pre_attn_scalar": 144`)
	add("gemma3_text", `"sliding_window": 1024, "eos_token_id": [1, 106], "rope_scaling": {"rope_type": "linear", "factor": 8.0}`, `
		gemma-3-1b 26 1152 6912 4 1 256 262144 "sliding_window": 512, "max_position_embeddings": 32768, "rope_scaling": null
		gemma-3-4b 34 2560 10240 8 4 256 262208
		gemma-3-12b 48 3840 15360 16 8 256 262208
		gemma-3-27b 62 5376 21504 32 16 128 262208 "query_pre_attn_scalar": 168`)
	add("olmo2", `"rms_norm_eps": 1e-6, "max_position_embeddings": 4096, "rope_theta": 500000, "eos_token_id": 100257`, `
		olmo-2-7b 32 4096 11008 32 32 128 100352
		olmo-2-13b 40 5120 13824 40 40 128 100352`)
	add("granite", `"rms_norm_eps": 1e-5, "max_position_embeddings": 131072, "rope_theta": 10000000, "tie_word_embeddings": true, "bos_token_id": 0, "eos_token_id": 0,
		"embedding_multiplier": 12, "residual_multiplier": 0.22`, `
		granite-3.3-2b 40 2048 8192 32 8 64 49159 "attention_multiplier": 0.015625, "logits_scaling": 8
		granite-3.3-8b 40 4096 12800 32 8 128 49159 "attention_multiplier": 0.0078125, "logits_scaling": 16`)
	add("glm4", `"rms_norm_eps": 1e-5, "max_position_embeddings": 32768`, `
		glm-4-9b 40 4096 13696 32 2 128 151552
		glm-4-32b 61 6144 23040 48 2 128 151552 "attention_bias": false`)
	add("smollm3", `"rms_norm_eps": 1e-6, "max_position_embeddings": 65536, "rope_theta": 5000000, "eos_token_id": 128012`,
		`
		smollm3-3b 36 2048 11008 16 4 128 128256`)
	return all
}

// configText makes the config.json of a line.
func configText(family, shared, line string) (name string, text []byte) {
	var n [7]int
	if _, err := fmt.Sscan(line, &name, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6]); err != nil {
		panic("BUG: models: " + line + ": " + err.Error())
	}
	classes := map[string]string{}
	for _, f := range Families() {
		classes[f.Name] = f.Class
	}
	fields := map[string]any{"model_type": family, "architectures": []string{classes[family]}, "torch_dtype": "bfloat16"}
	own := ""
	if at := strings.IndexByte(line, '"'); at >= 0 {
		own = line[at:]
	}
	for _, part := range []string{shared, own} {
		if err := json.Unmarshal([]byte("{"+part+"}"), &fields); err != nil {
			panic("BUG: models: " + part + ": " + err.Error())
		}
	}
	for i, field := range []string{"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
		"num_key_value_heads", "head_dim", "vocab_size"} {
		fields[field] = n[i]
	}
	text, err := json.Marshal(fields)
	if err != nil {
		panic("BUG: models: " + err.Error())
	}
	return name, text
}

// published reads the text of a registered model.
func published(name string, text []byte) Config {
	c, err := Parse(bytes.NewReader(text))
	if err != nil {
		panic("BUG: models: " + name + ": " + err.Error())
	}
	c.Name = name
	return c
}
