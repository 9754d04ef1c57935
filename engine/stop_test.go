package engine

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/models/bundled"
	"github.com/stretchr/testify/require"
)

// cut feeds a text in parts and returns what is shown.
func cut(stops []string, text string, parts func(rest string) int) (shown string, found bool) {
	s := stopper{stops: stops}
	for text != "" && !found {
		n := parts(text)
		var show string
		show, found = s.add(text[:n])
		shown, text = shown+show, text[n:]
	}
	if !found {
		shown += s.flush()
	}
	return shown, found
}

func TestStopTextsCutWhereTheyAreCompleteFirst(t *testing.T) {
	for _, c := range []struct {
		text, stops, want string
		found             bool
	}{
		{"hello world", "o w", "hell", true},
		{"hello world", "xyz", "hello world", false},
		{"hello worl", "world", "hello worl", false}, // held back, then shown
		{"aaab", "aab", "a", true},
		{"abcdef", "bcd|abcdef", "a", true}, // the shorter one is complete first
		{"abcd", "bcd|abcd", "", true},      // together: the longer one
		{"one two", "two|one", "", true},
		{"ab", "", "ab", false},
	} {
		stops := strings.FieldsFunc(c.stops, func(r rune) bool { return r == '|' })
		for n := 1; n <= len(c.text); n++ {
			got, found := cut(stops, c.text, func(rest string) int { return min(n, len(rest)) })
			require.Equal(t, c.want, got, "%q by %d", c.text, n)
			require.Equal(t, c.found, found)
		}
	}
}

// However the text is cut, what is shown is the same, and never the beginning of
// what turns out to be a stop.
func TestWhereTheTextIsCutMakesNoDifference(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	letters := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "ab"[random.IntN(2)]
		}
		return string(b)
	}
	stopped := 0
	for range 3000 {
		text := letters(random.IntN(14))
		var stops []string
		for range random.IntN(3) {
			stops = append(stops, letters(1+random.IntN(6)))
		}
		want, found := cut(stops, text, func(string) int { return 1 })
		for range 3 {
			got, again := cut(stops, text, func(rest string) int { return 1 + random.IntN(len(rest)) })
			require.Equal(t, want, got, "%q, stops %q", text, stops)
			require.Equal(t, found, again)
		}
		require.True(t, strings.HasPrefix(text, want))
		for _, stop := range stops {
			require.NotContains(t, want, stop)
		}
		if found {
			stopped++
		}
	}
	require.Greater(t, stopped, 500)
}

// Text that is made when tokens are handed out is that which is made as they come, where a stop text may end it.
func TestTextThatIsMadeLater(t *testing.T) {
	text, _, err := bundled.Tokenizer("tiny")
	require.NoError(t, err)
	tokens, err := text.Encode("Once upon a time né 日本 there was a dog.", false)
	require.NoError(t, err)
	for _, ends := range [][]int{nil, {tokens[len(tokens)-1]}} {
		o := Options{Text: text, Ends: ends, Kernel: fakeOptions().Kernel}
		want := ""
		for _, at := range []int{1, 3, len(tokens)} { // how many tokens are handed out at a time
			for _, stop := range [][]string{{"\x01"}, nil} {
				a := o.answer(&Request{MaxTokens: len(tokens), Stop: stop}, []int{5}, time.Now())
				var fresh []Piece
				got := ""
				for i, token := range tokens {
					p := a.add(token)
					require.Equal(t, i == len(tokens)-1, p.Finish != "")
					if fresh = append(fresh, p); len(fresh) < at && p.Finish == "" {
						continue
					}
					a.speak(fresh)
					for _, p := range fresh {
						got += p.Text
					}
					fresh = nil
				}
				if p, ok := a.flush(); ok {
					got += p.Text
				}
				if want == "" {
					want = got
				}
				require.Equal(t, want, got)
				require.Equal(t, want, a.result().Text)
			}
		}
		require.Contains(t, want, "日本")
		require.Equal(t, ends == nil, strings.HasSuffix(want, "."))
	}
}
