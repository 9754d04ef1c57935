//go:build unix

package main

import (
	"bufio"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

var servedAt = regexp.MustCompile(`^mkgen: mine at (http://127\.0\.0\.1:\d+)/v1$`)

// The program says where it is, takes its key from the environment, and SIGTERM in the middle of an answer lets it
// come to its end.
func TestServeAnswersAndEndsWithSIGTERM(t *testing.T) {
	cmd := exec.Command("mkgen", "serve", "--model", "tiny", "--rows", "2", "--listen", "127.0.0.1:0", "--served-name",
		"mine")
	cmd.Env = append(cmd.Environ(), keyVariable+"=sesame")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }() // should a check fail
	log := bufio.NewReader(stderr)
	line, err := log.ReadString('\n')
	require.NoError(t, err)
	at := servedAt.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
	require.NotNil(t, at, line)

	ask := func(key string) *http.Response {
		r, err := http.NewRequest(http.MethodPost, at[1]+"/v1/completions",
			strings.NewReader(`{"prompt":"Once","max_tokens":20,"stream":true,"ignore_eos":true}`))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+key)
		got, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { _ = got.Body.Close() })
		return got
	}
	require.Equal(t, http.StatusUnauthorized, ask("rice").StatusCode)
	got := ask("sesame")
	require.Equal(t, http.StatusOK, got.StatusCode)
	body := bufio.NewReader(got.Body)
	first, err := body.ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Equal(t, 20+1, strings.Count(first+string(rest), "data: "))
	require.Contains(t, string(rest), "data: [DONE]")
	logged, err := io.ReadAll(log)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	require.Contains(t, string(logged), `"msg":"draining"`)
	require.NotContains(t, string(logged), "sesame")
}
