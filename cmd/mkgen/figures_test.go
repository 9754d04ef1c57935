//go:build !cuda

package main

import (
	"cmp"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every figure of bench/figures has flags that mkgen bench, mkgen compile and mkgen describe take, and its reference
// arguments that tests/gpu/reference.py takes. mkgen bench stops where it opens the reference or, without one, the GPU:
// the kernels are planned, and contexts and options are found right before. Of a server flags are parsed.
func TestFiguresAreWhatMkgenAndTheReferenceTake(t *testing.T) {
	if testing.Short() {
		t.Skip("plans forty kernels")
	}
	python, err := exec.LookPath(cmp.Or(os.Getenv("MKGEN_PYTHON"), "python3"))
	if err != nil {
		t.Skip(err)
	}
	t.Chdir("../..")
	work := t.TempDir()
	out, err := exec.Command(python, "bench/figures", "--all", "--dry-run", "--mkgen", "mkgen", "--work", work).Output()
	require.NoError(t, err)
	var references []string
	figures, benches, servers := 0, 0, 0
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		switch {
		case words[0] == "#":
			figures++
		case words[0] == "sed":
			said, err := exec.Command("bash", "-c", line).CombinedOutput()
			require.NoError(t, err, "%s", said)
		case words[0] == "python3":
			references = append(references, strings.TrimPrefix(line, "python3 tests/gpu/reference.py "))
		case words[1] == "describe":
			code, said, problems := mkgen(words[1 : len(words)-2]...)
			require.Zero(t, code, problems)
			require.NoError(t, os.WriteFile(words[len(words)-1], []byte(said), 0o666))
		case words[1] == "tests/gpu/train_tokenizer.py":
			servers++
		case words[1] == "compile", words[1] == "serve", slices.Contains(words, "--serve"):
			c, flags, err := newRoot(nil).Find(words[1:])
			require.NoError(t, err)
			require.NoError(t, c.ParseFlags(flags), line)
		default:
			require.Equal(t, "bench", words[1])
			benches++
			code, _, problems := mkgen(words[1:]...)
			require.Equal(t, 1, code, line)
			if _, folder, has := strings.Cut(strings.TrimSpace(line), " --reference "); has {
				require.Contains(t, []string{work + "/reference", work + "/reference/case"}, folder, line)
				require.Contains(t, problems, "--reference "+folder+": ", line)
			} else {
				require.Equal(t, "mkgen: "+oneLine(errNoCUDA)+"\n", problems, line)
			}
		}
	}
	require.Len(t, references, figures-servers)
	require.Equal(t, 4, servers)
	require.Greater(t, figures, 35)
	require.Greater(t, benches, figures-servers)

	cmd := exec.Command(python, "cmd/mkgen/testdata/reference_arguments.py", "tests/gpu/reference.py")
	cmd.Stdin = strings.NewReader(strings.Join(references, ""))
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err = cmd.Output()
	require.NoError(t, err, problems.String())
	require.Equal(t, strings.Join(references, ""), string(out), problems.String())
}
