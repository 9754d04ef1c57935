package sweep_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/lab/sweep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

// six rounds to six digits, as records do.
func six(x float64) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	if err != nil {
		panic(err)
	}
	return y
}

// figures are those of a made-up case: a step of all sequences takes some µs of the
// GPU at this share.
func figures(batch, context int, step, share float64, r sweep.Setup) bench.Case {
	const top = 4610
	c := bench.Case{Model: r.Model, DType: r.DType, Batch: batch, Context: context, Weights: r.Weights,
		PerTokenFrom: "made up", TokensPerRound: r.Tokens * batch, TokensPerLaunch: r.Tokens * batch, CeilingGBps: top,
		Ceiling: ceiling.Measured{Variant: ceiling.Variant{StageBytes: 16 << 10, Stages: 12}, GBps: top, Min: 4600,
			Max: 4620}}
	for i := range r.Rounds {
		us := step / float64(batch) * (1 + 0.001*float64(i-r.Rounds/2))
		c.Rounds = append(c.Rounds, bench.RoundTimes{Wall: six(us * 1.002), Device: six(us)})
	}
	c.DeviceMicros, c.Micros = c.Rounds[r.Rounds/2].Device, c.Rounds[r.Rounds/2].Wall
	c.TokensPerSecond = six(1e6 / c.Micros)
	c.BytesPerToken = c.DeviceMicros * share * top * 1e3
	c.GBps = six(c.BytesPerToken / c.DeviceMicros / 1e3)
	c.Share = six(c.GBps / top)
	c.P50, c.P99, c.Max = six(step*0.999), six(step*1.004), six(step*1.013)
	if batch > 1 {
		c.Tokens, c.Feed, c.StepMicros = batch, bench.Sequences, six(c.DeviceMicros*float64(batch))
	}
	return c
}

// sample is a made-up sweep: one cell does not fit, one failed, one is open.
func sample() *sweep.Record {
	s := sweep.Setup{Model: "llama3.2-1b", Shape: "0123456789abcdef", DType: "bf16", GPU: "NVIDIA H200",
		Driver: "580.159.04", CUDA: "13.0", Compiler: "nvcc 13.0.88", Commit: "0123456789abcdef0123456789abcdef01234567",
		Arch: "sm_90a", Weights: "random, seed 1", Gate: bench.Ungated, Contexts: []int{128, 1024, 3072, 6144, 32768},
		Batches: []int{1, 2, 4, 8, 16}, Rounds: 7, Tokens: 128}
	r := &sweep.Record{What: sweep.What, Format: sweep.Format, Date: "2026-11-25", Setup: s}
	share := [][]float64{{.791, .793, .799, .807, .849}, {.772, .778, .801, .823, .872}, {.734, .746, .793, .831, .886},
		{.651, .702, .766, .802, .893}, {.482, .611, .724, .783, .912}}
	for i, batch := range s.Batches {
		o := bench.Options{Compiler: s.Compiler, Pages: "shuffled",
			Options: megakernel.Options{Consumers: 8, InFlight: 3, Page: 16, SMs: 132, Splits: 16, StageBytes: 16384, Stages: 9,
				Watchdog: "grid"}}
		if batch > 1 {
			o.Tokens = batch
		}
		r.Kernels = append(r.Kernels, sweep.Kernel{Rows: batch, Options: o})
		for j, n := range s.Contexts {
			bytes := 2.47e9 + float64(batch)*float64(n)*32768
			c := figures(batch, n, bytes/(share[i][j]*4610e3), share[i][j], s)
			r.Cells = append(r.Cells, sweep.Cell{Batch: batch, Context: n, Rows: batch, Status: sweep.Measured, Case: &c})
		}
	}
	for at, c := range map[int]sweep.Cell{24: {Status: sweep.Unfit, Why: "takes 99.5 GB of memory, 71.2 GB are free"},
		19: {Status: sweep.Failed, Why: "the launch made no step for 10s: SM 3, consumers, waits in layer 7"},
		23: {Status: sweep.Open}} {
		old := &r.Cells[at]
		old.Status, old.Why, old.Case = c.Status, c.Why, nil
	}
	return r
}

// gated is the sample with everything measured beside a gate that was passed, but for
// what does not fit.
func gated() *sweep.Record {
	r := sample()
	r.Gate, r.Finished = sweep.Gated, true
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Status == sweep.Failed || c.Status == sweep.Open {
			m := figures(c.Batch, c.Context, 1500, .8, r.Setup)
			c.Status, c.Why, c.Case = sweep.Measured, "", &m
		}
		if c.Case != nil {
			c.Case.Gate = gate.Record{KLReference: 2e-3, KLOurs: 1e-3, Sure: 1500, Positions: 2048, Sequences: 4,
				FaultsCaught: gate.Faults(), Passed: true}
		}
	}
	return r
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	for _, r := range []*sweep.Record{sample(), gated()} {
		path := filepath.Join(t.TempDir(), "new", "s.json")
		require.NoError(t, r.WriteFile(path))
		got, err := sweep.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, r, got)
	}
}

// The layout of the file, byte for byte. -update writes it.
func TestTheFileIsTheGolden(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.json")
	require.NoError(t, gated().WriteFile(path))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	golden(t, "gated.json", text)
}

func TestUngatedCasesHaveNoGateInTheFile(t *testing.T) {
	text, err := json.Marshal(sample())
	require.NoError(t, err)
	require.Contains(t, string(text), `"gate":"UNGATED"`)
	require.NotContains(t, string(text), "kl_ours")
	require.NotContains(t, string(text), "passed")
}

