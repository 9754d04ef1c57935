package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/emit"
	"github.com/stretchr/testify/require"
)

// -o - is the kernel on standard output, and no directory of that name.
func TestTheKernelGoesToStandardOutput(t *testing.T) {
	dir := t.TempDir()
	code, _, stderr := mkgen("--model", "tiny", "-o", filepath.Join(dir, "tiny"))
	require.Equal(t, 0, code, stderr)
	want, err := os.ReadFile(filepath.Join(dir, "tiny", emit.KernelFile))
	require.NoError(t, err)
	t.Chdir(dir)
	for _, quiet := range []string{"--quiet=false", "--quiet"} {
		code, stdout, stderr := mkgen("--model", "tiny", "-o", "-", quiet)
		require.Equal(t, 0, code, stderr)
		require.Equal(t, string(want), stdout)
		require.Empty(t, stderr)
	}
	require.NoDirExists(t, "-")
}
