package tests

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/stretchr/testify/require"
)

// The contexts that are measured where none are given are those that the model has
// positions for, and one that is given and has none is refused before anything runs.
func TestTheComparisonLeavesOutContextsWithoutPositions(t *testing.T) {
	deep.Only(t) // builds and links the command
	python := anyPython(t)
	dir := t.TempDir()
	mkgen, out := filepath.Join(dir, "mkgen"), filepath.Join(dir, "compare.json")
	built, err := exec.Command("go", "build", "-o", mkgen, "../cmd/mkgen").CombinedOutput()
	require.NoError(t, err, string(built))
	args := []string{"../bench/compare.py", "--mkgen", mkgen, "--model", "tiny", "--device", "sim", "--rounds", "1",
		"--tokens", "2", "--no-transformers", "--out", out}
	said, err := exec.Command(python, append(args, "--contexts", "128,511")...).CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "compare: --contexts: 511 and a round of 2 tokens, the model was made for 512 positions\n",
		string(said))
	said, err = exec.Command(python, append(args, "--contexts", "128,x")...).CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "compare: --contexts: found '128,x', want numbers with commas between\n", string(said))
	if testing.Short() {
		t.Skip("runs on the executor")
	}
	said, err = exec.Command(python, args...).CombinedOutput()
	require.NoError(t, err, string(said))
	require.Contains(t, string(said), "Not measured: contexts [1024], the model was made for 512 positions.\n")
	require.NotContains(t, string(said), "device time a token", "no verdict where times are no speed")
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	var got struct{ Cases []struct{ Context int } }
	require.NoError(t, json.Unmarshal(text, &got))
	require.Len(t, got.Cases, 2)
	require.Equal(t, 128, got.Cases[0].Context)
}

func TestTheComparisonSaysMoreWhereTheSingleKernelIsSlower(t *testing.T) {
	cmd := exec.Command(anyPython(t), "-c",
		"import compare; print(compare.gain(1.039), compare.gain(1), compare.gain(1 / 1.0972), sep='; ')")
	cmd.Dir = "../bench"
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, string(said))
	require.Equal(t, "3.75 % less; 0.00 % less; 9.72 % more\n", string(said))
}

// anyPython is a Python, or skips the test: $MKGEN_PYTHON or python3.
func anyPython(t *testing.T) string {
	t.Helper()
	python, err := exec.LookPath(cmp.Or(os.Getenv("MKGEN_PYTHON"), "python3"))
	if err != nil {
		t.Skip(err)
	}
	return python
}

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
	said, err := exec.Command(python, "../bench/compare.py", "--mkgen", mkgen, "--model", "tiny", "--device", "sim",
		"--contexts", "5,20", "--rounds", "2", "--tokens", "3", "--mode", "eager", "--out", out, "--graph",
		"--dependents streamed").CombinedOutput()
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
