//go:build unix

package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/runtime/devicetest"
	"github.com/mkgen/mkgen/internal/cputime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/bundled"
	"github.com/stretchr/testify/require"
)

// What the host takes of 16 clients at once, whose answers are streamed over HTTP, on a device that computes nothing:
// gap is the time from a launch's end to the next one's start, of launches of 16 steps, without a driver's calls. Of
// processor time the clients' is part.
func BenchmarkLaunchesOf16Clients(b *testing.B) {
	const clients, tokens = 16, 256
	const drawn = `"temperature":0.8,"top_p":0.95,"top_k":50,`
	fields := map[string]any{} // more than an answer has room for
	for i := range 200 {
		fields[fmt.Sprintf("field %d", i)] = json.RawMessage(
			[]string{`{"type":"string","maxLength":12}`, `{"type":"integer","minimum":0,"maximum":120}`}[i%2])
	}
	required := slices.Sorted(maps.Keys(fields))
	schema, err := json.Marshal(map[string]any{"type": "object", "properties": fields, "required": required,
		"additionalProperties": false})
	require.NoError(b, err)
	for _, c := range []struct{ name, fields string }{
		{"greedy", `"temperature":0,"ignore_eos":true,`},
		{"sampled", drawn + `"ignore_eos":true,`},
		{"logprobs", drawn + `"ignore_eos":true,"logprobs":20,`},
		{"schema", drawn + `"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":` + string(schema) +
			`}},`},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, d := onDevice(b, clients)
			web := httptest.NewServer(s)
			defer web.Close()
			m := cputime.NewMeter(b)
			for i := 0; b.Loop(); i++ {
				var all sync.WaitGroup
				for client := range clients {
					all.Go(func() {
						body := fmt.Sprintf(`{%s"prompt":"%d, %d times","max_tokens":%d,"seed":%d,"stream":true}`, c.fields, client, i,
							tokens, client)
						answer, err := http.Post(web.URL+"/v1/completions", "application/json", strings.NewReader(body))
						require.NoError(b, err)
						events, err := io.ReadAll(answer.Body)
						require.NoError(b, err)
						require.NoError(b, answer.Body.Close())
						require.Equal(b, tokens+1, bytes.Count(events, []byte("data: ")), "%.300s", events)
					})
				}
				all.Wait()
			}
			m.Report(b.N * clients * tokens)
			d.ReportGaps(b)
		})
	}
}

// onDevice is a server of llama3.2-1b whose launches have 16 steps at most and compute nothing.
func onDevice(b *testing.B, rows int) (*Server, *devicetest.Device) {
	c, err := models.Lookup("llama3.2-1b")
	require.NoError(b, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 132, Tokens: rows, Draws: true})
	require.NoError(b, err)
	text, _, err := bundled.Tokenizer("tiny")
	require.NoError(b, err)
	d := devicetest.New(mk, text.Size(), 2*time.Millisecond)
	e, err := engine.New(b.Context(), engine.Options{Kernel: mk, Device: d, Weights: devicetest.Nothing{}, Text: text,
		KVTokens: 32768, TokensPerLaunch: 16, HangTimeout: time.Minute, Ends: []int{1}})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	s, err := New(Options{Backend: FromEngine(e), Text: text, Model: "fake", Vocab: c.Vocab, Sequences: rows,
		Ends: []int{1}})
	require.NoError(b, err)
	return s, d
}
