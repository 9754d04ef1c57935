package serve

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/stretchr/testify/require"
)

func TestTextsAndNumbersAreWrittenAsEncodingJSONDoes(t *testing.T) {
	texts := []string{"", "plain", `"`, `\`, "<a&b>", "é\u2028\U0001f600", "\x00\n\t\x7f", "\xff\xfe half \xe2\x82"}
	numbers := []float64{0, math.Copysign(0, -1), -1, -9999, -0.1, 1e-6, -9.9e-7, -1e-300, 1e20, 1e21, 0.30000000000000004}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		text := make([]byte, r.IntN(6))
		for i := range text {
			text[i] = byte(r.Uint32())
		}
		texts = append(texts, string(text))
		numbers = append(numbers, -math.Exp(20*r.NormFloat64()))
	}
	for _, text := range texts {
		want, err := json.Marshal(text)
		require.NoError(t, err)
		require.Equal(t, string(want), string(appendString(nil, text)))
	}
	for _, x := range numbers {
		want, err := json.Marshal(x)
		require.NoError(t, err)
		require.Equal(t, string(want), string(appendNumber(nil, x)))
	}
}

// scoredPieces are an answer of two tokens with log-probabilities.
func scoredPieces(r engine.Request) []engine.Piece {
	of := func(token int, chosen float64, top ...sampling.Logprob) *sampling.Logprobs {
		if !r.Logprobs {
			return nil
		}
		return &sampling.Logprobs{Logprob: sampling.Logprob{Token: token, Logprob: chosen}, Top: top}
	}
	return []engine.Piece{
		{Token: 65, Text: "<é", Logprobs: of(65, math.Inf(-1), sampling.Logprob{Token: 300, Logprob: -0.5},
			sampling.Logprob{Token: 200, Logprob: -1})},
		{Token: 300, Text: `"b"`, Logprobs: of(300, -1e-7, sampling.Logprob{Token: 300, Logprob: -1e-7}), Finish: engine.End},
	}
}

// An answer's bytes, but for what differs from one to the next: clients of all kinds read them.
func TestWhatAnswersLookLike(t *testing.T) {
	s := listening(t, newFake(t, scoredPieces).options(), nil)
	spelled := func(token int) string { return string(s.spelled(token).quoted) }
	token := func(id int, logprob string) string {
		name := s.Server.spelled(id)
		return fmt.Sprintf(`{"token":%s,"logprob":%s,"bytes":%s`, name.token, logprob, name.bytes)
	}
	const head = `{"id":"ID","object":"%s","created":1,"model":"fake","choices":[`
	usage := `"usage":{"prompt_tokens":N,"completion_tokens":2,"total_tokens":N,"prompt_tokens_details":{"cached_tokens":0}}}`
	chatted := [2]string{
		token(65, "-9999") + `,"top_logprobs":[` + token(300, "-0.5") + `},` + token(200, "-1") + `}]}`,
		token(300, "-1e-7") + `,"top_logprobs":[` + token(300, "-1e-7") + `}]}`}
	ranked := [2]string{fmt.Sprintf(`{%s:-0.5,%s:-1,%s:-9999}`, spelled(300), spelled(200), spelled(65)),
		fmt.Sprintf(`{%s:-1e-7}`, spelled(300))}
	shown := s.Server.spelled(65).shown
	for _, c := range []struct{ path, body, want string }{
		{"completions", `"logprobs":2`, fmt.Sprintf(head, "text_completion") + `{"index":0,"text":"\u003cé\"b\"","logprobs":{"tokens":[` +
			spelled(65) + `,` + spelled(300) + `],"token_logprobs":[-9999,-1e-7],"top_logprobs":[` +
			ranked[0] + `,` + ranked[1] + fmt.Sprintf(`],"text_offset":[0,%d]},"finish_reason":"stop"}],`, shown) + usage},
		{"completions", `"logprobs":2,"stream":true`, "data: " + fmt.Sprintf(head, "text_completion") +
			`{"index":0,"text":"\u003cé","logprobs":{"tokens":[` + spelled(65) + `],"token_logprobs":[-9999],"top_logprobs":[` +
			ranked[0] + `],"text_offset":[0]},"finish_reason":null}],"usage":null}` + "\n\ndata: " +
			fmt.Sprintf(head, "text_completion") + `{"index":0,"text":"\"b\"","logprobs":{"tokens":[` + spelled(300) +
			`],"token_logprobs":[-1e-7],"top_logprobs":[` + ranked[1] + fmt.Sprintf(`],"text_offset":[%d]},`, shown) +
			`"finish_reason":"stop"}],"usage":null}` + "\n\ndata: [DONE]\n\n"},
		{"completions", `"echo":true,"max_tokens":0`, fmt.Sprintf(head, "text_completion") +
			`{"index":0,"text":"a","logprobs":null,"finish_reason":"length"}],` + strings.ReplaceAll(usage, ":2,", ":0,")},
		{"chat/completions", `"logprobs":true,"top_logprobs":2`, fmt.Sprintf(head, "chat.completion") +
			`{"index":0,"message":{"role":"assistant","content":"\u003cé\"b\""},"logprobs":{"content":[` + chatted[0] + `,` +
			chatted[1] + `]},"finish_reason":"stop"}],` + usage},
		{"chat/completions", `"stream":true`, "data: " + fmt.Sprintf(head, "chat.completion.chunk") +
			`{"index":0,"delta":{"role":"assistant","content":"\u003cé"},"logprobs":null,"finish_reason":null}],"usage":null}` +
			"\n\ndata: " + fmt.Sprintf(head, "chat.completion.chunk") +
			`{"index":0,"delta":{"content":"\"b\""},"logprobs":null,"finish_reason":"stop"}],"usage":null}` +
			"\n\ndata: [DONE]\n\n"},
	} {
		ask := `{"prompt":"a",`
		if c.path != "completions" {
			ask = `{"messages":[{"role":"user","content":"a"}],`
		}
		_, got := s.ask("/v1/"+c.path, ask+c.body+"}")
		for from, to := range map[string]string{`"id":"[^"]*"`: `"id":"ID"`, `"created":\d+`: `"created":1`,
			`"(prompt|total)_tokens":\d+`: `"${1}_tokens":N`} {
			got = regexp.MustCompile(from).ReplaceAllString(got, to)
		}
		require.Equal(t, strings.TrimSpace(c.want), strings.TrimSpace(got))
	}
}
