package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/bundled"
	"github.com/stretchr/testify/require"
)

const tinyRows = 4

// shared is the batch that most tests use, one after the other: loading takes as long as a test.
var shared struct {
	*engine.Engine
	o Options
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.Engine != nil {
		if err := shared.Close(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// tiny is a batch of the bundled model on the executor. It is pinned: without that a draw that is nearly a tie goes by
// what runs beside it, and two answers to one request may differ.
func tiny(t testing.TB) (*engine.Engine, Options) {
	t.Helper()
	return tinyOf(t, tinyRows, func(o *engine.Options) { o.Pin = o.Kernel.ChunkTokens() })
}

// tinyOf is such a batch of n rows, with what change makes of its options.
func tinyOf(t testing.TB, rows int, change func(*engine.Options)) (*engine.Engine, Options) {
	t.Helper()
	c, ok, err := bundled.Checkpoint("tiny")
	require.NoError(t, err)
	require.True(t, ok)
	defer c.Close()
	text, _, err := bundled.Tokenizer("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c.Config(), megakernel.Options{SMs: 2, Consumers: 1, Tokens: rows})
	require.NoError(t, err)
	device, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	o := engine.Options{Kernel: mk, Device: device, Text: text, KVTokens: rows * 256,
		Weights: runtime.FromTensors(c, runtime.LoadOptions{})}
	change(&o)
	b, err := engine.New(context.Background(), o)
	require.NoError(t, err)
	return b, Options{Backend: FromEngine(b), Text: text, Model: "tiny", Vocab: c.Config().Vocab, Sequences: rows,
		Ends: c.Config().EOS}
}

// site is a server that listens, and its address.
type site struct {
	t   testing.TB
	url string
	*Server
}

// listening starts a server with what change makes of the options.
func listening(t testing.TB, o Options, change func(*Options)) *site {
	t.Helper()
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	require.NoError(t, err)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return &site{t, h.URL, s}
}

// onTiny is a server of the bundled model.
func onTiny(t testing.TB, change func(*Options)) *site {
	t.Helper()
	if shared.Engine == nil {
		shared.Engine, shared.o = tiny(t)
	}
	return listening(t, shared.o, change)
}

// ask sends a body and returns the status and the answer.
func (s *site) ask(path, body string) (int, string) {
	s.t.Helper()
	r, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	require.NoError(s.t, err)
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	require.NoError(s.t, err)
	return r.StatusCode, string(data)
}

// said is a message of a chat.
type said struct {
	Role    string
	Content *string
	Calls   []toolCall `json:"tool_calls"`
}

// reading is an answer of either endpoint, or an event.
type reading struct {
	ID      string
	Object  string
	Model   string
	Choices []struct {
		Index    int
		Text     *string
		Message  *said
		Delta    *said
		Finish   *string `json:"finish_reason"`
		Logprobs json.RawMessage
	}
	Usage *usage
	Error *struct {
		Message, Type string
		Param, Code   *string
	}
}

func read(t testing.TB, data string) reading {
	t.Helper()
	var a reading
	require.NoError(t, json.Unmarshal([]byte(data), &a), data)
	return a
}

// must asks and wants 200.
func (s *site) must(path, body string) reading {
	s.t.Helper()
	status, data := s.ask(path, body)
	require.Equal(s.t, http.StatusOK, status, data)
	return read(s.t, data)
}

// events asks for a stream and returns its events; the last line must be [DONE].
func (s *site) events(path, body string) []reading {
	s.t.Helper()
	status, data := s.ask(path, body)
	require.Equal(s.t, http.StatusOK, status, data)
	return eventsOf(s.t, data)
}

func eventsOf(t testing.TB, data string) []reading {
	t.Helper()
	var all []reading
	parts := strings.Split(strings.TrimSuffix(data, "\n\n"), "\n\n")
	for i, part := range parts {
		payload, ok := strings.CutPrefix(part, "data: ")
		require.True(t, ok, part)
		if i == len(parts)-1 {
			require.Equal(t, "[DONE]", payload)
			break
		}
		require.True(t, json.Valid(bytes.TrimSpace([]byte(payload))))
		all = append(all, read(t, payload))
	}
	return all
}

func TestACompletionIsTheEnginesText(t *testing.T) {
	s := onTiny(t, nil)
	want, err := shared.Generate(t.Context(), engine.Request{Prompt: "Once upon a time", MaxTokens: 12}, nil)
	require.NoError(t, err)
	got := s.must("/v1/completions",
		`{"model":"tiny","prompt":"Once upon a time","max_tokens":12,"temperature":0,"nobody_knows":[1]}`)
	require.Equal(t, want.Text, *got.Choices[0].Text)
	require.Equal(t, "length", *got.Choices[0].Finish)
	require.Equal(t, "text_completion", got.Object)
	require.Equal(t, 12, got.Usage.Answer)
	require.Equal(t, want.Usage.Prompt+12, got.Usage.Total)
}
