//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// leaving is a program that leaves what aiperf leaves, and its arguments.
func leaving(t *testing.T, left string, code string) (program, args string) {
	t.Helper()
	dir := t.TempDir()
	program, args = filepath.Join(dir, "aiperf"), filepath.Join(dir, "args")
	script := "#!/bin/sh\necho \"$@\" >>" + args +
		"\nfor last; do :; done\nwhile [ $# -gt 0 ]; do [ \"$1\" = --artifact-dir ] && dir=$2; shift; done\ncat >\"$dir/profile_export_aiperf.json\" <<'X'\n" +
		left + "\nX\necho it failed >&2\nexit " + code + "\n"
	require.NoError(t, os.WriteFile(program, []byte(script), 0o700))
	return program, args
}

const aiperfLeft = `{"request_count":{"avg":6.0},"request_error_rate":{"avg":0},"time_to_first_token":{"p50":10.5,"p99":20},
"inter_token_latency":{"p50":5,"p99":6},"inter_chunk_latency":{"p50":4.5,"p99":9},"output_sequence_length":{"avg":8,"min":8},"output_token_throughput":{"avg":123}}`

func TestAServerIsMeasuredByALoadGenerator(t *testing.T) {
	program, args := leaving(t, aiperfLeft, "0")
	cases := filepath.Join(t.TempDir(), "cases.json")
	bench := []string{"bench", "--serve", "http://127.0.0.1:1/v1", "--load-generator", program, "--tokenizer", "somewhere",
		"--served-name", "m", "--concurrency", "3", "--lengths", "16/8", "--requests", "2", "--cases", cases}
	code, out, stderr := mkgen(bench...)
	require.Zero(t, code, stderr)
	require.Regexp(t, `3 +16 +8 +10.50ms +20.00ms +5.000ms +4.500ms +9.000ms +123.0\n`, out)
	said, err := os.ReadFile(args)
	require.NoError(t, err)
	require.Contains(t, string(said), "--url http://127.0.0.1:1 ")
	require.Contains(t, string(said), "--concurrency 3 --request-count 6 --warmup-request-count 3")
	data, err := os.ReadFile(cases)
	require.NoError(t, err)
	var read struct{ Cases []servedCase }
	require.NoError(t, json.Unmarshal(data, &read))
	require.Equal(t, []servedCase{{3, 16, 8, 6, percentile{10.5, 20}, percentile{5, 6}, percentile{4.5, 9}, 123}},
		read.Cases)

	program, _ = leaving(t, aiperfLeft, "3")
	bench[4] = program
	code, _, stderr = mkgen(bench...)
	require.NotZero(t, code)
	require.Contains(t, stderr, "it failed")
}

func TestARunWithErrorsIsNoMeasurement(t *testing.T) {
	for left, want := range map[string]string{
		`{"request_count":{"avg":5},"request_error_rate":{"avg":16.7},"output_sequence_length":{"min":8}}`: "5 of 6 requests came to their end, 1 failed",
		`{"request_count":{"avg":6},"output_sequence_length":{"min":7}}`:                                   "an answer has 7 tokens, want 8",
	} {
		g, err := readAiperf([]byte(left))
		require.NoError(t, err)
		c := servedCase{Concurrency: 3, In: 16, Out: 8, Requests: 6}
		require.ErrorContains(t, c.found(g), want)
	}
	for name, g := range loadGenerators {
		_, err := g.read([]byte(`[`))
		require.ErrorContains(t, err, name+"'s results")
	}
	_, err := readGuidellm([]byte(`{"benchmarks":[]}`))
	require.ErrorContains(t, err, "found 0 benchmarks, want 1")
	_, err = loadGeneratorOf("/bin/wrk")
	require.ErrorContains(t, err, "found /bin/wrk, want a program named aiperf or guidellm")
}

// What guidellm 0.3.1 leaves of six requests behind three that warm up, cut to what is read.
const guidellmLeftOf6 = `{"benchmarks":[{"request_totals":{"successful":6,"errored":0,"incomplete":0,"total":6},"metrics":{
"output_token_count":{"successful":{"mean":8,"min":8}},"time_to_first_token_ms":{"successful":{"percentiles":{"p50":10.5,"p99":20}}},
"inter_token_latency_ms":{"successful":{"percentiles":{"p50":5,"p99":6}}},"output_tokens_per_second":{"successful":{"mean":123}}}}]}`

func TestGuidellmMeasuresAServer(t *testing.T) {
	dir := t.TempDir()
	program, said := filepath.Join(dir, "guidellm"), filepath.Join(dir, "said")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho \"$@ $GUIDELLM__OPENAI__API_KEY\" >"+said+
		"\nfor left; do :; done\ncat >\"$left\" <<'X'\n"+guidellmLeftOf6+"\nX\n"), 0o700))
	t.Setenv(keyVariable, "a-key")
	code, out, stderr := mkgen("bench", "--serve", "http://127.0.0.1:1/v1", "--load-generator", program, "--tokenizer",
		"somewhere", "--served-name", "m", "--concurrency", "3", "--lengths", "16/8", "--requests", "2")
	require.Zero(t, code, stderr)
	require.Regexp(t, `3 +16 +8 +10.50ms +20.00ms +5.000ms +- +- +123.0\n`, out)
	args, err := os.ReadFile(said)
	require.NoError(t, err)
	require.Contains(t, string(args), "--rate 3 --max-requests 9 --warmup-percent 0.388889")
	require.Contains(t, string(args), "--data prompt_tokens=16,output_tokens=8,samples=9 ")
	require.Contains(t, string(args), " a-key\n")
}
