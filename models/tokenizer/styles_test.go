package tokenizer

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// styleGolden is what Hugging Face's tokenizers makes of the cases in one style. What is absent equals what is before
// it: Special IDs, Decoded Text, Skipped Decoded.
type styleGolden struct {
	Cases []struct {
		Name, Text       string
		IDs, Special     []int
		Decoded, Skipped *string
	}
}

func styleDirs(t testing.TB) []string {
	dirs, err := filepath.Glob("testdata/styles/*")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(dirs), 20)
	return dirs
}

func TestStylesEqualHuggingFace(t *testing.T) {
	for _, dir := range styleDirs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			tok, err := Open(dir)
			require.NoError(t, err)
			data, err := os.ReadFile(filepath.Join(dir, "golden.json"))
			require.NoError(t, err)
			var g styleGolden
			require.NoError(t, json.Unmarshal(data, &g))
			require.Greater(t, len(g.Cases), 50)
			for _, c := range g.Cases {
				if c.Special == nil {
					c.Special = c.IDs
				}
				if c.Decoded == nil {
					c.Decoded = &c.Text
				}
				if c.Skipped == nil {
					c.Skipped = c.Decoded
				}
				ids, err := tok.Encode(c.Text, false)
				require.NoError(t, err)
				require.Equal(t, c.IDs, orEmpty(ids), "%s: %q", c.Name, c.Text)
				special, err := tok.Encode(c.Text, true)
				require.NoError(t, err)
				require.Equal(t, c.Special, orEmpty(special), "%s: %q", c.Name, c.Text)
				require.Equal(t, *c.Decoded, tok.Decode(ids, false), "%s: %q", c.Name, c.Text)
				require.Equal(t, *c.Skipped, tok.Decode(ids, true), "%s: %q", c.Name, c.Text)
				require.Equal(t, *c.Decoded, decodeAll(t, tok, ids, false), "%s, one id at a time", c.Name)
				require.Equal(t, *c.Skipped, decodeAll(t, tok, ids, true), "%s, one id at a time", c.Name)
			}
		})
	}
}

// TestStreamsOfEveryStyleAreWholeCharacters: of ids at random, half of them bytes of characters that others complete or
// not.
func TestStreamsOfEveryStyleAreWholeCharacters(t *testing.T) {
	for _, dir := range styleDirs(t) {
		tok, err := Open(dir)
		require.NoError(t, err)
		r := texter{Rand: rand.New(rand.NewPCG(3, 4)), bytes: byteIDs(tok)}
		for range 100 {
			ids := r.idList(tok)
			decodeAll(t, tok, ids, false)
			decodeAll(t, tok, ids, true)
		}
	}
}
