package enginecases

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/models/tokenizer"
)

// Micro is a kernel so small that the executor takes few milliseconds a token:
// one layer, two SMs, pages of 4 tokens, the vocabulary of Bytes; with n query rows a step.
func Micro(rows int) (*megakernel.Kernel, error) {
	c, err := models.Parse(strings.NewReader(microConfig))
	if err != nil {
		return nil, err
	}
	o := megakernel.Options{SMs: 2, Consumers: 2, Page: 4, Tokens: rows}
	if rows == 1 {
		o.Splits = 2
	}
	return megakernel.Build(c, o)
}

// microConfig is Micro's config.json.
const microConfig = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 1, "hidden_size": 32,
"intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 320, "max_position_embeddings": 512,
"rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": true, "bos_token_id": 264, "eos_token_id": 265, "torch_dtype": "bfloat16"}`

// WriteCheckpoint writes Micro with the weights of a seed, and Bytes, as a Hugging
// Face checkpoint into a directory that is there.
func WriteCheckpoint(dir string, seed uint64) error {
	mk, err := Micro(1)
	if err != nil {
		return err
	}
	if err := WriteTensors(dir, mk.Config, seed); err != nil {
		return err
	}
	file, err := tokenizerFile()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"config.json": []byte(microConfig),
		"tokenizer.json": file, "tokenizer_config.json": []byte(tokenizerConfig)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// WriteTensors writes model.safetensors of a model into a directory that is there: bf16 weights of a seed.
func WriteTensors(dir string, c models.Config, seed uint64) error {
	var tensors []checkpoint.Tensor
	for _, t := range synth.Tensors(c) {
		bits := make([]half.BF16, t.Elems())
		if err := synth.Fill(bits, seed, t, 0); err != nil {
			return err
		}
		tensors = append(tensors, checkpoint.Tensor{Name: t.Name, DType: models.BF16, Shape: t.Shape,
			Data: checkpoint.BF16Bytes(bits)})
	}
	var data bytes.Buffer
	if err := checkpoint.WriteSafetensors(&data, tensors); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, checkpoint.SingleFile), data.Bytes(), 0o666)
}

// The special tokens of Bytes; 256 to 263 are pairs of bytes.
const (
	beginToken = 264 + iota
	endToken
	userToken
	assistantToken
)

// Bytes is a tokenizer whose first 256 tokens are the bytes, so that what a random
// model writes is mostly broken UTF-8. Its ids are below the 320 of the model tiny.
func Bytes() (*tokenizer.Tokenizer, error) {
	file, err := tokenizerFile()
	if err != nil {
		return nil, err
	}
	return tokenizer.Parse(file, []byte(tokenizerConfig))
}

// tokenizerConfig is Bytes' tokenizer_config.json.
const tokenizerConfig = `{"bos_token": "<s>", "eos_token": "</s>", "chat_template":
"<s>{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"}`

// tokenizerFile is Bytes' tokenizer.json.
func tokenizerFile() ([]byte, error) {
	vocab := map[string]int{}
	for b := range 256 {
		vocab[spelling(byte(b))] = b
	}
	var merges []string
	for i, pair := range []string{"th", "he", "in", "er", "an", "on", "re", "at"} {
		vocab[pair] = 256 + i
		merges = append(merges, pair[:1]+" "+pair[1:])
	}
	var added []map[string]any
	for i, name := range []string{"<s>", "</s>", "<user>", "<assistant>"} {
		added = append(added, map[string]any{"id": beginToken + i, "content": name, "special": true})
	}
	return json.Marshal(map[string]any{
		"added_tokens": added,
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]any{"Regex": `\s+|\S+`}, "behavior": "Isolated",
				"invert": false},
			map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
		}},
		"post_processor": map[string]any{"type": "TemplateProcessing",
			"single": []any{map[string]any{"SpecialToken": map[string]any{"id": "<s>", "type_id": 0}},
				map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}},
			"special_tokens": map[string]any{"<s>": map[string]any{"id": "<s>", "ids": []int{beginToken},
				"tokens": []string{"<s>"}}},
		},
		"decoder": map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model":   map[string]any{"type": "BPE", "vocab": vocab, "merges": merges},
	})
}

// spelling is a byte in the alphabet of tokenizer.json.
func spelling(b byte) string {
	r := rune(b)
	switch {
	case b <= 0x20:
		r = 0x100 + rune(b)
	case b >= 0x7f && b <= 0xa0:
		r = 0x121 + rune(b) - 0x7f
	case b == 0xad:
		r = 0x143
	}
	return string(r)
}
