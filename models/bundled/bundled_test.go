package bundled_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/bundled"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/quant"
	"github.com/mkgen/mkgen/models/tokenizer"
)

// golden is testdata/golden.json: what Hugging Face makes of the bundled tokenizer and weights. See train/golden.py.
type golden struct {
	Texts []struct {
		Text      string
		IDs, Bare []int
	}
	Chats []struct {
		Messages []tokenizer.Message
		Text     string
		IDs      []int
	}
	Continuations []struct {
		Prompt, Text string
		IDs, Chosen  []int
		Margins      []float64
	}
}

func readGolden(t testing.TB) golden {
	data, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(data, &g))
	require.Greater(t, len(g.Texts), 15)
	require.Len(t, g.Chats, 2)
	require.Len(t, g.Continuations, 3)
	return g
}

// open opens the bundled model.
func open(t testing.TB) (*checkpoint.Checkpoint, *tokenizer.Tokenizer) {
	c, ok, err := bundled.Checkpoint("tiny")
	require.NoError(t, err)
	require.True(t, ok)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	tok, ok, err := bundled.Tokenizer("tiny")
	require.NoError(t, err)
	require.True(t, ok)
	return c, tok
}

func TestTheConfigurationIsTheRegisteredOne(t *testing.T) {
	want, err := models.Lookup("tiny")
	require.NoError(t, err)
	c, ok, err := bundled.Checkpoint("tiny")
	require.NoError(t, err)
	require.True(t, ok)
	got := c.Config()
	got.Name = "tiny"
	require.Equal(t, want, got)
	require.Equal(t, want.EOS, c.EndTokens())
	require.NoError(t, c.Close())
}

// TestBundledModelsAreWhole: every one opens, has finite weights and a tokenizer.
func TestBundledModelsAreWhole(t *testing.T) {
	require.True(t, slices.IsSorted(bundled.Names()))
	for _, name := range bundled.Names() {
		tok, ok, err := bundled.Tokenizer(name)
		require.NoError(t, err, name)
		require.True(t, ok)
		files, ok := bundled.Files(name)
		require.True(t, ok)
		if bundled.Quantised(name) {
			m, err := quant.OpenModelFS(files)
			require.NoError(t, err, name)
			require.Equal(t, m.Config().Vocab, tok.Size())
			_, format, _ := strings.Cut(name, "-")
			require.Contains(t, m.Summary(), "14 matrices of "+format)
			require.NoError(t, m.Close())
			continue
		}
		c, _, err := bundled.Checkpoint(name)
		require.NoError(t, err, name)
		require.Equal(t, c.Config().Vocab, tok.Size())
		require.NoError(t, c.Check(context.Background(), nil))
		require.NoError(t, c.Close())
	}
}

func TestOtherNamesAreNotBundled(t *testing.T) {
	for _, name := range []string{"", "llama3.2-1b", "Tiny", "tiny/", "../tiny"} {
		c, ok, err := bundled.Checkpoint(name)
		require.Nil(t, c)
		require.False(t, ok)
		require.NoError(t, err)
		tok, ok, err := bundled.Tokenizer(name)
		require.Nil(t, tok)
		require.False(t, ok)
		require.NoError(t, err)
		_, ok = bundled.Files(name)
		require.False(t, ok)
	}
}

func TestTheBundleIsSmallAndSaysWhereItIsFrom(t *testing.T) {
	fsys, ok := bundled.Files("tiny")
	require.True(t, ok)
	size := int64(0)
	require.NoError(t, fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		if !d.IsDir() {
			size += info.Size()
		}
		return nil
	}))
	require.Less(t, size, int64(3<<20))
	readme, err := fs.ReadFile(fsys, "README.md")
	require.NoError(t, err)
	record, err := fs.ReadFile(fsys, "train.json")
	require.NoError(t, err)
	var made struct {
		Digest string `json:"text_sha256"`
		Bits   struct {
			Held json.Number `json:"held_out"`
		} `json:"bits_per_byte"`
	}
	require.NoError(t, json.Unmarshal(record, &made))
	for _, s := range []string{"public domain", "Project Gutenberg", made.Digest,
		made.Bits.Held.String() + " bits per byte"} {
		require.Contains(t, string(readme), s)
	}
}

func TestTheTokenizerAgreesWithHuggingFace(t *testing.T) {
	c, tok := open(t)
	require.Equal(t, c.Config().Vocab, tok.Size())
	bos, ok := tok.BOS()
	require.True(t, ok)
	require.Equal(t, c.Config().BOS, bos)
	eos, ok := tok.EOS()
	require.True(t, ok)
	require.Contains(t, c.EndTokens(), eos)
	for _, g := range readGolden(t).Texts {
		ids, err := tok.Encode(g.Text, true)
		require.NoError(t, err, "%q", g.Text)
		require.Equal(t, g.IDs, ids, "%q", g.Text)
		require.Equal(t, g.IDs[1:], g.Bare, "%q", g.Text)
		require.Equal(t, g.Text, tok.Decode(g.Bare, false))
	}
}

func TestTheChatTemplateAgreesWithTransformers(t *testing.T) {
	c, tok := open(t)
	template, err := tok.ChatTemplate("")
	require.NoError(t, err)
	for _, g := range readGolden(t).Chats {
		text, err := template.Render(g.Messages, tokenizer.ChatOptions{AddGenerationPrompt: true})
		require.NoError(t, err)
		require.Equal(t, g.Text, text)
		ids, err := tok.Encode(text, false)
		require.NoError(t, err)
		require.Equal(t, g.IDs, ids)
		end, ok := tok.ID("<|eot_id|>")
		require.True(t, ok)
		require.Equal(t, end, ids[len(ids)-1], "the template must end the last message, so that a new one begins")
		require.Contains(t, c.EndTokens(), end)
	}
}
