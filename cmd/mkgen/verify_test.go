package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/verify"
	"github.com/stretchr/testify/require"
)

// verifying runs mkgen verify with a checker that answers report and err.
func verifying(t *testing.T, report *verify.Report, err error,
	args ...string) (code int, asked verify.Request, stdout, stderr string) {
	t.Helper()
	check := func(_ context.Context, r verify.Request) (*verify.Report, error) {
		asked = r
		r.Progress(1, 2) // shown on a terminal only
		return report, err
	}
	var out, errs bytes.Buffer
	code = run(newRoot(check), append([]string{"verify", "--model", "tiny"}, args...), &out, &errs)
	return code, asked, out.String(), errs.String()
}

func TestVerifyPassesTheRequestOn(t *testing.T) {
	good := &verify.Report{Model: "tiny", Seeds: []uint64{1}, Values: []verify.Comparison{{What: "logits", Compared: 1}}}
	code, asked, stdout, stderr := verifying(t, good, nil, "--sms", "5", "--seeds", "7", "--steps", "2")
	require.Zero(t, code)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "No race, no deadlock")
	require.Equal(t, []any{"tiny", 5, 7, 2}, []any{asked.Config.Name, asked.Options.SMs, asked.Seeds, asked.Steps})
}

// What a mode does not read is refused, not dropped.
func TestVerifyRefusesWhatItsModeDoesNotRead(t *testing.T) {
	for mode, read := range map[string][]string{
		"--skeleton":   {"--races"},
		"--explore=1":  {"--record=x"},
		"--prefill=64": {"--record=x", "--lines", "--seeds=1", "--seed=2", "--schedule=pct", "--prefill-activations=e4m3"},
	} {
		name, _, _ := strings.Cut(mode, "=")
		for _, other := range []string{"--skeleton", "--explore=5", "--spin", "--models=x", "--record=x", "--lines",
			"--races", "--seeds=1", "--seed=2", "--schedule=pct", "--steps=5", "--pin-split=7", "--prefill=4096",
			"--prefill-activations=e4m3"} {
			flag, _, _ := strings.Cut(other, "=")
			if flag == name || slices.Contains(read, other) {
				continue
			}
			code, _, stdout, stderr := verifying(t, nil, errors.New("it ran"), mode, other)
			require.Equal(t, []any{2, ""}, []any{code, stdout}, "%s %s: %s", mode, other, stderr)
			require.Contains(t, stderr, " exclude each other", "%s %s", mode, other)
		}
	}
	for args, want := range map[string]string{
		"--skeleton --prefill 64":  "--prefill and --skeleton exclude each other",
		"--explore 1 --prefill 64": "--prefill and --explore exclude each other",
		"--skeleton --record x":    "--record and --skeleton exclude each other",
		"--prefill 64 --steps 5":   "--steps and --prefill exclude each other",
		"--spin":                   "--model and --spin exclude each other",
		"--races":                  "--races goes with --skeleton",
		"--models x":               "--models goes with --spin",
		"--prefill 64 --seeds 1":   "it ran",
		"--steps 5 --pin-split 64": "it ran",
	} {
		_, _, _, stderr := verifying(t, nil, errors.New("it ran"), words(args)...)
		require.Equal(t, "mkgen: "+want+"\n", stderr, args)
	}
}

func TestVerifyExitsWithOneWhenAnythingIsFound(t *testing.T) {
	bad := &verify.Report{Model: "tiny", Seeds: []uint64{1}, Values: []verify.Comparison{{What: "logits", Compared: 1}},
		Findings: []verify.Finding{{Kind: "data race", Text: "element 3 of @x"}}}
	code, _, stdout, stderr := verifying(t, bad, nil)
	require.Equal(t, 1, code)
	require.Equal(t, "mkgen: tiny fails verification: 1 × data race\n", stderr)
	require.Contains(t, stdout, "1. data race (seed 0, round robin, step 0): element 3 of @x")
}

func TestVerifyThatCannotRun(t *testing.T) {
	code, _, stdout, stderr := verifying(t, nil, errors.New("too large"))
	require.Equal(t, []any{1, "", "mkgen: too large\n"}, []any{code, stdout, stderr})
}

func TestVerifyOnTheExecutor(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a kernel")
	}
	var out, errs bytes.Buffer
	seeds := deep.Count(2, 1)
	require.Zero(t, run(newRoot(verify.Check), []string{"verify", "--model", "tiny", "--seeds", fmt.Sprint(seeds),
		"--steps", "2", "--page", "1"}, &out, &errs), errs.String())
	for _, want := range []string{"the ring went round", "KV splits with tokens", "bit-identical",
		map[int]string{1: "(seed 1: ", 2: "seeds 1-2"}[seeds], "No race, no deadlock"} {
		require.Contains(t, out.String(), want)
	}
	errs.Reset()
	require.Equal(t, 2, run(newRoot(verify.Check), []string{"verify", "--model", "tiny", "--steps", "1"}, &out, &errs))
	require.Equal(t, "mkgen: --steps: 1 step, want at least 2, so that the new tokens cross a page boundary\n",
		errs.String())
}

// The line below a finding is a command that finds it again, under the same schedule.
func TestVerifySaysHowAFindingIsFoundAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a kernel")
	}
	check := func(ctx context.Context, r verify.Request) (*verify.Report, error) {
		r.Options.Fault = megakernel.FaultLostRelease
		return verify.Check(ctx, r)
	}
	found := regexp.MustCompile(`(?s)Found\n  1\. (.*?)\n     again: mkgen (.*?)\n`)
	verified := func(args ...string) (finding, again string) {
		var out, errs bytes.Buffer
		require.Equal(t, 1, run(newRoot(check), args, &out, &errs), errs.String())
		m := found.FindStringSubmatch(out.String())
		require.NotNil(t, m, out.String())
		return m[1], m[2]
	}
	finding, again := verified("verify", "--model", "tiny", "--page", "1", "--steps", "2", "--seed", "5", "--seeds", "2",
		"--schedule", "starve")
	require.Contains(t, finding, "deadlock (seed 9, starve, step 0)")
	require.Equal(t, "verify --model tiny --page 1 --steps 2 --seeds 1 --seed 9", again)
	repeated, same := verified(words(again)...)
	require.Equal(t, []string{finding, again}, []string{repeated, same})
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{"tiny": "tiny", "": "''", "a b": "'a b'",
		"window=32/causal": "window=32/causal", "it's": `'it'\''s'`, "ä": "'ä'"} {
		require.Equal(t, want, shellWord(word))
	}
}
