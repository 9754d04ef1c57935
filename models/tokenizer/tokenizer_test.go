package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
	"github.com/stretchr/testify/require"
)

func TestNamesAndIDs(t *testing.T) {
	tok := open(t)
	require.Equal(t, 2072, tok.Size())
	bos, ok := tok.BOS()
	require.True(t, ok)
	require.Equal(t, 2048, bos)
	eos, ok := tok.EOS()
	require.True(t, ok)
	id, ok := tok.ID("<|eot_id|>")
	require.True(t, ok)
	require.Equal(t, id, eos)
	name, id, ok := tok.Named("pad_token")
	require.True(t, ok)
	require.Equal(t, "<|finetune_right_pad_id|>", name)
	require.True(t, tok.Special(id))
	_, _, ok = tok.Named("mask_token")
	require.False(t, ok)
	_, ok = tok.ID("<nope>")
	require.False(t, ok)
	space, ok := tok.ID("Ġ")
	require.True(t, ok)
	require.False(t, tok.Special(space))
	name, ok = tok.Token(space)
	require.True(t, ok)
	require.Equal(t, "Ġ", name)
	for _, id := range []int{-1, tok.Size(), 1 << 40} {
		_, ok = tok.Token(id)
		require.False(t, ok)
		require.False(t, tok.Special(id))
		require.Empty(t, tok.Decode([]int{id}, false))
	}
}

func TestByteAlphabetIsABijection(t *testing.T) {
	seen := map[byte]bool{}
	for r := rune(0); r < 0x300; r++ {
		if b, ok := byteOf(r); ok {
			require.False(t, seen[b], "two characters for byte %#x", b)
			seen[b] = true
		}
	}
	require.Len(t, seen, 256)
	text, ok := unmap("ĠHelloĊ")
	require.True(t, ok)
	require.Equal(t, " Hello\n", text)
	_, ok = unmap("a b")
	require.False(t, ok, "a space stands for no byte")
}

// TestClassesMatchTheTables: the engine's classes are the tables', at every border and in between, whatever Go's
// version of Unicode is.
func TestClassesMatchTheTables(t *testing.T) {
	if testing.Short() {
		t.Skip("values that one goroutine makes, with -short")
	}
	for pattern, table := range classTables {
		if pattern[0] != '\\' {
			continue
		}
		translated, err := translate(pattern)
		require.NoError(t, err)
		re := regexp2.MustCompile(translated)
		inverse, err := translate(`[^` + pattern + `]`)
		require.NoError(t, err)
		not := regexp2.MustCompile(inverse)
		var tried []rune
		for _, run := range table {
			tried = append(tried, run[0]-1, run[0], run[1], run[1]+1)
		}
		for r := rune(0); r <= unicode.MaxRune; r += 61 {
			tried = append(tried, r)
		}
		for _, r := range tried {
			want := slices.ContainsFunc(table, func(run [2]rune) bool { return run[0] <= r && r <= run[1] })
			is, err := re.MatchRunes([]rune{r})
			require.NoError(t, err)
			isNot, err := not.MatchRunes([]rune{r})
			require.NoError(t, err)
			if is != want || isNot == want {
				t.Fatalf("%s and %U: %v, its inverse %v; the table says %v", pattern, r, is, isNot, want)
			}
		}
	}
}

func TestStreamingGivesWhatDecodeGives(t *testing.T) {
	tok := open(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		ids := make([]int, r.IntN(20))
		for i := range ids {
			ids[i] = r.IntN(tok.Size())
			if r.IntN(2) == 0 {
				ids[i] = int(tok.model.(*bpe).single[0x80+r.IntN(0x80)])
			}
		}
		for _, skip := range []bool{false, true} {
			d := tok.NewDecoder(skip)
			var out strings.Builder
			for _, id := range ids {
				piece := d.Add(id)
				require.True(t, utf8.ValidString(piece), "a piece is whole characters")

				out.WriteString(piece)
			}
			out.WriteString(d.Flush())
			require.Empty(t, d.Flush())
			require.Equal(t, tok.Decode(ids, skip), out.String())
		}
	}
}

func TestStreamingHoldsCharactersBack(t *testing.T) {
	tok := open(t)
	d := tok.NewDecoder(true)
	add := func(b byte) string { return d.Add(int(tok.model.(*bpe).single[b])) }
	require.Equal(t, "a", add('a'))
	for _, b := range []byte("😀")[:3] {
		require.Empty(t, add(b))
	}
	require.Equal(t, "😀", add("😀"[3]))
	require.Empty(t, add(0xe6))
	eot, _ := tok.ID("<|eot_id|>")
	require.Empty(t, d.Add(eot), "a skipped token does not end a character")
	require.Empty(t, add(0xbc))
	require.Equal(t, "\ufffdb", add('b'), "two bytes of a character that goes wrong are one U+FFFD")
	require.Empty(t, add(0xf0))
	require.Equal(t, "\ufffd", d.Flush())
	require.Equal(t, "c", add('c'), "the next text begins clean")
}

func TestHugeTexts(t *testing.T) {
	if testing.Short() {
		t.Skip("values that one goroutine makes, with -short")
	}
	tok := open(t)
	for _, piece := range []string{"a", "ab", " ", " \n", "\n", "'", "1", "-", "😀", "e\u0301", "<|", "<|eot_id|>",
		"word "} {
		text := strings.Repeat(piece, 200000/len(piece))
		began := time.Now()
		ids, err := tok.Encode(text, false)
		require.NoError(t, err)
		require.Less(t, time.Since(began), 20*time.Second, "%q", piece)
		require.Equal(t, text, tok.Decode(ids, false), "%q", piece)
	}
}

func TestManyGoroutinesAtOnce(t *testing.T) {
	tok := open(t)
	template, err := tok.ChatTemplate("")
	require.NoError(t, err)
	want, err := tok.Encode("Hello <|eot_id|> wörld 1234", true)
	require.NoError(t, err)
	done := make(chan bool)
	for range 4 {
		go func() {
			same := true
			for range 50 {
				ids, err := tok.Encode("Hello <|eot_id|> wörld 1234", true)
				same = same && err == nil && len(ids) == len(want)
				_, err = template.Render([]Message{{Role: "user", Content: "x"}}, ChatOptions{})
				same = same && err == nil
			}
			done <- same
		}()
	}
	for range 4 {
		require.True(t, <-done)
	}
}