func TestOnlyAFinishedGatedRecordOfAGPUIsCommittable(t *testing.T) {
	require.NoError(t, gated().Committable())
	require.ErrorIs(t, sample().Committable(), sweep.ErrUngated)
	for want, spoil := range map[string]func(*sweep.Record){
		"it is not finished": func(r *sweep.Record) {
			r.Cells[3].Status, r.Cells[3].Case, r.Finished = sweep.Open, nil, false
		},
		"it is of the executor": func(r *sweep.Record) { r.GPU = "executor" },
		"nothing in it is measured": func(r *sweep.Record) {
			for i := range r.Cells {
				r.Cells[i].Status, r.Cells[i].Why, r.Cells[i].Case = sweep.Unfit, "too big", nil
			}
		},
		"batch 1, context 128: case 0 (llama3.2-1b, context 128): the gate is not passed": func(r *sweep.Record) {
			r.Cells[0].Case.Gate.Passed = false
		},
		"the gate did not catch pages_swapped": func(r *sweep.Record) {
			r.Cells[0].Case.Gate.FaultsCaught = gate.Faults()[:4]
		},
		"the streaming ceiling is 4400 GB/s": func(r *sweep.Record) {
			r.Cells[0].Case.CeilingGBps, r.Cells[0].Case.Ceiling.GBps = 4400, 4400
		},
		"driver is empty": func(r *sweep.Record) { r.Driver = "" },
	} {
		r := gated()
		spoil(r)
		require.ErrorContains(t, r.Committable(), want)
	}
}

func TestABrokenRecordIsRefused(t *testing.T) {
	text, err := json.Marshal(sample())
	require.NoError(t, err)
	_, err = sweep.Parse(text)
	require.NoError(t, err)
	for _, c := range []struct{ old, new, want string }{
		{`{"what":"sweep"`, `{"speed":1,"what":"sweep"`, `unknown field "speed"`},
		{`{"what":"sweep"`, `{"what":"swoop"`, `what is "swoop", want "sweep": a sweep of mkgen sweep`},
		{`"format":1`, `"format":2`, "format is 2, want 1"},
		{`"gpu":"NVIDIA H200"`, `"gpu":""`, "gpu is missing"},
		{`"gate":"UNGATED"`, `"gate":"passed"`, `gate is "passed", want "gated" or "UNGATED"`},
		{`"gate":"UNGATED"`, `"gate":"gated"`, "the gate is not passed"},
		{`"contexts":[128,`, `"contexts":[`, "25 cells for 4 contexts and 5 batches"},
		{`"contexts":[128,`, `"contexts":[129,`, "cell 0 is of batch 1 and context 128, want 1 and 129"},
		{`"status":"measured"`, `"status":"guessed"`, `batch 1, context 128: status is "guessed"`},
		{`"status":"measured"`, `"status":"does not fit"`, `it is "does not fit", and why is ""`},
		{`"status":"not measured yet"`, `"status":"measured"`, `it is "measured", with figures: false`},
		{`"rows":1,"status"`, `"rows":3,"status"`, "there is no kernel of 3 rows"},
		{`"finished":false`, `"finished":true`, "finished is true with 1 cells open and 1 failed"},
		{`"max_us":`, `"max_us":-`, "a figure is -"},
		{`"share":0.791`, `"share":0.891`, "share is 0.891, the others make it 0.791"},
		{`"model":"llama3.2-1b","dtype":"bf16","batch":1`, `"model":"tiny","dtype":"bf16","batch":1`,
			"its figures are of something else"},
	} {
		broken := strings.Replace(string(text), c.old, c.new, 1)
		require.NotEqual(t, string(text), broken, c.old)
		_, err := sweep.Parse([]byte(broken))
		require.ErrorContains(t, err, c.want)
	}
	r := sample()
	r.Cells[0].Case.Share = 2
	path := filepath.Join(t.TempDir(), "s.json")
	require.ErrorContains(t, r.WriteFile(path), "no record is written: batch 1, context 128: ")
	require.NoFileExists(t, path)
}

// Every sweep among the project's records is one that may stand there.
func TestCommittedSweepsAreGated(t *testing.T) {
	files, err := filepath.Glob("../../bench/results/*/*-sweep-*.json")
	require.NoError(t, err)
	for _, path := range files {
		r, err := sweep.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, r.Committable(), path)
	}
}

func TestTheTableHasEveryCell(t *testing.T) {
	var b strings.Builder
	require.NoError(t, sweep.WriteTable(&b, sample()))
	lines := strings.Split(b.String(), "\n")
	require.Len(t, lines, 1+25+2+1)
	require.Equal(t, "  batch  context    tok/s  µs/step    (min–max)    p50    p99    max  GB/s  ceiling   share  gate",
		lines[0])
	require.Equal(t, "      1      128   1470.9    678.5  676.5–680.5  677.8  681.2  687.3  3647     4610  79.1 %  UNGATED", lines[1])
	require.Equal(t, "     16    32768                                                                             does not fit", lines[25])
	require.Equal(t, "  batch 16, context 32768 does not fit: takes 99.5 GB of memory, 71.2 GB are free", lines[27])
	require.Contains(t, b.String(), "  batch 8, context 32768 failed: the launch made no step for 10s")
	require.Contains(t, b.String(), "not measured yet\n")

	b.Reset()
	r := sample()
	r.GPU = "executor"
	require.NoError(t, sweep.WriteTable(&b, r))
	require.True(t, strings.HasPrefix(b.String(),
		"  batch  context  steps  bytes/step  executor s/step  gate\n      1      128    896    2.474 GB             0.00  UNGATED\n"), b.String())
}

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o777))
		require.NoError(t, os.WriteFile(path, got, 0o666))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got), "%s is another; -update writes it, git diff shows what changed", path)
}
