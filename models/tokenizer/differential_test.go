package tokenizer

import (
	"bufio"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

var (
	hfPython = flag.String("hf", "", "Python with tokenizers: compare with it on random texts and ids")
	hfDir    = flag.String("hf-dir", "testdata/llama3-like", "checkpoint whose tokenizer to compare")
	hfRounds = flag.Int("hf-rounds", 3000, "how many texts, and how many lists of ids")
	hfSeed   = flag.Uint64("hf-seed", 1, "seed of the texts and ids")
)

// oracle asks testdata/hf_oracle.py.
func oracle(t *testing.T) func(ask, answer any) {
	if *hfPython == "" {
		t.Skip("no -hf: the Python that has Hugging Face's tokenizers")
	}
	cmd := exec.Command(*hfPython, "-B", "testdata/hf_oracle.py", filepath.Join(*hfDir, tokenizerFile))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	})
	lines := bufio.NewReader(out)
	return func(ask, answer any) {
		line, err := json.Marshal(ask)
		require.NoError(t, err)
		_, err = in.Write(append(line, '\n'))
		require.NoError(t, err)
		reply, err := lines.ReadBytes('\n')
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(reply, answer))
	}
}

// texter makes random texts of what pre-tokenizers and added tokens care about.
type texter struct {
	*rand.Rand
	cases   []string
	special []string
}

func (r texter) text() string {
	var out strings.Builder
	for range r.IntN(30) {
		out.WriteString(strings.Repeat(r.piece(), 1+max(0, r.IntN(12)-8)))
	}
	return out.String()
}

func (r texter) piece() string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	switch r.IntN(12) {
	case 0, 1:
		return pick(" ", "\n", "\r", "\t", "\u00a0", "\u3000", "\u0085", "\u200b", "\r\n", "\u2028")
	case 2:
		return pick("'s", "'LL", "'ve", "'", "'ſ", "’s", "'d", "'re", "'M", "'T")
	case 3:
		return pick("1", "22", "333", "4444", "²", "٣", "½", "Ⅳ", "𝟘")
	case 4:
		return pick("é", "e\u0301", "漢字", "של", "سلام", "ด้", "👩‍👩‍👧‍👦", "🇩🇪", "ß", "ǅ", "\u1c89", "\U000105c0")
	case 5:
		return pick("!", "...", "->", "{}", "\\", "//", "<|", "|>", "_", "\"", "\x00", "\x1c")
	case 6:
		return r.special[r.IntN(len(r.special))]
	case 7:
		return pick("the", " and", "ing", "Word", "def ", "return", "Ünreachable", " unreachable")
	case 8:
		for {
			if c := rune(r.IntN(utf8.MaxRune + 1)); utf8.ValidRune(c) {
				return string(c)
			}
		}
	case 9:
		return string(rune(r.IntN(0x250)))
	default:
		runes := []rune(r.cases[r.IntN(len(r.cases))])
		if len(runes) == 0 {
			return ""
		}
		from := r.IntN(len(runes))
		return string(runes[from:min(len(runes), from+1+r.IntN(20))])
	}
}

func newTexter(t *testing.T, tok *Tokenizer) texter {
	r := texter{Rand: rand.New(rand.NewPCG(*hfSeed, 0))}
	for _, c := range readGolden(t).Encode {
		r.cases = append(r.cases, c.Text)
	}
	for id := range tok.Size() {
		if name, _ := tok.Token(id); tok.Special(id) {
			r.special = append(r.special, name, name[:len(name)-1], name[1:])
		}
	}
	return r
}

func TestRandomTextsAgainstHuggingFace(t *testing.T) {
	ask := oracle(t)
	tok, err := Open(*hfDir)
	require.NoError(t, err)
	r := newTexter(t, tok)
	tokens := 0
	for range *hfRounds {
		text := r.text()
		var want struct{ IDs, Special, Plain []int }
		ask(map[string]any{"text": text}, &want)
		ids, err := tok.Encode(text, false)
		require.NoError(t, err)
		require.Equal(t, want.IDs, orEmpty(ids), "%q", text)
		special, err := tok.Encode(text, true)
		require.NoError(t, err)
		require.Equal(t, want.Special, orEmpty(special), "%q", text)
		plain, err := tok.EncodePlain(text)
		require.NoError(t, err)
		require.Equal(t, want.Plain, orEmpty(plain), "%q", text)
		tokens += len(ids)
	}
	t.Logf("%d texts, %d tokens", *hfRounds, tokens)
}

func TestRandomIDsAgainstHuggingFace(t *testing.T) {
	ask := oracle(t)
	tok, err := Open(*hfDir)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(*hfSeed, 1))
	for range *hfRounds {
		ids := make([]int, r.IntN(30))
		for i := range ids {
			ids[i] = r.IntN(tok.Size() + 10) // some belong to no token
			if r.IntN(2) == 0 {
				ids[i] = int(tok.bpe.single[r.IntN(256)]) // cut characters
			}
		}
		var want struct{ Text, Skipped string }
		ask(map[string]any{"ids": ids}, &want)
		require.Equal(t, want.Text, tok.Decode(ids, false), "%v", ids)
		require.Equal(t, want.Skipped, tok.Decode(ids, true), "%v", ids)
	}
}
