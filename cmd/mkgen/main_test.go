package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel/verify"
	"github.com/mkgen/mkgen/tests/enginecases"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata/script")

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"mkgen": main}) }

func TestScripts(t *testing.T) {
	configs, err := filepath.Abs("../../models/testdata/configs")
	require.NoError(t, err)
	codes, err := filepath.Abs("../../models/bundled/tiny-i4g32")
	require.NoError(t, err)
	written := t.TempDir()
	require.NoError(t, enginecases.WriteCheckpoint(written, 5))
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("CONFIGS", configs)
			e.Setenv("CHECKPOINT", written)
			e.Setenv("CODES", codes)
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name != "deep" {
				return false, fmt.Errorf("found condition %q, want deep", name)
			}
			return deep.On(), nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"refused": refused, "holds": holds},
	})
}

// refused CODE ARGS… runs mkgen and demands the exit code, nothing on stdout
// and one line on stderr. What was run and that line are added to the file
// "refusals", the directory's name written as $WORK.
func refused(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: refused CODE ARGS...")
	}
	var exit *exec.ExitError
	if err := ts.Exec("mkgen", args[1:]...); !errors.As(err, &exit) || strconv.Itoa(exit.ExitCode()) != args[0] {
		ts.Fatalf("mkgen %q: %v, want exit code %s", args[1:], err, args[0])
	}
	stdout, stderr := ts.ReadFile("stdout"), ts.ReadFile("stderr")
	line, whole := strings.CutSuffix(stderr, "\n")
	if stdout != "" || !whole || strings.Contains(line, "\n") || !strings.HasPrefix(line, "mkgen: ") {
		ts.Fatalf("mkgen %q: stdout %q, stderr %q; want nothing and one line", args[1:], stdout, stderr)
	}
	f, err := os.OpenFile(ts.MkAbs("refusals"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	ts.Check(err)
	text := fmt.Sprintf("%s: %s\n", strings.Join(args, " "), line)
	_, err = f.WriteString(strings.NewReplacer(ts.Getenv("WORK"), "$WORK", ts.Getenv("CONFIGS"), "$CONFIGS",
		ts.Getenv("CHECKPOINT"), "$CHECKPOINT").Replace(text))
	ts.Check(errors.Join(err, f.Close()))
}

// holds DIR NAMES… demands that a directory has these entries, hidden ones
// included, and no other.
func holds(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: holds DIR NAMES...")
	}
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	var names []string
	for _, e := range entries {
		if e.Name() != ".tmp" { // testscript's own
			names = append(names, e.Name())
		}
	}
	if got, want := strings.Join(names, " "), strings.Join(args[1:], " "); got != want {
		ts.Fatalf("%s holds %q, want %q", args[0], got, want)
	}
}

// mkgen runs the command in this process.
func mkgen(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(newRoot(nil), args, &out, &err)
	return code, out.String(), err.String()
}

func TestAnErrorIsOnePrintableLine(t *testing.T) {
	for _, args := range [][]string{{"--model", "ti\nny\x1b[2J"}, {"fro\nbnicate"}, {"--config", "a\nb"},
		{"--model", "tiny", "--sms", "1\n2"}, {"--x\ny"}} {
		code, stdout, stderr := mkgen(args...)
		require.NotZero(t, code)
		require.Empty(t, stdout)
		require.Equal(t, 1, strings.Count(stderr, "\n"), "%q", stderr)
		require.NotContains(t, stderr, "\x1b")
	}
	many := errors.Join(errors.New("a"), errors.New("b"))
	require.Equal(t, "x: 2 problems: (1) a; (2) b", oneLine(fmt.Errorf("x: %w", many)))
	require.Equal(t, `a\nb`, oneLine(errors.New("a\nb\n")))
}

func TestHelpFitsATerminal(t *testing.T) {
	for _, args := range [][]string{{}, {"models"}, {"explain"}, {"ir"}, {"compile"}, {"verify"}, {"run"}, {"bench"},
		{"calibrate"}, {"sweep"}, {"tune"}, {"trace"}, {"plot"}} {
		code, stdout, stderr := mkgen(append(args, "--help")...)
		require.Zero(t, code)
		require.Empty(t, stderr)
		for line := range strings.Lines(stdout) {
			require.LessOrEqual(t, len([]rune(line)), 81, "%q", line)
		}
	}
}

// Tables of the executor are no wider than those of a GPU, or hardly. Flags that are copied stay
// in one line.
func TestWhatIsPrintedFitsATerminal(t *testing.T) {
	deep.Only(t)
	t.Chdir(t.TempDir())
	for most, commands := range map[int][]string{
		80: {"--model tiny", "explain --model llama3-8b", "verify --model tiny --seeds 1", "models",
			"sweep --model tiny --device sim"},
		100: {"verify --model tiny --seeds 1 --rows 2", "bench --model tiny --device sim --budget",
			"trace --model tiny --device sim", "tune --model tiny --device sim",
			"bench --model tiny --device sim --ablate --time 1ns"},
		110: {"calibrate --device sim"}, // whose figures are as wide as chance has them
	} {
		for _, command := range commands {
			var out, problems bytes.Buffer
			require.Zero(t, run(newRoot(verify.Check), words(command), &out, &problems), problems.String())
			for line := range strings.Lines(out.String()) {
				if !strings.HasPrefix(line, "The kernel: --") && !strings.HasPrefix(line, "Chosen: --") {
					require.LessOrEqual(t, len([]rune(line)), most+1, "%s: %q", command, line)
				}
			}
		}
	}
}

func TestHelpOfACommandIsItsFlagHelp(t *testing.T) {
	for _, command := range [][]string{{}, {"explain"}, {"help"}} {
		_, byFlag, _ := mkgen(append(command, "--help")...)
		code, byCommand, _ := mkgen(append([]string{"help"}, command...)...)
		require.Zero(t, code)
		require.NotEmpty(t, byCommand)
		require.Equal(t, byFlag, byCommand)
	}
}

// words splits a command as a shell does, if it only has double quotes.
func words(command string) []string {
	all := regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(command, -1)
	for i := range all {
		all[i] = strings.Trim(all[i], `"`)
	}
	return all
}

func TestCommandsOfTheReadmeAreOnesThereAre(t *testing.T) {
	deep.Only(t)
	if testing.Short() {
		t.Skip("all of them take minutes under the race detector")
	}
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	t.Setenv("MKGEN_CACHE", t.TempDir()) // not the user's
	n := 0
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(line, "go run ./cmd/mkgen ")
		if !ok {
			continue
		}
		command, _, _ = strings.Cut(command, "#")
		if strings.HasPrefix(command, "serve ") {
			continue // it does not end; TestServeAnswersAndEndsWithSIGTERM runs it
		}
		if code, _, stderr := mkgen(words(command)...); code == 2 {
			t.Errorf("%s: %s", command, stderr)
		}
		n++
	}
	require.Greater(t, n, 3)
	require.FileExists(t, "out/llama3-8b/kernel.cu")
}
