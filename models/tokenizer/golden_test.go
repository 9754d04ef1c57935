package tokenizer

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is testdata/golden.json: what Hugging Face's tokenizers makes of the hard cases.
type golden struct {
	By     string
	Encode []struct {
		Name, Text          string
		IDs, Special, Plain []int
	}
	Decode []struct {
		Name, Text, Skipped string
		IDs                 []int
	}
	Variants []struct {
		Name, Text string
		Replace    [][2]string      // changes of tokenizer.json
		Differ     map[string][]int // by case: ids with special tokens where they are others than Llama 3's
		IDs        []int            // decode to Text
	}
}

func readGolden(t testing.TB) golden {
	data, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(data, &g))
	require.Greater(t, len(g.Encode), 150)
	require.Greater(t, len(g.Decode), 90)
	return g
}

func open(t testing.TB) *Tokenizer {
	tok, err := Open("testdata/llama3-like")
	require.NoError(t, err)
	return tok
}

// orEmpty makes nil an empty list, as JSON has it.
func orEmpty(ids []int) []int {
	if ids == nil {
		return []int{}
	}
	return ids
}

func TestEncodeEqualsHuggingFace(t *testing.T) {
	tok := open(t)
	for _, c := range readGolden(t).Encode {
		t.Run(c.Name, func(t *testing.T) {
			ids, err := tok.Encode(c.Text, false)
			require.NoError(t, err)
			require.Equal(t, c.IDs, orEmpty(ids))
			special, err := tok.Encode(c.Text, true)
			require.NoError(t, err)
			require.Equal(t, c.Special, special)
			plain, err := tok.EncodePlain(c.Text)
			require.NoError(t, err)
			require.Equal(t, c.Plain, orEmpty(plain))
			require.Equal(t, c.Text, tok.Decode(ids, false), "decoding gives the text back")
			require.Equal(t, c.Text, tok.Decode(plain, true))
		})
	}
}

func TestDecodeEqualsHuggingFace(t *testing.T) {
	tok := open(t)
	for _, c := range readGolden(t).Decode {
		t.Run(c.Name, func(t *testing.T) {
			require.Equal(t, c.Text, tok.Decode(c.IDs, false))
			require.Equal(t, c.Skipped, tok.Decode(c.IDs, true))
		})
	}
}
