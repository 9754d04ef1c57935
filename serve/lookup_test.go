package serve

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/stretchr/testify/require"
)

// nearTie is by how much the log-probabilities of two tokens differ at most where the roundings of sums that are cut
// otherwise decide.
const nearTie = 0.1

// Greedy text with guesses is that of the pinned kernel of as many rows, up to a near-tie, and where text repeats
// several tokens come a step; metrics tell.
func TestGuessesChangeNoText(t *testing.T) {
	pinned, _ := tinyOf(t, engine.LookupRows, func(o *engine.Options) { o.Pin = o.Kernel.ChunkTokens() })
	defer func() { require.NoError(t, pinned.Close()) }()
	guessing, o := tinyOf(t, engine.LookupRows, func(o *engine.Options) { o.Lookup = true })
	defer func() { require.NoError(t, guessing.Close()) }()
	s := listening(t, o, nil)
	drafted, accepted, same := 0, 0, 0
	for _, prompt := range []string{strings.Repeat("The dog ran to the park. ", 5), "Once upon a time"} {
		r := engine.Request{Prompt: prompt, MaxTokens: deep.Count(50, 30), IgnoreEnds: true, Logprobs: true, TopLogprobs: 2}
		want, err := pinned.Generate(t.Context(), r, nil)
		require.NoError(t, err)
		r.Logprobs, r.TopLogprobs = false, 0
		got, err := guessing.Generate(t.Context(), r, nil)
		require.NoError(t, err)
		for i, token := range want.Tokens {
			if margin := want.Logprobs[i].Top[0].Logprob - want.Logprobs[i].Top[1].Logprob; token != got.Tokens[i] {
				require.Less(t, margin, nearTie, "%q, token %d", prompt, i)
				break
			}
			same++
		}
		drafted, accepted = drafted+got.Usage.Drafted, accepted+got.Usage.Accepted
		r.Sampling.Temperature, r.MaxTokens = 1, 3
		got, err = guessing.Generate(t.Context(), r, nil)
		require.NoError(t, err)
		require.Zero(t, got.Usage.Drafted, "guesses are verified by argmax alone")
	}
	require.Greater(t, same, deep.Count(30, 20))
	t.Log(same, "tokens are the same;", accepted, "of", drafted, "guesses were right")
	require.Positive(t, accepted)
	body := `{"prompt":"` + strings.Repeat("The dog ran to the park. ", 5) +
		`","max_tokens":30,"temperature":0,"ignore_eos":true}`
	require.Equal(t, 30, s.must("/v1/completions", body).Usage.Answer)
	answer, err := http.Get(s.url + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	metrics, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Regexp(t, `mkgen_drafted_tokens_total [1-9]`, string(metrics))
	require.Regexp(t, `mkgen_accepted_tokens_total [1-9]`, string(metrics))
}
