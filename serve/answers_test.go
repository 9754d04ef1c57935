package serve

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mkgen/mkgen/engine"
	"github.com/stretchr/testify/require"
)

// textsOf joins the events' texts by choice, and counts the events of each.
func textsOf(t *testing.T, events []reading, choices int) (texts []string, counts []int, finishes []string) {
	t.Helper()
	texts, counts, finishes = make([]string, choices), make([]int, choices), make([]string, choices)
	for _, e := range events {
		for _, c := range e.Choices {
			require.Empty(t, finishes[c.Index], "an event behind the last")
			part := c.Text
			if c.Delta != nil {
				part = c.Delta.Content
			}
			require.True(t, utf8.ValidString(*part))
			texts[c.Index] += *part
			counts[c.Index]++
			if c.Finish != nil {
				finishes[c.Index] = *c.Finish
			}
		}
	}
	return texts, counts, finishes
}

func TestAStreamIsTheWholeAnswerOneTokenAnEvent(t *testing.T) {
	s := onTiny(t, nil)
	for path, body := range map[string]string{
		"/v1/completions":      `"prompt":["Once upon a time","The dog",[1,2,3]],"n":1`,
		"/v1/chat/completions": `"messages":[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"text","text":"you"}]}],"n":3`,
	} {
		body += `,"max_tokens":5,"temperature":0.9,"top_p":0.95,"top_k":50,"min_p":0.01,"seed":-4`
		whole := s.must(path, "{"+body+"}")
		events := s.events(path, "{"+body+`,"stream":true,"stream_options":{"include_usage":true}}`)
		last := events[len(events)-1]
		require.Empty(t, last.Choices)
		require.Equal(t, whole.Usage.Prompt, last.Usage.Prompt)
		require.Equal(t, whole.Usage.Answer, last.Usage.Answer)
		texts, counts, finishes := textsOf(t, events, len(whole.Choices))
		for i, c := range whole.Choices {
			want := c.Text
			if c.Message != nil {
				want = c.Message.Content
				require.Equal(t, "assistant", c.Message.Role)
			}
			require.Equal(t, i, c.Index)
			require.Equal(t, *want, texts[i])
			require.Equal(t, *c.Finish, finishes[i])
			require.LessOrEqual(t, counts[i], 5)
		}
		require.Len(t, events, last.Usage.Answer+1)
		for _, e := range events[:len(events)-1] {
			require.Nil(t, e.Usage)
			require.Equal(t, events[0].ID, e.ID)
		}
	}
}

func TestChoicesOfOneSeedDifferAndARequestRepeats(t *testing.T) {
	s := onTiny(t, nil)
	const body = `{"prompt":"The","max_tokens":5,"n":3,"temperature":2,"seed":%d}`
	first, again, other := s.must("/v1/completions", fmt.Sprintf(body, 5)), s.must("/v1/completions", fmt.Sprintf(body,
		5)), s.must("/v1/completions", fmt.Sprintf(body, 50))
	require.Equal(t, first.Choices, again.Choices)
	require.NotEqual(t, first.Choices, other.Choices)
	require.NotEqual(t, *first.Choices[0].Text, *first.Choices[1].Text)
}

func TestEchoBeginsWithThePromptOnce(t *testing.T) {
	s := onTiny(t, nil)
	plain := s.must("/v1/completions", `{"prompt":"The dog","max_tokens":3,"temperature":0}`)
	want := "The dog" + *plain.Choices[0].Text
	require.Equal(t, want, *s.must("/v1/completions",
		`{"prompt":"The dog","max_tokens":3,"temperature":0,"echo":true}`).Choices[0].Text)
	texts, _, _ := textsOf(t, s.events("/v1/completions",
		`{"prompt":"The dog","max_tokens":3,"temperature":0,"echo":true,"stream":true}`), 1)
	require.Equal(t, want, texts[0])
	none := s.must("/v1/completions", `{"prompt":"The dog","max_tokens":0,"echo":true}`)
	require.Equal(t, "The dog", *none.Choices[0].Text)
	require.Zero(t, none.Usage.Answer)
	texts, _, finishes := textsOf(t, s.events("/v1/completions",
		`{"prompt":"The dog","max_tokens":0,"echo":true,"stream":true}`), 1)
	require.Equal(t, "The dog", texts[0])
	require.Equal(t, "length", finishes[0])
}

func TestAStopTextEndsAndIsNotShown(t *testing.T) {
	s := onTiny(t, nil)
	plain := *s.must("/v1/completions", `{"prompt":"Once upon a time","max_tokens":12,"temperature":0}`).Choices[0].Text
	stop := plain[5:8]
	body := fmt.Sprintf(`{"prompt":"Once upon a time","max_tokens":12,"temperature":0,"stop":["nowhere at all",%q]`, stop)
	got := s.must("/v1/completions", body+"}").Choices[0]
	require.Equal(t, plain[:strings.Index(plain, stop)], *got.Text)
	require.Equal(t, "stop", *got.Finish)
	texts, _, finishes := textsOf(t, s.events("/v1/completions", body+`,"stream":true}`), 1)
	require.Equal(t, *got.Text, texts[0])
	require.Equal(t, "stop", finishes[0])
}

func TestEndTokensCanBeIgnoredOrPutOff(t *testing.T) {
	fake := newFake(t, func(r engine.Request) []engine.Piece {
		require.True(t, r.IgnoreEnds)
		require.Equal(t, 3, r.MinTokens)
		return script("a", "b")
	})
	s := listening(t, fake.options(), nil)
	got := s.must("/v1/completions", `{"prompt":[1],"ignore_eos":true,"min_tokens":3,"max_tokens":5}`)
	require.Equal(t, "ab", *got.Choices[0].Text)
}

// A character's bytes may come in several tokens: the engine gives it with the last.
func TestEveryEventCountsOneTokenAlsoWithoutText(t *testing.T) {
	fake := newFake(t, func(engine.Request) []engine.Piece {
		return append(script("", "", "é", ""), engine.Piece{Token: engine.NoToken, Text: "tail"})
	})
	s := listening(t, fake.options(), nil)
	events := s.events("/v1/completions",
		`{"prompt":[1],"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`)
	require.Len(t, events, 5)
	for i, e := range events[:4] {
		require.Equal(t, i+1, e.Usage.Answer)
	}
	require.Equal(t, "étail", func() string { texts, _, _ := textsOf(t, events, 1); return texts[0] }())
	require.Equal(t, "tail", *events[3].Choices[0].Text)
}

func TestAPromptThatWasAskedBeforeIsCached(t *testing.T) {
	s := onTiny(t, nil)
	first := fmt.Sprint(rand.Uint32()) // also where the test runs several times
	body := `{"prompt":"` + first + strings.Repeat(" The dog ran to the park.", 8) + `","max_tokens":1,"temperature":0}`
	require.Zero(t, s.must("/v1/completions", body).Usage.Details.Cached)
	require.Positive(t, s.must("/v1/completions", body).Usage.Details.Cached)
}
