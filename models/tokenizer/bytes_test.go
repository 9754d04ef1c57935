package tokenizer

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Behind a first token the text of any tokens is their bytes.
func TestBytesOfTokensAreTheirText(t *testing.T) {
	dirs := []string{"testdata/llama3-like"}
	styles, err := os.ReadDir("testdata/styles")
	require.NoError(t, err)
	for _, d := range styles {
		if d.IsDir() {
			dirs = append(dirs, filepath.Join("testdata/styles", d.Name()))
		}
	}
	require.Greater(t, len(dirs), 3)
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			tok, err := Open(dir)
			require.NoError(t, err)
			r, compared := rand.New(rand.NewPCG(1, 2)), 0
			for range 3000 {
				ids := []int{r.IntN(tok.Size())}
				begin := tok.Decode(ids, false)
				var added []byte
				for range 1 + r.IntN(4) {
					id := r.IntN(tok.Size())
					b, ok := tok.Bytes(id)
					require.Equal(t, tok.known(id), ok)
					ids, added = append(ids, id), append(added, b...)
				}
				if !utf8.Valid(added) || !utf8.ValidString(begin) || begin == "" || begin[len(begin)-1] >= 0x80 {
					continue
				}
				compared++
				require.Equal(t, begin+string(added), tok.Decode(ids, false), "%v", ids)
			}
			require.Greater(t, compared, 300)
		})
	}
	_, ok := (&Tokenizer{}).Bytes(-1)
	require.False(t, ok)
}

// A text behind another one begins with the space of its first word, which a text of its own has not.
func TestATextBehindAnotherKeepsItsFirstSpace(t *testing.T) {
	for _, style := range []string{"llama2", "metaspace", "mistral", "unigram"} {
		tok, err := Open(filepath.Join("testdata/styles", style))
		require.NoError(t, err)
		ids, err := tok.Encode("abc", false)
		require.NoError(t, err)
		alone, behind, texts := tok.NewDecoder(true), tok.NewDecoder(true), [2]string{}
		behind.Behind()
		for _, id := range ids {
			texts[0] += alone.Add(id)
			texts[1] += behind.Add(id)
		}
		require.Equal(t, [2]string{"abc", " abc"}, [2]string{texts[0] + alone.Flush(), texts[1] + behind.Flush()}, style)
	}
}
