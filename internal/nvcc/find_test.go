package nvcc

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const versionText = "echo 'Cuda compilation tools, release 13.0, V13.0.88'\n"

// alone clears everything that Find looks at, but for /usr/local/cuda.
func alone(t *testing.T) {
	t.Helper()
	for _, name := range []string{"NVCC", "CUDA_HOME", "XDG_CACHE_HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("PATH", t.TempDir())
	t.Setenv("MKGEN_CACHE", t.TempDir())
}

func TestFindTakesTheExplicitPathFirst(t *testing.T) {
	alone(t)
	t.Setenv("NVCC", "/nowhere/nvcc")
	path := script(t, versionText)
	c, err := Find(path)
	require.NoError(t, err)
	require.Equal(t, Compiler{Path: path, Version: "13.0.88"}, *c)
}

func TestFindDoesNotLookFurtherThanABrokenNvccVariable(t *testing.T) {
	alone(t)
	t.Setenv("NVCC", "/nowhere/nvcc")
	t.Setenv("PATH", filepath.Dir(script(t, versionText)))
	_, err := Find("")
	require.ErrorContains(t, err, "/nowhere/nvcc, named by $NVCC, does not run")
	require.NotErrorIs(t, err, ErrNotFound)
}

func TestFindRefusesSomethingElse(t *testing.T) {
	alone(t)
	_, err := Find(script(t, "echo gcc 12\n"))
	require.ErrorContains(t, err, `is no nvcc: its --version says "gcc 12"`)
}

func TestFindRefusesAnOldNvcc(t *testing.T) {
	alone(t)
	path := script(t, "echo 'Cuda compilation tools, release 11.8, V11.8.89'\n")
	_, err := Find(path)
	require.EqualError(t, err, "nvcc: "+path+", asked for, is of CUDA 11.8.89, want CUDA 12 or newer")
}

func TestFindPrefersCompletePrefixesOfTheCache(t *testing.T) {
	alone(t)
	cache := os.Getenv("MKGEN_CACHE")
	body, err := os.ReadFile(script(t, versionText))
	require.NoError(t, err)
	for _, name := range []string{"cuda-13.0.1-r1", "cuda-13.0.88-r1", "cuda-13.9.0-r1"} {
		bin := filepath.Join(cache, name, "nvidia", "cu13", "bin")
		require.NoError(t, os.MkdirAll(bin, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(bin, "nvcc"), body, 0o755))
		if name != "cuda-13.9.0-r1" { // left half-made
			require.NoError(t, os.WriteFile(filepath.Join(cache, name, ".complete"), nil, 0o644))
		}
	}
	t.Setenv("PATH", "/bin:/usr/bin") // the script's own needs
	if found := candidates(); filepath.Dir(found[0]) == "/usr/bin" || filepath.Dir(found[0]) == "/bin" {
		t.Skip("this machine has an nvcc in " + found[0])
	}
	c, err := Find("")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(cache, "cuda-13.0.88-r1", "nvidia", "cu13", "bin", "nvcc"), c.Path)
}

func TestFindSaysWhereItLooked(t *testing.T) {
	alone(t)
	if _, err := os.Stat("/usr/local/cuda/bin/nvcc"); err == nil {
		t.Skip("this machine has /usr/local/cuda/bin/nvcc")
	}
	_, err := Find("")
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, "/usr/local/cuda/bin/nvcc; .ci/cuda-toolchain installs one")
}
