package serve

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/engine"
	"github.com/stretchr/testify/require"
)

// plainly is a server of a fake that answers "a" to everything.
func plainly(t testing.TB) *site {
	return listening(t, newFake(t, func(engine.Request) []engine.Piece { return script("a") }).options(), nil)
}

func TestWrongFieldsAreNamed(t *testing.T) {
	s := plainly(t)
	const messages = `"messages":[{"role":"user","content":"hi"}]`
	for _, c := range []struct {
		path, body, param, says string
		status                  int
	}{
		{"completions", `{`, "", "no JSON object", 400},
		{"completions", `[]`, "", "the body is no JSON object: found a value of type array", 400},
		{"completions", `null`, "", "found null", 400},
		{"completions", `{} {}`, "", "no JSON object", 400},
		{"completions", `{}`, "prompt", "found none", 400},
		{"completions", `{"prompt":null}`, "prompt", "found none", 400},
		{"completions", `{"prompt":[]}`, "prompt", "list of 0", 400},
		{"completions", `{"prompt":""}`, "", "", 200}, // begin-of-text
		{"completions", `{"prompt":[[]]}`, "prompt", "no tokens", 400},
		{"completions", `{"prompt":[1,"a"]}`, "prompt", `found \"a\" behind token ids, want a text`, 400},
		{"completions", `{"prompt":[1,2,2.5]}`, "prompt", "found 2.5 behind token ids, want a text", 400},
		{"completions", `{"prompt":[1,null]}`, "prompt", "found null behind token ids, want a text", 400},
		{"completions", `{"prompt":[500]}`, "prompt", "token 500, want 0 to 499", 400},
		{"completions", `{"prompt":[[1],[-1]]}`, "prompt", "token -1", 400},
		{"completions", `{"prompt":[1.5]}`, "prompt", "want a text", 400},
		{"completions", `{"prompt":[null]}`, "prompt", "found null, want a text", 400}, // not token 0
		{"completions", `{"prompt":[[1,null]]}`, "prompt", "found [1,null], want a text", 400},
		{"completions", "{\"prompt\":\"caf\xe9\"}", "", "it is not UTF-8", 400},
		{"completions", `{"prompt":"\ud83d"}`, "", `\\ud83d at byte 11 is half of a character`, 400},
		{"completions", `{"prompt":"a\\b \uDE00"}`, "", `\\uDE00 at byte 16 is half of a character`, 400},
		{"completions", `{"prompt":"\ud83d\ud83d\ude00"}`, "", `\\ud83d at byte 11 is half of a character`, 400},
		{"completions", `{"prompt":"\ud83d\u0041"}`, "", `\\ud83d at byte 11 is half of a character`, 400},
		{"completions", `{"prompt":"\ud83d\ude00 \\ud83d \u00e9"}`, "", "", 200}, // a pair; a backslash and letters
		{"completions", `{"prompt":"\`, "", "no JSON object", 400},
		{"completions", `{"prompt":[1],"model":"gpt"}`, "model", `want \"fake\"`, 404},
		{"completions", `{"prompt":[1],"model":7}`, "model", "want a string", 400},
		{"completions", `{"prompt":[1],"max_tokens":0}`, "max_tokens", "at least 1", 400},
		{"completions", `{"prompt":[1],"max_tokens":-1}`, "max_tokens", "found -1", 400},
		{"completions", `{"prompt":[1],"max_tokens":1.5}`, "max_tokens", "want a whole number", 400},
		{"completions", `{"prompt":[1],"max_tokens":2147483647}`, "prompt", "has room for 100 tokens", 400},
		{"completions", `{"prompt":[1],"max_tokens":100}`, "prompt", "context_length_exceeded", 400},
		{"completions", `{"prompt":[1],"max_tokens":99}`, "", "", 200},
		{"completions", `{"prompt":[1],"max_tokens":4,"min_tokens":5}`, "min_tokens", "at most max_tokens", 400},
		{"completions", `{"prompt":[1],"temperature":2.1}`, "temperature", "found 2.1, want 0 to 2", 400},
		{"completions", `{"prompt":[1],"temperature":"hot"}`, "temperature", "want a number", 400},
		{"completions", `{"prompt":[1],"temperature":null,"top_k":-1,"top_p":0,"stop":null}`, "", "", 200},
		{"completions", `{"prompt":[1],"temperature":0,"top_p":0.5,"top_k":3}`, "", "", 200},
		{"completions", `{"prompt":[1],"top_p":-0.1}`, "top_p", "want 0 to 1", 400},
		{"completions", `{"prompt":[1],"top_k":-2}`, "top_k", "found -2, want -1", 400},
		{"completions", `{"prompt":[1],"n":0}`, "n", "want 1 to 128", 400},
		{"completions", `{"prompt":[1],"n":100}`, "n", "at most 3", 400},
		{"completions", `{"prompt":[1],"seed":1e30}`, "seed", "whole number", 400},
		{"completions", `{"prompt":[1],"stream":1}`, "stream", "true or false", 400},
		{"completions", `{"prompt":[1],"stream_options":{"include_usage":true}}`, "stream_options", "goes with stream", 400},
		{"completions", `{"prompt":[1],"stream":true,"stream_options":{"include_usage":3}}`, "stream_options",
			"include_usage", 400},
		{"completions", `{"prompt":[1],"stop":""}`, "stop", "empty", 400},
		{"completions", `{"prompt":[1],"stop":["a",""]}`, "stop", "empty", 400},
		{"completions", `{"prompt":[1],"stop":{}}`, "stop", "list of strings", 400},
		{"completions", `{"prompt":[1],"logprobs":21}`, "logprobs", "found 21, want 0 to 20", 400},
		{"completions", `{"prompt":[1],"prompt_logprobs":1}`, "prompt_logprobs", "unsupported_parameter", 400},
		{"completions", `{"prompt":[1],"best_of":2}`, "best_of", "want n", 400},
		{"completions", `{"prompt":[1],"logit_bias":{"3":101}}`, "logit_bias", "want a token id and -100 to 100", 400},
		{"completions", `{"prompt":[1],"logit_bias":{"three":1}}`, "logit_bias", "want a token id", 400},
		{"completions", `{"prompt":[1],"logit_bias":{"3":null}}`, "logit_bias", "found null for token", 400},
		{"completions", `{"prompt":[1],"logit_bias":{"500":1}}`, "logit_bias", "token 500, want 0 to 499", 400},
		{"completions", `{"prompt":[1],"repetition_penalty":0}`, "repetition_penalty", "found 0", 400},
		{"completions", `{"prompt":[1],"presence_penalty":-2.5}`, "presence_penalty", "want -2 to 2", 400},
		{"completions", `{"prompt":[1],"stop_token_ids":[null]}`, "stop_token_ids", "want a list of token ids", 400},
		{"completions", `{"prompt":[1],"stop_token_ids":[500]}`, "stop_token_ids", "token 500", 400},
		{"completions",
			`{"prompt":[1],"repetition_penalty":1.0,"presence_penalty":0,"best_of":1,"logit_bias":{},"suffix":"","logprobs":null}`, "", "", 200},
		{"chat/completions", `{}`, "messages", "found none", 400},
		{"chat/completions", `{"messages":[{"role":"user","content":"a"}],"continue_final_message":true,"add_generation_prompt":true}`,
			"continue_final_message", "beside add_generation_prompt", 400},
		{"chat/completions", `{"messages":[{"role":"user","content":"a"}],"continue_final_message":true}`, "", "", 200},
		{"chat/completions", `{"messages":[3]}`, "messages", "message 0: found 3", 400},
		{"chat/completions", `{"messages":[{"content":"x"}]}`, "messages", "want a role", 400},
		{"chat/completions", `{"messages":[{"role":"user"}]}`, "messages", "want content", 400},
		{"chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, "messages",
			`type \"image_url\", want text`, 400},
		{"chat/completions", `{"messages":[{"role":"user","content":7}]}`, "messages", "want a string or a list", 400},
		{"chat/completions", `{` + messages + `,"top_logprobs":2}`, "top_logprobs", "goes with logprobs", 400},
		{"chat/completions", `{` + messages + `,"logprobs":1}`, "logprobs", "true or false", 400},
		{"chat/completions", `{` + messages + `,"logprobs":false,"tools":[],"response_format":{"type":"text"}}`, "", "", 200},
		{"chat/completions", `{` + messages + `,"response_format":{"type":"xml"}}`, "response_format",
			"want text, json_object", 400},
		{"chat/completions", `{` + messages + `,"response_format":{"type":"json_schema"}}`, "response_format",
			"an object with a schema", 400},
		{"chat/completions", `{` + messages +
			`,"response_format":{"type":"json_schema","json_schema":{"schema":{"items":{"multipleOf":2}}}}}`, "response_format",
			"#/items: multipleOf is not supported", 400},
		{"completions", `{"prompt":[1],"response_format":{"type":"json_object"},"ignore_eos":true}`, "response_format",
			"does not go with ignore_eos", 400},
		{"completions", `{"prompt":[1],"guided_json":{"type":"object"}}`, "guided_json", "want response_format", 400},
		{"chat/completions", `{` + messages + `,"max_completion_tokens":0}`, "max_completion_tokens", "at least 1", 400},
		{"chat/completions", `{` + messages + `,"max_completion_tokens":1000}`, "messages", "context_length_exceeded", 400},
		{"chat/completions", `{` + messages + `,"tools":[{"type":"function"}]}`, "tools", "a function with a name", 400},
		{"chat/completions", `{` + messages + `,"tool_choice":"required"}`, "tool_choice", "goes with tools", 400},
		{"chat/completions", `{` + messages +
			`,"tools":[{"type":"function","function":{"name":"a"}}],"tool_choice":"sometimes"}`, "tool_choice",
			"or a function of tools", 400},
		{"chat/completions", `{` + messages +
			`,"tools":[{"type":"function","function":{"name":"a"}}],"tool_choice":{"type":"function","function":{"name":"b"}}}`,
			"tool_choice", "or a function of tools", 400},
		{"chat/completions", `{` + messages +
			`,"tools":[{"type":"function","function":{"name":"a","parameters":{"not":{}}}}],"tool_choice":"required"}`,
			"tool_choice", "not is not supported", 400},
		{"chat/completions", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{"}}]}]}`, "messages",
			"arguments: found", 400},
	} {
		status, data := s.ask("/v1/"+c.path, c.body)
		require.Equal(t, c.status, status, "%s: %s", c.body, data)
		require.Contains(t, data, c.says, c.body)
		if c.status == http.StatusOK {
			continue
		}
		e := read(t, data).Error
		require.Equal(t, "invalid_request_error", e.Type)
		if c.param == "" {
			require.Nil(t, e.Param, c.body)
		} else {
			require.NotNil(t, e.Param, c.body)
			require.Equal(t, c.param, *e.Param, c.body)
		}
	}
}

func TestWrongRequestsAreErrorsOfOpenAIsForm(t *testing.T) {
	s := plainly(t)
	for _, c := range []struct {
		method, path, kind string
		status             int
	}{
		{"GET", "/v1/completions", "", 405},
		{"POST", "/health", "", 405},
		{"POST", "/v1/completions", "text/plain", 415},
		{"POST", "/v1/nothing", "application/json", 404},
		{"GET", "/v1/models/other/name", "", 404},
	} {
		r, err := http.NewRequest(c.method, s.url+c.path, strings.NewReader(`{"prompt":[1]}`))
		require.NoError(t, err)
		r.Header.Set("Content-Type", c.kind)
		got, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		data, err := io.ReadAll(got.Body)
		require.NoError(t, err)
		require.Equal(t, c.status, got.StatusCode, c.path)
		require.NotEmpty(t, read(t, string(data)).Error.Message)
		require.NotEmpty(t, got.Header.Get("X-Request-Id"))
	}
}

func TestModelsTokensHealthAndMetrics(t *testing.T) {
	s := plainly(t)
	get := func(path string) string {
		r, err := http.Get(s.url + path)
		require.NoError(t, err)
		defer r.Body.Close()
		require.Equal(t, http.StatusOK, r.StatusCode)
		data, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return string(data)
	}
	require.Contains(t, get("/v1/models"), `"id":"fake"`)
	require.Contains(t, get("/v1/models/fake"), `"max_model_len":100`)
	require.JSONEq(t, `{"status":"ok"}`, get("/health"))
	require.JSONEq(t, `{"served_model_name":"fake"}`, get("/server_info"))
	_, data := s.ask("/tokenize", `{"prompt":"One é","return_token_strs":true}`)
	var ids tokenized
	require.NoError(t, json.Unmarshal([]byte(data), &ids))
	require.Equal(t, ids.Count, len(ids.Tokens))
	require.Equal(t, "<|begin_of_text|>", ids.Names[0])
	body, err := json.Marshal(map[string]any{"tokens": ids.Tokens})
	require.NoError(t, err)
	_, data = s.ask("/detokenize", string(body))
	require.Contains(t, data, "One é")
	_, chat := s.ask("/tokenize", `{"messages":[{"role":"user","content":"hi"}]}`)
	require.Contains(t, chat, `"count":`)
	status, _ := s.ask("/tokenize", `{}`)
	require.Equal(t, http.StatusBadRequest, status)
	s.must("/v1/completions", `{"prompt":[1]}`)
	require.Contains(t, get("/metrics"), "mkgen_answer_tokens_total 1\n")
	require.Contains(t, get("/metrics"), `mkgen_requests_total{path="/v1/completions",status="200"} 1`)
}

func TestAModelWithoutATokenizerTakesAndGivesTokens(t *testing.T) {
	o := newFake(t, func(engine.Request) []engine.Piece {
		return []engine.Piece{{Token: 7}, {Token: 8, Finish: engine.Length}}
	}).options()
	o.Text = nil
	s := listening(t, o, nil)
	require.Equal(t, " 3 7 8", *s.must("/v1/completions", `{"prompt":[3],"echo":true}`).Choices[0].Text)
	for _, c := range [][2]string{{"/v1/completions", `{"prompt":"a"}`}, {"/v1/completions", `{"prompt":[1],"stop":"a"}`},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`}, {"/tokenize", `{"prompt":"a"}`}} {
		status, data := s.ask(c[0], c[1])
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, data, "without a tokenizer")
	}
}

// Whatever a client sends, the answer is 200 with choices, or an error of OpenAI's form that blames the client.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{`{"prompt":"a","n":2,"stop":["x"],"seed":-1}`,
		`{"prompt":[[1,2],[3]],"echo":true,"stream":true,"stream_options":{"include_usage":true}}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":null,"tool_calls":[{}]}],"tools":[{"x":1}]}`,
		`{"prompt":"\ud800","max_tokens":0}`, `{"response_format":{"type":3},"prompt":1}`} {
		f.Add(true, []byte(seed))
		f.Add(false, []byte(seed))
	}
	o := newFake(f, func(engine.Request) []engine.Piece { return script("a", "b") }).options()
	s, err := New(o)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, chat bool, body []byte) {
		path := "/v1/completions"
		if chat {
			path = "/v1/chat/completions"
		}
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(body)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		require.Zero(t, s.open.Load())
		if w.Code == http.StatusOK && strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
			require.NotEmpty(t, eventsOf(t, w.Body.String()))
			return
		}
		a := read(t, w.Body.String())
		if w.Code == http.StatusOK {
			require.NotEmpty(t, a.Choices)
			return
		}
		require.Contains(t, []int{400, 404, 413}, w.Code, w.Body.String())
		require.NotEmpty(t, a.Error.Message)
	})
}
