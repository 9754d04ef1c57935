package compile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/stretchr/testify/require"
)

// fakeText is a compiler in sh. It notes every compilation in $FAKE_RUNS, leaves a temporary file as nvcc does when it
// is killed, waits $FAKE_SLEEP seconds, and makes a "cubin" of the source's bytes. A line that holds BROKEN is an error
// there. $FAKE_VERSION is its version.
const fakeText = `#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release, V$FAKE_VERSION"; exit 0; fi
echo "$@" >>"$FAKE_RUNS"
while [ $# -gt 1 ]; do
  if [ "$1" = -o ]; then out=$2; fi
  shift
done
: >"$TMPDIR/tmpxft_$$"
sleep "$FAKE_SLEEP"
if broken=$(grep -n BROKEN "$1"); then
  echo "$broken" | sed 's|^\([0-9]*\):.*|'"$1"'(\1): error: BROKEN is undefined|' >&2
  exit 2
fi
{ printf '\177ELF'; cat "$1"; } >"$out"
echo "ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 103 registers, used 2 barriers, 64 bytes smem" >&2
`

// fake makes an nvcc that is none and sets what it and this package read from the environment. count is how often it
// has compiled.
func fake(t *testing.T) (opt Options, count func() int) {
	t.Helper()
	dir := t.TempDir()
	path, runs := filepath.Join(dir, "nvcc"), filepath.Join(dir, "runs")
	require.NoError(t, os.WriteFile(path, []byte(fakeText), 0o755))
	t.Setenv("FAKE_RUNS", runs)
	t.Setenv("FAKE_VERSION", "13.0.88")
	t.Setenv("FAKE_SLEEP", "0")
	t.Setenv("TMPDIR", t.TempDir())
	return Options{NvccPath: path, Dir: filepath.Join(dir, "cache")}, func() int {
		text, err := os.ReadFile(runs)
		if os.IsNotExist(err) {
			return 0
		}
		require.NoError(t, err)
		return strings.Count(string(text), "\n")
	}
}

// source is a kernel text of three lines of code, each with a Go line.
func source(lines ...string) Source {
	s := Source{Name: "test", Arch: "sm_90a", Text: []byte(strings.Join(lines, "\n") + "\n")}
	for i := range lines {
		s.Lines = append(s.Lines, ir.Pos{Line: fmt.Sprintf("tasks/t.go:%d", 10*(i+1)), Caller: "megakernel/m.go:5"})
	}
	return s
}

// empty demands that a folder has nothing in it.
func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}
