package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/lab/sweep"
	"github.com/stretchr/testify/require"
)

const sweepRecord = "../../lab/sweep/testdata/gated.json"

// swept is what mkgen sweep makes of the golden record, changed, and the files that it
// leaves beside the one of -o.
func swept(t *testing.T, ended bool, change func(*sweep.Record)) (out string, files []string, err error) {
	t.Helper()
	r, err := sweep.ReadFile(sweepRecord)
	require.NoError(t, err)
	change(r)
	require.NoError(t, r.Check())
	t.Chdir(t.TempDir())
	f := sweepFlags{output: "s.json"}
	f.plot = "s.svg"
	var b bytes.Buffer
	of := &sweep.Sweep{Kernels: []sweep.Candidate{{Rows: 1}, {Rows: 16}}, Taken: 3,
		Reports: map[int]*gate.Report{16: {Gate: r.Cells[0].Case.Gate}}}
	err = f.report(&b, of, r, ended)
	all, globErr := filepath.Glob("*")
	require.NoError(t, globErr)
	return b.String(), all, err
}

func ungated(r *sweep.Record) {
	r.Gate = bench.Ungated
	for i := range r.Cells {
		if c := r.Cells[i].Case; c != nil {
			c.Gate = gate.Record{}
		}
	}
}

func TestAFinishedGatedSweepIsARecord(t *testing.T) {
	out, files, err := swept(t, true, func(*sweep.Record) {})
	require.NoError(t, err)
	require.Contains(t, out,
		"llama3.2-1b on NVIDIA H200 (driver 580.159.04, CUDA 13.0), nvcc 13.0.88, random,\nseed 1\n7 rounds of 128 tokens of each sequence; ")
	require.Contains(t, out, "79.1 %  gated\n")
	require.Contains(t, out, "does not fit\n")
	require.Contains(t, out,
		"Gate, kernel of 16 rows: mean KL 0.001, the reference's own bf16 0.002, 0 flips\nof 1500 sure tokens, faults caught: kv_token_dropped, rope_off_by_one,\n")
	require.Contains(t, out,
		"3 of 24 cases are of an earlier run, begun on 2026-11-25; remove s.json to measure them again.\n")
	require.Contains(t, out, "Heat map written to s.svg\nRecord written to bench/results/h200/")
	require.Equal(t, []string{"bench", "s.svg"}, files)
	written, err := filepath.Glob("bench/results/h200/20??-??-??-sweep-llama3.2-1b.json")
	require.NoError(t, err)
	require.Len(t, written, 1)
	r, err := sweep.ReadFile(written[0])
	require.NoError(t, err)
	require.NoError(t, r.Committable())
}

func TestASweepWithoutAReferenceIsUngatedAndNoRecord(t *testing.T) {
	out, files, err := swept(t, true, ungated)
	require.NoError(t, err)
	require.Contains(t, out, "79.1 %  UNGATED\n")
	require.Contains(t, out, "UNGATED: no reference was given (--reference), so no record is written.\n")
	require.Equal(t, []string{"s.svg"}, files)
	picture, err := os.ReadFile("s.svg")
	require.NoError(t, err)
	require.True(t, bytes.Contains(picture, []byte(">UNGATED<")))
}

// without makes one cell of a record something else than measured.
func without(status sweep.Status, why string) func(r *sweep.Record) {
	return func(r *sweep.Record) {
		r.Finished, r.Cells[7].Case, r.Cells[7].Status, r.Cells[7].Why = false, nil, status, why
	}
}

func TestAnUnfinishedSweepIsNoRecord(t *testing.T) {
	out, files, err := swept(t, false, without(sweep.Open, ""))
	require.NoError(t, err)
	require.Contains(t, out, "1 case is open: the same command goes on.\n")
	require.Equal(t, []string{"s.svg"}, files)
}

func TestASweepWithAFailureIsNoRecord(t *testing.T) {
	out, files, err := swept(t, true, without(sweep.Failed, "it hangs\nthere"))
	require.EqualError(t, err, "1 case failed, the first with batch 2 and context 3072: it hangs")
	require.Contains(t, out, "batch 2, context 3072 failed: it hangs\n")
	require.Equal(t, []string{"s.svg"}, files)
}

func TestAnInterruptedSweepSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	root := newRoot(nil)
	path := filepath.Join(t.TempDir(), "s.json")
	root.SetArgs([]string{"sweep", "--model", "tiny", "--device", "sim", "-o", path})
	err := root.ExecuteContext(ctx)
	require.EqualError(t, err, "interrupted")
	require.Equal(t, 130, exitCode(err))
	require.NoFileExists(t, path)
}

func TestASweepThatCouldNotBeSavedIsNotSaidToBe(t *testing.T) {
	out, _, err := swept(t, true, ungated)
	require.NoError(t, err)
	require.NotContains(t, out, "keeps what was measured", "nothing was saved here")
}
