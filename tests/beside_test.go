package tests

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/stretchr/testify/require"
)

// bench/beside.py measures a server on the executor: every sequence gets its tokens while a prompt is read.
func TestAPromptBesideSequencesIsMeasuredOnACPU(t *testing.T) {
	deep.Only(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	dir := t.TempDir()
	mkgen, out := filepath.Join(dir, "mkgen"), filepath.Join(dir, "beside.json")
	built, err := exec.Command("go", "build", "-o", mkgen, "../cmd/mkgen").CombinedOutput()
	require.NoError(t, err, string(built))
	serve := exec.Command(mkgen, "serve", "--model", "tiny", "--random", "1", "--rows", "4", "--prefill", "64", "--quiet",
		"--listen", "127.0.0.1:0")
	said, err := serve.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, serve.Start())
	t.Cleanup(func() {
		require.NoError(t, serve.Process.Signal(syscall.SIGTERM))
		_ = serve.Wait()
	})
	var at []string
	for lines := bufio.NewScanner(said); at == nil && lines.Scan(); {
		at = regexp.MustCompile(`at (http://\S+/v1)$`).FindStringSubmatch(lines.Text())
	}
	require.NotNil(t, at)
	text, err := exec.Command(python, "../bench/beside.py", at[1], "--prompt", "150", "--short", "5", "--sequences", "3",
		"--tokens", "6", "--vocab", "300", "--rounds", "1", "-o", out).CombinedOutput()
	require.NoError(t, err, string(text))
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	var got struct {
		Alone    float64 `json:"prompt_alone_ms"`
		Together float64 `json:"together_ms"`
		Gaps     struct {
			P50, P99, Max float64
			Of            int
		} `json:"gap_beside_ms"`
	}
	require.NoError(t, json.Unmarshal(data, &got))
	require.Positive(t, got.Alone)
	require.GreaterOrEqual(t, got.Together, got.Gaps.Max)
	require.GreaterOrEqual(t, got.Gaps.Max, got.Gaps.P50)
	require.LessOrEqual(t, got.Gaps.Of, 3*6, "tokens of three sequences, behind the first eight of each or a few more")
	require.Greater(t, got.Gaps.Of, 3*3)
}
