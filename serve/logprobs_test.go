package serve

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// likelihoods are what transformers says of texts; testdata/make_loglikelihoods.py asked it.
type likelihoods struct {
	Cases []struct {
		Text     string
		IDs      []int
		Logprobs []float64
		Top      [][]int
	}
}

// textLogprobs is logprobs of a completion as a client reads it.
type textLogprobs struct {
	Tokens  []string
	Chosen  []*float64           `json:"token_logprobs"`
	Top     []map[string]float64 `json:"top_logprobs"`
	Offsets []int                `json:"text_offset"`
}

func logprobsOf(t *testing.T, raw json.RawMessage) (l textLogprobs) {
	t.Helper()
	require.NoError(t, json.Unmarshal(raw, &l))
	require.Len(t, l.Chosen, len(l.Tokens))
	require.Len(t, l.Top, len(l.Tokens))
	require.Len(t, l.Offsets, len(l.Tokens))
	return l
}

// bf16Slack is by how much a log-probability of float32 may differ in bf16, as the kernel computes: unlikely tokens by
// more.
func bf16Slack(logprob float64) float64 { return 0.06 + 0.01*math.Abs(logprob) }

func TestLikelihoodsOfPromptsAreTransformers(t *testing.T) {
	data, err := os.ReadFile("testdata/loglikelihoods.json")
	require.NoError(t, err)
	var golden likelihoods
	require.NoError(t, json.Unmarshal(data, &golden))
	s := onTiny(t, nil)
	for _, c := range golden.Cases {
		text, err := json.Marshal(c.Text)
		require.NoError(t, err)
		ids, err := json.Marshal(c.IDs)
		require.NoError(t, err)
		for _, prompt := range []string{string(text), string(ids)} {
			for _, most := range []int{0, 1} {
				got := s.must("/v1/completions",
					fmt.Sprintf(`{"prompt":%s,"echo":true,"logprobs":3,"max_tokens":%d,"temperature":0}`, prompt, most))
				l := logprobsOf(t, got.Choices[0].Logprobs)
				require.Len(t, l.Tokens, len(c.IDs)+most)
				require.Equal(t, most, got.Usage.Answer)
				require.Nil(t, l.Chosen[0])
				require.Nil(t, l.Top[0])
				for i, want := range c.Logprobs {
					require.InDelta(t, want, *l.Chosen[i+1], bf16Slack(want), "%q, token %d", c.Text, i+1)
					require.Equal(t, *l.Chosen[i+1], l.Top[i+1][l.Tokens[i+1]])
					require.Contains(t, l.Top[i+1], s.spelled(c.Top[i][0]).name)
				}
			}
		}
	}
}

func TestTokensAndOffsetsOfLogprobsAreTheText(t *testing.T) {
	s := onTiny(t, nil)
	body := `"prompt":"A dog.","echo":true,"logprobs":2,"max_tokens":6,"temperature":1,"seed":3,"n":2,"ignore_eos":true`
	whole := s.must("/v1/completions", "{"+body+"}")
	streamed := make([]textLogprobs, 2)
	for _, e := range s.events("/v1/completions", "{"+body+`,"stream":true}`) {
		c := e.Choices[0]
		l := logprobsOf(t, c.Logprobs)
		all := &streamed[c.Index]
		all.Tokens, all.Chosen = append(all.Tokens, l.Tokens...), append(all.Chosen, l.Chosen...)
		all.Top, all.Offsets = append(all.Top, l.Top...), append(all.Offsets, l.Offsets...)
	}
	for i, c := range whole.Choices {
		l := logprobsOf(t, c.Logprobs)
		require.Equal(t, l, streamed[i])
		text := strings.TrimPrefix(strings.Join(l.Tokens, ""), l.Tokens[0]) // begin-of-text
		require.Equal(t, *c.Text, text)
		require.Zero(t, l.Offsets[1]) // the text does not show begin-of-text
		for k, token := range l.Tokens[1:] {
			require.True(t, strings.HasPrefix(string([]rune(text)[l.Offsets[k+1]:]), token), "%q at %d", token, l.Offsets[k+1])
		}
	}
}

func TestLogprobsOfAChat(t *testing.T) {
	s := onTiny(t, nil)
	const body = `"messages":[{"role":"user","content":"hi"}],"max_tokens":5,"temperature":0,"logprobs":true,"top_logprobs":4`
	type content struct {
		Content []struct {
			Token   string
			Logprob float64
			Bytes   []byte
			Top     []struct {
				Token   string
				Logprob float64
			} `json:"top_logprobs"`
		}
	}
	read := func(raw json.RawMessage) (c content) {
		raw = json.RawMessage(strings.ReplaceAll(string(raw), `"bytes":[`, `"numbers":[`))
		require.NoError(t, json.Unmarshal(raw, &c))
		return c
	}
	whole := s.must("/v1/chat/completions", "{"+body+"}")
	c := read(whole.Choices[0].Logprobs)
	require.Len(t, c.Content, whole.Usage.Answer)
	text := ""
	for _, one := range c.Content {
		text += one.Token
		require.Len(t, one.Top, 4)
		require.Equal(t, one.Token, one.Top[0].Token) // greedy
		require.Equal(t, one.Logprob, one.Top[0].Logprob)
		sum := 0.0
		for _, l := range one.Top {
			sum += math.Exp(l.Logprob)
		}
		require.LessOrEqual(t, sum, 1.0)
	}
	require.True(t, strings.HasPrefix(text, *whole.Choices[0].Message.Content))
	var streamed content
	for _, e := range s.events("/v1/chat/completions", "{"+body+`,"stream":true}`) {
		streamed.Content = append(streamed.Content, read(e.Choices[0].Logprobs).Content...)
	}
	require.Equal(t, c, streamed)
}

func TestBiasAndPenaltiesReachTheEngine(t *testing.T) {
	s := onTiny(t, nil)
	got := s.must("/v1/completions",
		`{"prompt":"The","max_tokens":4,"temperature":0,"logit_bias":{"65":100},"logprobs":0}`)
	l := logprobsOf(t, got.Choices[0].Logprobs)
	for _, token := range l.Tokens {
		require.Equal(t, s.spelled(65).name, token)
	}
	plain := *s.must("/v1/completions", `{"prompt":"The","max_tokens":20,"temperature":0}`).Choices[0].Text
	for _, penalty := range []string{"presence_penalty", "frequency_penalty", "repetition_penalty"} {
		other := *s.must("/v1/completions", `{"prompt":"The","max_tokens":20,"temperature":0,"`+penalty+
			`":2}`).Choices[0].Text
		require.NotEqual(t, plain, other, penalty)
	}
	stopped := s.must("/v1/completions",
		`{"prompt":"The","max_tokens":4,"temperature":0,"logit_bias":{"65":100},"stop_token_ids":[65]}`)
	require.Equal(t, "stop", *stopped.Choices[0].Finish)
	require.Empty(t, *stopped.Choices[0].Text)
}
