package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// textCase is a checkpoint that transformers wrote, and its greedy texts (scripts/clients/transformers/check.py
// --golden).
type textCase struct {
	Name, Tokenizer, Template, BOS string
	Config                         json.RawMessage
	Shards                         [][]storedTensor
	Prompts, Chats                 []said
}

// storedTensor is name, shape, and "gain" or mantissa and exponent of its weights' recipe.
type storedTensor struct{ synth.Tensor }

// UnmarshalJSON reads the list.
func (s *storedTensor) UnmarshalJSON(text []byte) error {
	var gain string
	if err := json.Unmarshal(text, &[]any{&s.Name, &s.Shape, &gain}); err == nil {
		s.Recipe = synth.Gain()
		return nil
	}
	s.Recipe.Kind = synth.KindNormal
	return json.Unmarshal(text, &[]any{&s.Name, &s.Shape, &s.Recipe.Mantissa, &s.Recipe.Exp})
}

// said is what transformers says: a system message in a conversation, what it is asked, how many tokens of its text no
// arithmetic would choose otherwise, and their text.
type said struct {
	system, asked string
	sure          int
	text          string
}

// UnmarshalJSON reads the list.
func (s *said) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &[]any{&s.asked, &s.sure, &s.text}); err == nil {
		return nil
	}
	return json.Unmarshal(text, &[]any{&s.system, &s.asked, &s.sure, &s.text})
}

// goldenDay is the day that templates name in texts.json; check.py has it, too.
var goldenDay = strings.NewReplacer(`strftime_now("%Y-%m-%d")`, `"2026-11-26"`, `strftime_now("%A")`, `"Thursday"`)

// write makes the checkpoint.
func (c *textCase) write(t *testing.T) string {
	dir, from := t.TempDir(), "../../models/tokenizer/testdata"
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(from, c.Tokenizer))))
	template, err := os.ReadFile(filepath.Join(from, c.Template))
	require.NoError(t, err)
	template = []byte(goldenDay.Replace(string(template)))
	require.NotContains(t, string(template), "strftime_now", "texts.json would depend on the day")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), template, 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), c.Config, 0o666))
	if c.BOS != "" {
		tokens, err := json.Marshal(map[string]string{"bos_token": c.BOS})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), tokens, 0o666))
	}
	places := map[string]string{}
	for i, shard := range c.Shards {
		var tensors []checkpoint.Tensor
		file := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(c.Shards))
		for _, s := range shard {
			bits := make([]half.BF16, s.Elems())
			require.NoError(t, synth.Fill(bits, 7, s.Tensor, 0))
			data := checkpoint.BF16Bytes(bits)
			tensors = append(tensors, checkpoint.Tensor{Name: s.Name, DType: models.BF16, Shape: s.Shape, Data: data})
			places[s.Name] = file
		}
		var data bytes.Buffer
		require.NoError(t, checkpoint.WriteSafetensors(&data, tensors))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), data.Bytes(), 0o666))
	}
	index, err := json.Marshal(map[string]any{"metadata": map[string]any{}, "weight_map": places})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), index, 0o666))
	return dir
}

// Text in, text out: what the command says to a prompt and in a conversation is what transformers says. Quickly one
// question of each family, whose answer is the longest; deeply all of every case.
func TestTextsAreThoseOfTransformers(t *testing.T) {
	text, err := os.ReadFile("testdata/texts.json")
	require.NoError(t, err)
	var cases []textCase
	require.NoError(t, json.Unmarshal(text, &cases))
	seen := map[string]bool{}
	for _, c := range cases {
		config, err := models.Parse(bytes.NewReader(c.Config))
		require.NoError(t, err, c.Name)
		if seen[config.Family] && !deep.On() {
			continue
		}
		seen[config.Family] = true
		t.Run(c.Name, func(t *testing.T) { c.check(t) })
	}
	for _, f := range models.Families() {
		require.True(t, seen[f.Name], "no case of family %s", f.Name)
	}
}

func (c *textCase) check(t *testing.T) {
	dir := c.write(t)
	require.Greater(t, len(c.Shards), 2)
	all := append(c.Chats[:len(c.Chats):len(c.Chats)], c.Prompts...)
	best := all[0]
	for _, s := range all {
		if best.text == "" || s.text != "" && s.sure > best.sure {
			best = s
		}
	}
	require.Positive(t, best.sure)
	require.NotEmpty(t, best.text, "any text begins with an empty one")
	ask := func(s said, chat bool) {
		args := []string{"run", "--checkpoint", dir, "--device", "sim", "--rows", "8"}
		args = append(args, "--max-tokens", fmt.Sprint(max(s.sure, 1)))
		if chat {
			args = append(args, "--chat")
		}
		if s.system != "" {
			args = append(args, "--system", s.system)
		}
		code, got, stderr := mkgen(append(args, s.asked)...)
		require.Equal(t, 0, code, stderr)
		require.True(t, strings.HasPrefix(got, s.text), "%q: got %q, want %q", s.asked, got, s.text)
	}
	for i, s := range all {
		if s == best || deep.On() && s.sure > 0 {
			ask(s, i < len(c.Chats))
		}
	}
}
