package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// styleGolden is what Hugging Face's tokenizers makes of the cases in one style. What is absent equals what is before it:
// Special IDs, Decoded Text, Skipped Decoded.
type styleGolden struct {
	Cases []struct {
		Name, Text       string
		IDs, Special     []int
		Decoded, Skipped *string
	}
}

func TestStylesEqualHuggingFace(t *testing.T) {
	dirs, err := filepath.Glob("testdata/styles/*")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(dirs), 17)
	for _, dir := range dirs {
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
			}
		})
	}
}
