package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/stretchr/testify/require"
)

const benchRecord = "../../lab/bench/testdata/record.json"

// h200 is a machine that only says what it is.
type h200 struct{ gpu string }

func (m h200) Facts() bench.Facts {
	return bench.Facts{GPU: m.gpu, Driver: "580.159.04", CUDA: "13.0", Compiler: "nvcc 13.0.88", SMs: 132}
}
func (h200) Load(context.Context, *ir.Kernel) (bench.Loaded, error) { return nil, errors.New("none") }
func (h200) Free() (int64, error)                                   { return 0, nil }

// reported is what mkgen bench makes of the cases of the golden record.
func reported(t *testing.T, b *benchFlags, g *gate.Report) (string, error) {
	t.Helper()
	data, err := os.ReadFile(benchRecord)
	require.NoError(t, err)
	r, err := bench.Parse(data)
	require.NoError(t, err)
	for i := range r.Cases {
		if g == nil {
			r.Cases[i].Gate = gate.Record{}
		}
	}
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{})
	require.NoError(t, err)
	var out bytes.Buffer
	err = b.report(&out, &bench.Suite{Machine: h200{r.GPU}, Kernel: mk, WeightsName: "random, seed 1"},
		&bench.Outcome{Cases: r.Cases, Gate: g})
	return out.String(), err
}

// The executor is no GPU: any machine file goes with it.
func TestAMachineFileOfAnotherGPUIsRefused(t *testing.T) {
	b := &benchFlags{}
	require.NoError(t, b.isOf(h200{"NVIDIA H100"}.Facts()), "without a file")
	b.machine.file, b.of = "m.json", machine.H200()
	require.NoError(t, b.isOf(h200{"NVIDIA H200"}.Facts()))
	require.EqualError(t, b.isOf(h200{"NVIDIA H100"}.Facts()),
		"--machine m.json: it is of NVIDIA H200, this one is NVIDIA H100; mkgen calibrate measures it")
	require.NoError(t, b.isOf(bench.Executor{}.Facts()))
}

func passed() *gate.Report {
	return &gate.Report{Identical: true, Gate: gate.Record{Rules: gate.RulesVersion, KLReference: 2e-3, KLOwn: 9e-4,
		KLOurs: 1e-3, Positions: 2048, Lengths: []int{1024, 4096},
		WorstSeq: gate.Worst{Sequence: 1, KLOurs: 2e-3, Limit: 3e-3},
		WorstPos: gate.Worst{Position: new(int), KLOurs: 5e-3, Limit: 7e-2}, Sure: 1500, FaultsCaught: gate.Faults(),
		Passed: true}}
}

// Of prefill kernels a gate says what launches it judged.
func TestAGateOfPromptsSaysWhatLaunchesItJudged(t *testing.T) {
	text := func(l *gate.PrefillLaunches) string {
		var out strings.Builder
		g := passed().Gate
		g.Launches = l
		reportGate(&out, &g)
		return strings.ReplaceAll(out.String(), "\n", " ")
	}
	require.NotContains(t, text(nil), "Launches")
	l := gate.PrefillLaunches{One: 300, Several: 12, Mixed: 10, Tokens: 1024, Sequences: 16, Chunks: []int{17, 256, 512}}
	require.Contains(t, text(&l), "Launches of prefill kernels: 300 of one sequence, 12 of several, 10 of these beside "+
		"sequences that decode; up to 1024 tokens; chunks of 17, 256, 512.")
	l.Chunks = nil
	require.Contains(t, text(&l), "chunks of no fixed size.")
}

func TestAnInterruptedBenchmarkSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	root := newRoot(nil)
	root.SetArgs([]string{"bench", "--model", "tiny", "--device", "sim"})
	err := root.ExecuteContext(ctx)
	require.EqualError(t, err, "interrupted")
	require.Equal(t, 130, exitCode(err))
}

func TestSpeedsWithoutAReferenceAreUngatedAndLeaveNoRecord(t *testing.T) {
	dir := t.TempDir()
	out, err := reported(t, &benchFlags{record: filepath.Join(dir, "r.json"), plot: filepath.Join(dir, "p.svg")}, nil)
	require.NoError(t, err)
	require.Contains(t, out, "tiny on NVIDIA H200 (driver 580.159.04, CUDA 13.0), batch 1, random, seed 1\n")
	require.Contains(t, out, "93.0 %  UNGATED\n")
	require.Contains(t, out, "UNGATED: no reference was given (--reference), so no record is written.")
	require.NoFileExists(t, filepath.Join(dir, "r.json"))
	picture, err := os.ReadFile(filepath.Join(dir, "p.svg"))
	require.NoError(t, err)
	require.Contains(t, string(picture), "UNGATED")
}

func TestSpeedsBesideAPassedGateAreRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	out, err := reported(t, &benchFlags{record: path}, passed())
	require.NoError(t, err)
	require.Contains(t, out,
		"Gate: 2048 positions of sequences of 1024, 4096 tokens. Mean KL 0.001; the\nkernel's own roundings cost 0.0009, the framework's bf16 0.002.")
	require.Contains(t, strings.ReplaceAll(out, "\n", " "),
		"sequence 1 with 0.002 of 0.003, and position 0 of sequence 0 with 0.005 of 0.07. 0 flips of 1500 sure tokens; the widest margin of a flip is 0 of what makes one sure. Faults caught: kv_token_dropped, rope_off_by_one")
	require.Contains(t, out, "93.0 %  passed\n")
	require.Contains(t, out, "Record written to "+path)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = bench.Parse(data)
	require.NoError(t, err)
}

func TestRecordsGoToTheGPUsDirectoryByDefault(t *testing.T) {
	abs, err := filepath.Abs(benchRecord)
	require.NoError(t, err)
	data, err := os.ReadFile(abs)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o777))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(benchRecord[len("../../"):])), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, benchRecord[len("../../"):]), data, 0o666))
	t.Chdir(filepath.Join(dir, "a/b"))
	_, err = reported(t, &benchFlags{}, passed())
	require.NoError(t, err)
	found, err := filepath.Glob("bench/results/h200/20??-??-??-decode-tiny.json")
	require.NoError(t, err)
	require.Len(t, found, 1)
}

func TestAFailedGateIsAnErrorAndLeavesNoRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	g := passed()
	g.Gate.Passed, g.Gate.Reasons = false, []string{"3 flips"}
	out, err := reported(t, &benchFlags{record: path}, g)
	require.EqualError(t, err, "the gate is not passed: 3 flips")
	require.Contains(t, out, "93.0 %  FAILED\n")
	require.NoFileExists(t, path)
}

func TestRecordsAreDrawnTogether(t *testing.T) {
	out := filepath.Join(t.TempDir(), "p.svg")
	code, stdout, stderr := mkgen("plot", benchRecord, benchRecord, "-o", out)
	require.Zero(t, code, stderr)
	require.Equal(t, "Plot written to "+out+"\n", stdout)
	picture, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(picture), "llama3-8b bf16, NVIDIA H200, record")
}

func TestStepsOfSeveralRowsAreMeasured(t *testing.T) {
	deep.Only(t)
	if testing.Short() {
		t.Skip("runs two kernels on the executor")
	}
	code, stdout, stderr := mkgen("bench", "--model", "tiny", "--device", "sim", "--rows", "4", "--contexts", "5")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "tiny on the executor with 2 SMs")
	require.Equal(t, 2, strings.Count(stdout, "\n  5 ")+strings.Count(stdout, "\n        5 "), stdout)
	code, _, stderr = mkgen("bench", "--model", "tiny", "--rows", "17")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, `--rows: found "17", want a whole number from 1 to 16`)
	code, _, stderr = mkgen("bench", "--model", "tiny", "--rows", "4", "--splits", "2")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "--plot, --tokens-per-launch and --splits go with one row")
}

// TestBenchTakesAQuantisedCheckpointsOwnCodes: what is measured is the kernel that mkgen run makes of it, and not its
// weights widened.
func TestBenchTakesAQuantisedCheckpointsOwnCodes(t *testing.T) {
	const column = `(?m)^ +2 +2 +([0-9.]+) kB`
	var read []float64
	for _, x := range []struct{ format, want string }{
		{"", "the kernel's format is i4g32-f16, which has just these codes and scales."},
		{"i4g32-f16", "the kernel's format is i4g32-f16, which has just these codes and scales."},
		{"bf16", "they are widened to bf16."},
	} {
		args := []string{"bench", "--checkpoint", "../../models/quant/testdata/gptq_i4g32", "--device", "sim", "--contexts",
			"2", "--rounds", "1", "--tokens", "2"}
		if x.format != "" {
			args = append(args, "--weight-format", x.format)
		}
		code, out, told := mkgen(args...)
		require.Equal(t, 0, code, told)
		require.Contains(t, told, x.want)
		require.Regexp(t, column, out)
		kB, err := strconv.ParseFloat(regexp.MustCompile(column).FindStringSubmatch(out)[1], 64)
		require.NoError(t, err)
		read = append(read, kB)
	}
	require.Equal(t, read[0], read[1])
	require.Less(t, read[0], read[2]/2, "kB a token")
}
