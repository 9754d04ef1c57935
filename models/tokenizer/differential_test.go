package tokenizer

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	bytes   []int
}

func (r texter) text() string {
	var out strings.Builder
	switch r.IntN(400) {
	case 0, 1: // a very long word
		return strings.Repeat(r.piece()+r.piece(), 100+r.IntN(300))
	case 2: // one that does not repeat
		for range 300 + r.IntN(2000) {
			out.WriteByte('a' + byte(min(r.IntN(26), r.IntN(26))))
		}
		return out.String()
	case 3: // characters of all planes
		for range 1 + r.IntN(300) {
			out.WriteString(r.anyRune())
		}
		return out.String()
	}
	for range r.IntN(30) {
		out.WriteString(strings.Repeat(r.piece(), 1+max(0, r.IntN(12)-8)))
	}
	return out.String()
}

func (r texter) piece() string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	switch r.IntN(12) {
	case 0:
		return pick("ﬁ", "①", "Ａ", "カ\u3099", "각", "ᄀ", "ᅡ", "a\u0323\u0308", "\u0345\u0301\u0334", "İ", "Σς", "▁", "▁▁", "²",
			"\u0898\u0301", "\u1715")
	case 1:
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
		if len(r.special) == 0 {
			return "<|"
		}
		return r.special[r.IntN(len(r.special))]
	case 7:
		return pick("the", " and", "ing", "Word", "def ", "return", "Ünreachable", " unreachable")
	case 8:
		return r.anyRune()
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

// anyRune gives one of all code points that UTF-8 can spell.
func (r texter) anyRune() string {
	for {
		if c := rune(r.IntN(utf8.MaxRune + 1)); utf8.ValidRune(c) {
			return string(c)
		}
	}
}

// broken changes, takes out or puts in a few bytes of a text.
func (r texter) broken() []byte {
	b := []byte(r.text())
	for range 1 + r.IntN(3) {
		if len(b) == 0 {
			break
		}
		at := r.IntN(len(b))
		switch r.IntN(3) {
		case 0:
			b[at] = byte(r.IntN(256))
		case 1:
			b = slices.Delete(b, at, at+1)
		default:
			b = slices.Insert(b, at, byte(0x80+r.IntN(128)))
		}
	}
	return b
}

func newTexter(t *testing.T, tok *Tokenizer) texter {
	r := texter{Rand: rand.New(rand.NewPCG(*hfSeed, 0)), bytes: byteIDs(tok)}
	for _, c := range readGolden(t).Encode {
		r.cases = append(r.cases, c.Text)
	}
	for id := range tok.Size() {
		if name, _ := tok.Token(id); isAdded(tok, id) {
			runes := []rune(name)
			r.special = append(r.special, name, string(runes[:len(runes)-1]), string(runes[1:]))
		}
	}
	return r
}

// oracleAnswer is what hf_oracle.py says about texts and lists of ids.
type oracleAnswer struct {
	IDs, Special, Plain [][]int
	Decoded, Skipped    []string
	Invalid             []int // where each of the byte strings stops being UTF-8, or -1
}

// TestRandomAgainstHuggingFace compares all that a tokenizer does on random texts and lists of ids, in batches.
func TestRandomAgainstHuggingFace(t *testing.T) {
	ask := oracle(t)
	tok, err := Open(*hfDir)
	require.NoError(t, err)
	r := newTexter(t, tok)
	const batch = 200
	texts, differences, size := 0, 0, 0
	for ; texts < *hfRounds; texts += batch {
		var asked struct {
			Texts []string `json:"texts"`
			Lists [][]int  `json:"lists"`
			Bytes [][]byte `json:"bytes"`
		}
		for range batch {
			text := r.text()
			size += len(text)
			asked.Texts = append(asked.Texts, text)
			asked.Lists = append(asked.Lists, r.idList(tok))
			asked.Bytes = append(asked.Bytes, r.broken())
		}
		var want oracleAnswer
		ask(asked, &want)
		for i, text := range asked.Texts {
			if why := compare(tok, text, i, want); why != "" {
				if differences++; differences <= 5 {
					t.Errorf("%q\n%s", text, why)
				}
			}
		}
		for i, b := range asked.Bytes {
			_, err := tok.Encode(string(b), false)
			if refused := err != nil &&
				strings.Contains(err.Error(),
					fmt.Sprintf("at offset %d is not UTF-8", want.Invalid[i])); refused != (want.Invalid[i] >= 0) {
				differences++
				t.Errorf("%q: %v; not UTF-8 from %d on", b, err, want.Invalid[i])
			}
		}
		for i, ids := range asked.Lists {
			if got, want := decodeAll(t, tok, ids, false), want.Decoded[batch+i]; got != want {
				differences++
				t.Errorf("%v\n%q\n%q", ids, got, want)
			}
			if got, want := decodeAll(t, tok, ids, true), want.Skipped[batch+i]; got != want {
				differences++
				t.Errorf("%v, skipping\n%q\n%q", ids, got, want)
			}
		}
		if differences > 5 {
			break
		}
	}
	t.Logf("%s: %d texts of %d bytes and as many lists of ids, %d differences", *hfDir, texts, size, differences)
}

// compare says what differs from the answer about text i.
func compare(tok *Tokenizer, text string, i int, want oracleAnswer) string {
	ids, err := tok.Encode(text, false)
	special, err2 := tok.Encode(text, true)
	plain, err3 := tok.EncodePlain(text)
	switch {
	case err != nil || err2 != nil || err3 != nil:
		return fmt.Sprint(err, err2, err3)
	case !slices.Equal(ids, want.IDs[i]):
		return fmt.Sprintf("ids     %v\nwanted  %v", ids, want.IDs[i])
	case !slices.Equal(special, want.Special[i]):
		return fmt.Sprintf("special %v\nwanted  %v", special, want.Special[i])
	case !slices.Equal(plain, want.Plain[i]):
		return fmt.Sprintf("plain   %v\nwanted  %v", plain, want.Plain[i])
	case tok.Decode(ids, false) != want.Decoded[i]:
		return fmt.Sprintf("decoded %q\nwanted  %q", tok.Decode(ids, false), want.Decoded[i])
	case tok.Decode(ids, true) != want.Skipped[i]:
		return fmt.Sprintf("skipped %q\nwanted  %q", tok.Decode(ids, true), want.Skipped[i])
	}
	return ""
}

// decodeAll decodes one id at a time and checks that every part is whole characters and that the parts are Decode's
// text.
func decodeAll(t *testing.T, tok *Tokenizer, ids []int, skip bool) string {
	d := tok.NewDecoder(skip)
	var out strings.Builder
	for _, id := range ids {
		part := d.Add(id)
		require.True(t, utf8.ValidString(part), "%v", ids)
		out.WriteString(part)
	}
	out.WriteString(d.Flush())
	require.Equal(t, tok.Decode(ids, skip), out.String(), "%v", ids)
	return out.String()
}

// idList makes ids at random; some belong to no token, and half are tokens of a byte, which cut characters.
func (r texter) idList(tok *Tokenizer) []int {
	ids := make([]int, r.IntN(20))
	for i := range ids {
		ids[i] = r.IntN(tok.Size() + 10)
		if len(r.bytes) > 0 && r.IntN(2) == 0 {
			ids[i] = r.bytes[r.IntN(len(r.bytes))]
		}
	}
	return ids
}

// byteIDs are the tokens of one byte, spelled <0x0A> or in the byte-level alphabet.
func byteIDs(tok *Tokenizer) (out []int) {
	for id := range tok.Size() {
		name, _ := tok.Token(id)
		text, mapped := unmap(name)
		if _, ok := byteToken(name); ok || mapped && len(text) == 1 {
			out = append(out, id)
		}
	}
	return out
}

// isAdded reports whether id is an added token that can be cut.
func isAdded(tok *Tokenizer, id int) bool {
	_, raw := tok.raw.tokens[int32(id)]
	_, normalized := tok.normalized.tokens[int32(id)]
	name, _ := tok.Token(id)
	return (raw || normalized) && utf8.RuneCountInString(name) > 1
}
