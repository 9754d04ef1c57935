package main

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/tune"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// profileOf writes a profile of a model that chose something else than the defaults.
func profileOf(t *testing.T, model string) (path string, chosen tune.Choice) {
	t.Helper()
	c := choice{model: model, arch: "sm_90a"}
	cmd := &cobra.Command{}
	c.flags(cmd)
	require.NoError(t, cmd.Flags().Set("model", model))
	mk, err := c.build(cmd)
	require.NoError(t, err)
	chosen = tune.Choice{StageBytes: 8192, Stages: 10, InFlight: 5, Leads: "6:3", Held: 3, Consumers: 7, Splits: 4,
		Queries: megakernel.SyncBarrier, Merge: megakernel.MergePhase, Vectors: "counted"}
	p := &tune.Profile{Format: tune.Format, Setup: tune.Setup{GPU: "g", Compiler: "c", Commit: "x", Arch: "sm_90a",
		Contexts: []int{1}, Launches: 1}.Of(mk),
		Start: chosen, Chosen: chosen}
	path = filepath.Join(t.TempDir(), "p.json")
	require.NoError(t, p.WriteFile(path))
	return path, chosen
}

// text is the kernel that mkgen writes.
func text(t *testing.T, args ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "k")
	code, _, stderr := mkgen(append(args, "-q", "-o", dir)...)
	require.Zero(t, code, stderr)
	data, err := os.ReadFile(filepath.Join(dir, "kernel.cu"))
	require.NoError(t, err)
	return string(data)
}

func TestAProfileIsTheFlagsThatItStandsFor(t *testing.T) {
	path, _ := profileOf(t, "llama3-8b")
	want := text(t, "--model", "llama3-8b", "--stage-bytes", "8192", "--stages", "10", "--in-flight", "5", "--leads",
		"6:3", "--held", "3", "--consumers", "7", "--splits", "4", "--queries", "barrier", "--merge", "phase", "--vectors",
		"counted")
	require.Equal(t, want, text(t, "--model", "llama3-8b", "--profile", path))
	require.NotEqual(t, want, text(t, "--model", "llama3-8b"))
	others := map[string]string{"stage-bytes": "16384", "stages": "9", "in-flight": "4", "leads": "none", "held": "0",
		"consumers": "8", "splits": "8", "queries": "words", "merge": "words", "vectors": "barrier"}
	for _, flag := range deep.Most(slices.Sorted(maps.Keys(others)), 3) {
		value := others[flag]
		values := map[string]string{"stage-bytes": "8192", "stages": "10", "in-flight": "5", "leads": "6:3", "held": "3",
			"consumers": "7", "splits": "4", "queries": "barrier", "merge": "phase", "vectors": "counted"}
		values[flag] = value
		args := []string{"--model", "llama3-8b"}
		for name, v := range values {
			args = append(args, "--"+name, v)
		}
		other := text(t, args...)
		require.NotEqual(t, want, other, "--%s makes another kernel", flag)
		require.Equal(t, other, text(t, "--model", "llama3-8b", "--profile", path, "--"+flag, value),
			"--%s goes before the profile", flag)
	}
}

func TestAnInterruptedSearchSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	root := newRoot(nil)
	path := filepath.Join(t.TempDir(), "p.json")
	root.SetArgs([]string{"tune", "--model", "tiny", "--device", "sim", "-o", path})
	err := root.ExecuteContext(ctx)
	require.EqualError(t, err, "interrupted")
	require.Equal(t, 130, exitCode(err))
	require.NoFileExists(t, path)
}

func TestAnInterruptionNamesTheFileThatWasKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.json")
	require.EqualError(t, keeping(interruptError{}, path), "interrupted")
	require.NoError(t, os.WriteFile(path, nil, 0o666))
	err := keeping(interruptError{}, path)
	require.EqualError(t, err, "interrupted; what was measured is in "+path+", and the same command goes on")
	require.Equal(t, 130, exitCode(err))
	require.EqualError(t, keeping(errors.New("no room"), path), "no room")
	require.NoError(t, keeping(nil, path))
}

func TestTheReportOfASearchOnAGPUSaysUngatedAndHowToUseIt(t *testing.T) {
	start := tune.Choice{StageBytes: 16384, Stages: 11, InFlight: 3, Leads: "4:2", Held: 4, Consumers: 8, Splits: 16,
		Queries: megakernel.SyncWords, Merge: megakernel.MergePhase, Vectors: "counted"}
	chosen := start
	start.Merge, chosen.Merge = megakernel.MergeWords, megakernel.MergePhase
	trial := tune.Trial{Dimension: tune.Merge, Options: chosen, Against: start, Micros: []float64{3600},
		AgainstMicros: []float64{3636.4}, Ratio: 0.99, Noise: 0.003, Better: true}
	p := &tune.Profile{Setup: tune.Setup{Model: "llama3-8b", GPU: "NVIDIA H200", Compiler: "nvcc 13.0.88",
		Options: megakernel.Options{SMs: 114, Page: 16}, Weights: "random, seed 1", Contexts: []int{1024}, Launches: 9,
		Tokens: 32},
		Start: start, Chosen: chosen, Trials: []tune.Trial{trial}}
	f := tuneFlags{benchFlags: benchFlags{device: deviceCUDA}, output: "p.json"}
	cmd := &cobra.Command{}
	f.choice.flags(cmd)
	require.NoError(t, errors.Join(cmd.Flags().Set("model", "llama3-8b"), cmd.Flags().Set("kv", "e4m3"),
		cmd.Flags().Set("sms", "114")))
	var out bytes.Buffer
	cmd.SetOut(&out)
	require.NoError(t, f.report(cmd, p,
		[]tune.Step{{Round: 1, Dimension: tune.Merge, Incumbent: start, Chosen: chosen, Trials: p.Trials}}, true))
	require.Equal(t, `llama3-8b on NVIDIA H200, nvcc 13.0.88, random, seed 1: UNGATED, times to choose
by; a profile is no record.
µs a token of 3, 9 or 18 launches of 32 tokens, as often beside the incumbent;
better is by more than the noise.

round  dimension  value  against  µs at 1024   ratio   noise
    1  merge      phase    words      3600.0  0.9900  0.0030  chosen

Chosen: --stage-bytes 16384 --stages 11 --in-flight 3 --leads 4:2 --held 4 --consumers 8 --splits 16 --queries words --merge phase --vectors counted
Together 1.00 % less time than with --stage-bytes 16384 --stages 11 --in-flight 3 --leads 4:2 --held 4 --consumers 8 --splits 16 --queries words --merge words --vectors counted
The time was over before the search: the same command goes on.
Profile written to p.json; to use it:
  mkgen --model llama3-8b --kv e4m3 --sms 114 --profile p.json
`, out.String())
}
