//go:build unix

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/models/tokenizer"
	"github.com/stretchr/testify/require"
)

const tinyTokenizer = "../../models/bundled/tiny"

// leaving is a Python that has sglang, whose bench_serving writes left; said has its arguments, its key, and the
// prompts it was given.
func leaving(t *testing.T, left, code string) (python, said string) {
	t.Helper()
	dir := t.TempDir()
	python, said = filepath.Join(dir, "python3"), filepath.Join(dir, "said")
	script := "#!/bin/sh\nif [ \"$1\" = -c ]; then echo 0.5.3 /site/sglang; exit; fi\n" +
		"echo \"$@ $OPENAI_API_KEY\" >" + said + "\nwhile [ $# -gt 0 ]; do case $1 in --dataset-path) cat \"$2\" >>" + said +
		";; --output-file) out=$2;; esac; shift; done\ncat >\"$out\" <<'X'\n" + left + "\nX\necho it failed >&2\nexit " +
		code + "\n"
	require.NoError(t, os.WriteFile(python, []byte(script), 0o700))
	return python, said
}

// What sglang 0.5.3.post3 leaves of two requests, cut to what is read.
const generatedOf2 = `{"completed":2,"total_input_tokens":32,"median_ttft_ms":10.5,"p99_ttft_ms":20,"median_tpot_ms":5,
"p99_tpot_ms":6,"median_itl_ms":4.5,"p99_itl_ms":9,"output_throughput":123,"itls":[[1,1,1],[1,1]],"errors":["",""]}`

func TestAServerIsMeasuredByALoadGenerator(t *testing.T) {
	t.Setenv(keyVariable, "a-key")
	var warmed struct {
		Prompt []string
		Tokens int `json:"max_tokens"`
	}
	status, says := http.StatusOK, `{"usage":{"completion_tokens":4}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/completions" || r.Header.Get("Authorization") != "Bearer a-key" ||
			json.NewDecoder(r.Body).Decode(&warmed) != nil {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(says))
	}))
	defer server.Close()
	python, said := leaving(t, generatedOf2, "0")
	cases := filepath.Join(t.TempDir(), "cases.json")
	bench := []string{"bench", "--serve", server.URL + "/v1", "--load-generator", python, "--tokenizer", tinyTokenizer,
		"--served-name", "m", "--concurrency", "1", "--lengths", "16/4", "--requests", "2", "--cases", cases}
	code, out, stderr := mkgen(bench...)
	require.Zero(t, code, stderr)
	require.Regexp(t, `1 +16 +4 +10.50ms +20.00ms +5.000ms +4.500ms +9.000ms +123.0\n +p99 is of several tokens: 1 of 8 had no text\n`, out)
	require.Len(t, warmed.Prompt, 1)
	require.Equal(t, 4, warmed.Tokens)

	data, err := os.ReadFile(said)
	require.NoError(t, err)
	args, sent, _ := strings.Cut(string(data), "\n")
	require.Contains(t, args, "/site/sglang/bench_serving.py --backend vllm --base-url "+server.URL+" --model m")
	require.Contains(t, args, "--sharegpt-output-len 4 --num-prompts 2 --max-concurrency 1 ")
	require.True(t, strings.HasSuffix(args, " a-key"))
	var prompts []struct{ Conversations []struct{ Value string } }
	require.NoError(t, json.Unmarshal([]byte(sent), &prompts))
	require.Len(t, prompts, 2)
	require.NotEqual(t, prompts[0], prompts[1])
	require.NotEqual(t, warmed.Prompt[0], prompts[0].Conversations[0].Value, "what warms up is in the prefix cache")

	data, err = os.ReadFile(cases)
	require.NoError(t, err)
	var read struct {
		Generator string `json:"load_generator"`
		Cases     []servedCase
	}
	require.NoError(t, json.Unmarshal(data, &read))
	require.Equal(t, "sglang 0.5.3", read.Generator)
	require.Equal(t, []servedCase{{1, 16, 4, 2, percentile{10.5, 20}, percentile{5, 6}, percentile{4.5, 9}, 123, 7}},
		read.Cases)

	bench[4], _ = leaving(t, generatedOf2, "3")
	code, _, stderr = mkgen(bench...)
	require.NotZero(t, code)
	require.Contains(t, stderr, "it failed")
	says = `{"usage":{"completion_tokens":3}}`
	_, _, stderr = mkgen(bench...)
	require.Contains(t, stderr, "answers to 1 prompts have 3 tokens, want 4: the server must honour ignore_eos")
	status, says = http.StatusTooManyRequests, "what it says"
	_, _, stderr = mkgen(bench...)
	require.Contains(t, stderr, "429 Too Many Requests: what it says")
	bench[4] = "/none/python3"
	_, _, stderr = mkgen(bench...)
	require.Contains(t, stderr, "found no sglang in /none/python3")
}

func TestARunWithErrorsIsNoMeasurement(t *testing.T) {
	for left, want := range map[string]string{
		`{"completed":1,"errors":["","Too Many Requests"]}`:                              "1 of 2 requests came to their end, want all: Too Many Requests",
		`{"completed":2,"total_input_tokens":33}`:                                        "prompts have 33 tokens by the load generator's tokenizer, want 32",
		`{"completed":2,"total_input_tokens":32,"itls":[[1,1],[1]]}`:                     "8 tokens came in 5 chunks with text, want 6 to 8",
		`{"completed":2,"total_input_tokens":32,"itls":[[1,1,1],[1,1,1,1]],"errors":[]}`: "8 tokens came in 9 chunks with text",
	} {
		var g generated
		require.NoError(t, json.Unmarshal([]byte(left), &g))
		require.ErrorContains(t, g.into(&servedCase{Concurrency: 1, In: 16, Out: 4, Requests: 2}), want)
	}
}

// Prompts have the asked number of tokens, those that the tokenizer puts around a text included.
func TestPromptsHaveTheirNumberOfTokens(t *testing.T) {
	const styles = "../../models/tokenizer/testdata/styles/"
	for _, dir := range []string{tinyTokenizer, styles + "qwen2", styles + "smollm"} {
		text, err := tokenizer.Open(dir)
		require.NoError(t, err)
		w, err := wordsOf(text)
		require.NoError(t, err, dir)
		prompts, err := w.prompts(3, 100)
		require.NoError(t, err, dir)
		for _, p := range prompts {
			ids, err := text.Encode(p, true)
			require.NoError(t, err)
			require.Len(t, ids, 100)
		}
		require.NotEqual(t, prompts[0], prompts[1])
		_, err = w.prompts(1, 0)
		require.ErrorContains(t, err, "no token of a prompt is left")
	}
	text, err := tokenizer.Open(styles + "llama2")
	require.NoError(t, err)
	_, err = wordsOf(text)
	require.ErrorContains(t, err, "found 0 words that are one token, want at least 8")
}
