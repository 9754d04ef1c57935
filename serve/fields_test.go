package serve

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// An escape is half of a character just where package encoding/json reads U+FFFD for it.
func TestHalvesOfCharactersAreThoseThatJSONReadsAsUnknown(t *testing.T) {
	parts := []string{`\ud83d`, `\uDE00`, `\ud83d\ude00`, `\udbff`, `\uE000`, `\u0041`, `\\`, `\\ud83d`, `\n`, `\"`, "u", "d83d", "é", "😀"}
	r, halves := rand.New(rand.NewPCG(1, 1)), 0
	for range 20_000 {
		var text strings.Builder
		for range r.IntN(6) {
			text.WriteString(parts[r.IntN(len(parts))])
		}
		body := `{"prompt": "` + text.String() + `"}`
		var read struct{ Prompt string }
		require.NoError(t, json.Unmarshal([]byte(body), &read))
		half := strings.ContainsRune(read.Prompt, utf8.RuneError)
		require.Equal(t, half, loneSurrogate([]byte(body)) >= 0, body)
		if half {
			halves++
		}
	}
	require.Greater(t, halves, 5_000)
}
