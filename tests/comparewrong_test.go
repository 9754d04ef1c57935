package tests

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/stretchr/testify/require"
)

// compare runs bench/compare.py in a directory and returns its exit code and what it said.
func compare(t *testing.T, dir string, args ...string) (code int, said string) {
	t.Helper()
	python, err := exec.LookPath(cmp.Or(os.Getenv("MKGEN_PYTHON"), "python3"))
	if err != nil {
		t.Skip(err)
	}
	script, err := filepath.Abs("../bench/compare.py")
	require.NoError(t, err)
	command := exec.Command(python, append([]string{script}, args...)...)
	command.Dir = dir
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return command.ProcessState.ExitCode(), string(out)
}

// fakeMkgen is a program that says how it was called, and exits with a code.
func fakeMkgen(t *testing.T, dir, code string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mkgen"), []byte("#!/bin/sh\necho called $0\nexit "+code+"\n"),
		0o755))
}

func TestAComparisonThatCannotBeIsRefusedInOneLine(t *testing.T) {
	dir := t.TempDir()
	fakeMkgen(t, dir, "0")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text"), []byte("x"), 0o644))
	require.NoError(t, os.Symlink(os.DevNull, filepath.Join(dir, "null")))
	type refusal struct {
		args string
		code int
		want string
	}
	for _, c := range deep.Most([]refusal{ // a start of Python each
		{"--mkgen none", 1, "compare: --mkgen: none is not there: "},
		{"--mkgen empty", 1, "compare: --mkgen: empty is no program\n"},
		{"--mkgen text", 1, "compare: --mkgen: text is no program\n"},
		{"--reference none", 1, "compare: --reference none: [Errno 2] No such file or directory: 'none/manifest.json'; "},
		{"--single '", 2, `compare: --single: found "'": No closing quotation`},
		{"--single=--rows|4", 2, "compare: --single: found --rows, want options of a kernel of one row; "},
		{"--graph=--cases=x", 2, "compare: --graph: found --cases, want"},
		{"--single-profile none", 1, "compare: --single-profile: none is no file\n"},
		{"--config text --out ./text", 2, "compare: --out text is the file of --config, want another\n"},
		{"--out new/", 2, "compare: --out: found 'new/', want a file\n"},
		{"--out empty", 1, "compare: --out empty: it is there and no regular file\n"},
		{"--out null", 1, "compare: --out null: it is there and no regular file\n"},
		{"--out text/below", 1, "compare: --out text/below: Not a directory\n"},
	}, 5) {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "|", " ")
		}
		code, said := compare(t, dir,
			append([]string{"--mkgen", "./mkgen", "--model", "tiny", "--device", "sim", "--no-transformers"}, args...)...)
		require.Equal(t, c.code, code, "%s: %s", c.args, said)
		require.True(t, strings.HasPrefix(said, c.want), "%s: %s", c.args, said)
		require.Equal(t, 1, strings.Count(said, "\n"), "%s: %s", c.args, said)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 4, "nothing is left")
}

func TestAComparisonEndsAsMkgenDid(t *testing.T) {
	dir := t.TempDir()
	for mkgen, want := range map[string]int{"2": 2, "1": 1, "3": 1} {
		fakeMkgen(t, dir, mkgen)
		code, said := compare(t, dir, "--mkgen", "./mkgen", "--model", "tiny", "--device", "sim", "--no-transformers")
		require.Equal(t, want, code, said)
		require.Contains(t, said, "called "+filepath.Join(dir, "mkgen"))
		require.NotContains(t, said, "Traceback")
	}
}

func TestHelpOfTheComparisonSaysOnlyDefaultsThatThereAre(t *testing.T) {
	code, said := compare(t, t.TempDir(), "--help")
	require.Zero(t, code)
	for _, none := range []string{"default: )", "default: None", "default: False", "see above"} {
		require.NotContains(t, said, none)
	}
	require.Contains(t, said, "(default: 7)")
}

// A file that comes to be while others fail to is written whole, through a link.
func TestTheComparisonIsWrittenWhole(t *testing.T) {
	dir := t.TempDir()
	python, err := exec.LookPath(cmp.Or(os.Getenv("MKGEN_PYTHON"), "python3"))
	if err != nil {
		t.Skip(err)
	}
	require.NoError(t, os.Symlink("new/file", filepath.Join(dir, "link")))
	write := func(text, limit string) *exec.Cmd {
		command := exec.Command("sh", "-c",
			limit+` exec "$0" -c 'import compare, pathlib, sys; compare.write(pathlib.Path(sys.argv[1]), sys.argv[2] * 4000)' "$@"`, python, filepath.Join(dir, "link"), text)
		command.Dir = "../bench"
		command.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
		return command
	}
	out, err := write("a", "").CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = write("b", "ulimit -f 1; trap '' XFSZ;").CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "compare: --out "+filepath.Join(dir, "link")+": File too large\n", string(out))
	text, err := os.ReadFile(filepath.Join(dir, "new", "file"))
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("a", 4000), string(text))
	entries, err := os.ReadDir(filepath.Join(dir, "new"))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}
