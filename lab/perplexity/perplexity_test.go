package perplexity_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/mkgen/mkgen/lab/perplexity"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/bundled"
	"github.com/stretchr/testify/require"
)

// TestCrossEntropyIsThatOfTransformers compares with what testdata/make_golden.py computed in float32.
func TestCrossEntropyIsThatOfTransformers(t *testing.T) {
	text, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var golden struct {
		Text           string
		Window, Tokens int
		Windows        [][]int
		Nats           float64
	}
	require.NoError(t, json.Unmarshal(text, &golden))
	c, _, err := bundled.Checkpoint("tiny")
	require.NoError(t, err)
	defer c.Close()
	tok, _, err := bundled.Tokenizer("tiny")
	require.NoError(t, err)
	ids, err := tok.Encode(golden.Text, false)
	require.NoError(t, err)
	windows := perplexity.Windows(ids, c.Config().BOS, golden.Window)
	require.Equal(t, golden.Windows, windows)
	last := 0
	r, err := perplexity.Measure(t.Context(), c.Config(), c, windows, func(done, total int) {
		require.Equal(t, golden.Tokens, total)
		require.Greater(t, done, last)
		last = done
	})
	require.NoError(t, err)
	require.Equal(t, golden.Tokens, r.Tokens)
	require.Equal(t, golden.Tokens, last)
	require.InEpsilon(t, golden.Nats, r.Nats, 1e-5)
	require.Greater(t, r.Perplexity(), 1.5)
}

// A text's sequences are of 512 tokens, the first of each bos; without these they are the text's tokens.
func TestATextIsCutIntoSequences(t *testing.T) {
	text, err := os.ReadFile("testdata/tale.txt")
	require.NoError(t, err)
	tok, _, err := bundled.Tokenizer("tiny")
	require.NoError(t, err)
	ids, err := tok.Encode(string(text), false)
	require.NoError(t, err)
	bos, ok := tok.BOS()
	require.True(t, ok)
	config := models.Config{BOS: bos + 1, MaxPositions: 1000}
	windows, err := perplexity.Cut(config, tok, string(text))
	require.NoError(t, err)
	require.Equal(t, perplexity.Windows(ids, bos, 512), windows)
	require.Len(t, windows, 4)
	for i, w := range windows {
		require.Equal(t, bos, w[0])
		require.True(t, i == 3 || len(w) == 512)
	}
	config.MaxPositions = 100
	windows, err = perplexity.Cut(config, tok, string(text))
	require.NoError(t, err)
	require.Len(t, windows[0], 100)
}

func TestRefused(t *testing.T) {
	c, _, err := bundled.Checkpoint("tiny")
	require.NoError(t, err)
	defer c.Close()
	measure := func(c models.Config, windows [][]int) error {
		_, err := perplexity.Measure(t.Context(), c, nil, windows, nil)
		return err
	}
	require.EqualError(t, measure(c.Config(), [][]int{{0, 320}}), "found token 320, want 0 to 319")
	require.EqualError(t, measure(c.Config(), [][]int{{0}}), "found no token to predict, want a text")
	big, err := models.Lookup("llama3-70b")
	require.NoError(t, err)
	require.ErrorContains(t, measure(big, [][]int{make([]int, 100)}),
		"found 99 tokens for a model of 70553706496 parameters, want at most 56")
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = perplexity.Measure(ended, c.Config(), c, [][]int{{0, 1, 2}}, nil)
	require.ErrorIs(t, err, context.Canceled)
}
