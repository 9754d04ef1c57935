package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// bench/compare.py runs from end to end on a CPU: both kernels on the executor, and
// transformers without the compiler.
func TestTheComparisonRunsOnACPU(t *testing.T) {
	if testing.Short() {
		t.Skip("builds mkgen and starts PyTorch")
	}
	python := pythonWithTorch(t)
	if out, err := exec.Command(python, "-c", "from transformers import StaticCache").CombinedOutput(); err != nil {
		t.Skipf("%s has no transformers 5: %.200s", python, out)
	}
	dir := t.TempDir()
	mkgen, out := filepath.Join(dir, "mkgen"), filepath.Join(dir, "compare.json")
	built, err := exec.Command("go", "build", "-o", mkgen, "../cmd/mkgen").CombinedOutput()
	require.NoError(t, err, string(built))
	said, err := exec.Command(python, "../bench/compare.py", "--mkgen", mkgen, "--model", "tiny", "--device", "sim", "--contexts", "5,20",
		"--rounds", "2", "--tokens", "3", "--mode", "eager", "--out", out, "--graph", "--dependents streamed").CombinedOutput()
	require.NoError(t, err, string(said))
	require.Contains(t, string(said), "UNGATED: no record.")
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	var got struct {
		Gated   bool
		Options map[string]struct{ Launch, Dependents string }
		Cases   []struct {
			System  string
			Context int
			Micros  float64 `json:"us_per_token"`
			Share   float64
		}
		Transformers struct {
			Apart float64
			Cache int `json:"cache_tokens"`
		}
	}
	require.NoError(t, json.Unmarshal(text, &got))
	require.False(t, got.Gated)
	require.Equal(t, "graph", got.Options["graph"].Launch)
	require.Equal(t, "streamed", got.Options["graph"].Dependents)
	require.Empty(t, got.Options["single"].Launch)
	require.Len(t, got.Cases, 6)
	for i, c := range got.Cases {
		require.Equal(t, []string{"single", "graph", "transformers"}[i%3], c.System)
		require.Equal(t, []int{5, 20}[i/3], c.Context)
		require.Positive(t, c.Micros)
		require.Positive(t, c.Share)
	}
	require.Less(t, got.Transformers.Apart, 0.25)
	require.GreaterOrEqual(t, got.Transformers.Cache, 23)
}
