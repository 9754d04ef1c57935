//go:build unix

package serve

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/internal/cputime"
	"github.com/stretchr/testify/require"
)

// What a server takes of an answer of 512 tokens, without and with 20 log-probabilities of each, whole and streamed.
func BenchmarkAnswersOf512Tokens(b *testing.B) {
	const tokens = 512
	r := rand.New(rand.NewPCG(1, 1))
	var pieces, scored []engine.Piece
	for i := range tokens {
		p := engine.Piece{Token: r.IntN(500), Text: "word"}
		if i == tokens-1 {
			p.Finish = engine.Length
		}
		pieces = append(pieces, p)
		one := func(token int) sampling.Logprob { return sampling.Logprob{Token: token, Logprob: -r.ExpFloat64()} }
		p.Logprobs = &sampling.Logprobs{Logprob: one(p.Token)}
		for range sampling.MaxLogprobs {
			p.Logprobs.Top = append(p.Logprobs.Top, one(r.IntN(500)))
		}
		scored = append(scored, p)
	}
	f := newFake(b, func(r engine.Request) []engine.Piece {
		if r.Logprobs {
			return scored
		}
		return pieces
	})
	s, err := New(f.options())
	require.NoError(b, err)
	const chat = `"messages":[{"role":"user","content":"a"}],"max_tokens":20`
	for _, c := range []struct{ name, path, body string }{
		{"completion", "completions", `"prompt":"a"`},
		{"completion/streamed", "completions", `"prompt":"a","stream":true`},
		{"completion/logprobs", "completions", `"prompt":"a","logprobs":20`},
		{"completion/logprobs/streamed", "completions", `"prompt":"a","logprobs":20,"stream":true`},
		{"chat/logprobs", "chat/completions", chat + `,"logprobs":true,"top_logprobs":20`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			before := cputime.Used(b)
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "/v1/"+c.path, strings.NewReader("{"+c.body+"}"))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r)
				require.Equal(b, http.StatusOK, w.Code)
			}
			b.ReportMetric(float64(cputime.Used(b)-before)/float64(b.N)/tokens/1000, "cpu-µs/token")
		})
	}
}

// What a server takes of a prompt of many token ids until its backend has it, and of an answer of one token.
func BenchmarkPromptsOfTokenIDs(b *testing.B) {
	for _, n := range []int{2_148, 8_292, 32_100} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			f := newFake(b, func(engine.Request) []engine.Piece { return script("a") })
			o := f.options()
			o.Backend, o.Vocab = roomy{f}, 128_256
			s, err := New(o)
			require.NoError(b, err)
			body := bodyOfIDs(n, o.Vocab)
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r)
				require.Equal(b, http.StatusOK, w.Code)
			}
		})
	}
}
