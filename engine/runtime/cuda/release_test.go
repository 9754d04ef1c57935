package cuda

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDriverReleaseIsReadFromTheFirstFileThatSaysIt(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	proc := write("proc", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder)  Tue\nGCC version:  gcc version 12.2.0\n")
	sys := write("sys", "575.57\n")
	none := write("none", "no number here, 12.2.0\n")
	require.Equal(t, "580.159.04", releaseIn(proc, sys))
	require.Equal(t, "575.57", releaseIn(filepath.Join(dir, "absent"), none, sys))
	require.Empty(t, releaseIn(none))
	require.Empty(t, releaseIn())
}
