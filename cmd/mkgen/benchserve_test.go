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
		`{"request_count":{"avg":5},"request_error_rate":{"avg":16.7},"output_sequence_length":{"min":8}}`: "5 of 6 requests came to their end, 16.7 % failed",
		`{"request_count":{"avg":6},"output_sequence_length":{"min":7}}`:                                   "an answer has 7 tokens, want 8",
		`[`: "aiperf's results",
	} {
		_, err := servedOf([]byte(left), 3, 6, [2]int{16, 8})
		require.ErrorContains(t, err, want)
	}
}
