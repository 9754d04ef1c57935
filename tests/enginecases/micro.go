package enginecases

import (
	"encoding/json"
	"fmt"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/tokenizer"
)

// Micro is a kernel so small that the executor takes few milliseconds a token:
// one layer, two SMs, pages of 4 tokens, the vocabulary of Bytes.
func Micro() (*megakernel.Kernel, error) {
	c, err := models.Lookup("tiny")
	if err != nil {
		return nil, err
	}
	c.Layers, c.Hidden, c.Intermediate, c.Heads, c.KVHeads, c.HeadDim = 1, 32, 64, 2, 1, 16
	c.BOS, c.EOS = beginToken, []int{endToken}
	return megakernel.Build(c, megakernel.Options{SMs: 2, Consumers: 2, Page: 4, Splits: 2})
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
	file, err := json.Marshal(map[string]any{
		"added_tokens": added,
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]any{"Regex": `\s+|\S+`}, "behavior": "Isolated", "invert": false},
			map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
		}},
		"post_processor": map[string]any{"type": "TemplateProcessing",
			"single":         []any{map[string]any{"SpecialToken": map[string]any{"id": "<s>", "type_id": 0}}, map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}},
			"special_tokens": map[string]any{"<s>": map[string]any{"id": "<s>", "ids": []int{beginToken}, "tokens": []string{"<s>"}}},
		},
		"decoder": map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model":   map[string]any{"type": "BPE", "vocab": vocab, "merges": merges},
	})
	if err != nil {
		return nil, fmt.Errorf("the tokenizer's file: %w", err)
	}
	return tokenizer.Parse(file, []byte(`{"bos_token": "<s>", "eos_token": "</s>", "chat_template":
		"<s>{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"}`))
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
