package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// fileJSON is tokenizer.json, as far as it decides about ids. Truncation and padding are left out: transformers sets
// them anew at each call, and so do our callers.
type fileJSON struct {
	AddedTokens   []addedJSON     `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

type addedJSON struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type modelJSON struct {
	Type         string           `json:"type"`
	Dropout      *float64         `json:"dropout"`
	Prefix       string           `json:"continuing_subword_prefix"`
	Suffix       string           `json:"end_of_word_suffix"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Unknown      *string          `json:"unk_token"`
	FuseUnknown  bool             `json:"fuse_unk"`
	ByteFallback bool             `json:"byte_fallback"`
	Vocab        map[string]int64 `json:"vocab"`
	Merges       []mergeJSON      `json:"merges"`
}

// mergeJSON is one merge: ["a", "b"], or "a b" in files written before 2024-11.
type mergeJSON struct{ left, right string }

func (m *mergeJSON) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var both string
		if err := json.Unmarshal(data, &both); err != nil {
			return err
		}
		left, right, ok := strings.Cut(both, " ")
		if !ok || left == "" || right == "" || strings.Contains(right, " ") {
			return fault("model.merges", quote(both), "two tokens with one space between them")
		}
		m.left, m.right = left, right
		return nil
	}
	var pair []string
	if err := json.Unmarshal(data, &pair); err != nil || len(pair) != 2 {
		return fault("model.merges", quote(string(data)), "a list of two tokens")
	}
	m.left, m.right = pair[0], pair[1]
	return nil
}

// kindJSON is what every component of tokenizer.json starts with.
type kindJSON struct {
	Type string `json:"type"`
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// kind reads a component's type, "" for an absent or null one.
func kind(place string, raw json.RawMessage) (string, error) {
	if absent(raw) {
		return "", nil
	}
	var k kindJSON
	if err := json.Unmarshal(raw, &k); err != nil {
		return "", fmt.Errorf("%s: %w", place, err)
	}
	if k.Type == "" {
		return "", fault(place, "no type", "an object with a type")
	}
	return k.Type, nil
}
