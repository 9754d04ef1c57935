package main

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/attend"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/tests/gpu/attention/cases"
	"github.com/mkgen/mkgen/tests/gpu/attention/record"
	"github.com/stretchr/testify/require"
)

// small is a kernel that the executor can run.
func small(t *testing.T, c *cases.Case) *program {
	t.Helper()
	p, err := build(c, func(o *attend.Config) { o.SMs, o.Consumers, o.StageBytes = 3, 4, 2048 })
	require.NoError(t, err)
	return p
}

// smallJobs are cases of all kinds and variants in a small shape.
func smallJobs() (all []job) {
	s := cases.Shape{Heads: 4, KVHeads: 2, HeadDim: 32, Page: 4}
	shared := cases.Shared("shared", s, 48, 7, 3)
	again := *shared
	again.Name = "shared-single"
	all = []job{{c: cases.Decode("decode", s, []int{1, 60, 17}), timed: true}, {c: shared}, {c: &again, single: true},
		{c: cases.Selected("selected", s, 75, 6)}}
	wide := s
	wide.HeadDim = 64
	all = append(all, job{c: cases.Levels("levels", s, []int{4, 2}, 16, 5)},
		job{c: cases.Contiguous("contiguous", s, []int{9, 40})})
	all = append(all, job{c: cases.Decode("e4m3-wide", wide, []int{3, 50}).E4M3()})
	s.Page = 1
	all = append(all, job{c: cases.Decode("page-1", s, []int{5, 40})})
	s.Page = 4
	for _, c := range cases.Variants(s) {
		all = append(all, job{c: c})
	}
	return all
}

func run1(t *testing.T, j job, dir string) record.Case {
	t.Helper()
	top := func(context.Context) (ceiling.Measured, error) { return ceiling.Measured{GBps: 1e6}, nil }
	r, err := measure(t.Context(), bench.Executor{Seed: 1}, small(t, j.c), j, top,
		method{rounds: 5, round: time.Nanosecond}, dir)
	require.NoError(t, err, j.c.Name)
	require.True(t, r.Gate.Identical, j.c.Name)
	return r
}

// Every kind of case is traced, by one consumer warp, which takes chunks more than once, and by
// several: one sync may follow itself there.
func TestCasesAreTracedOnTheExecutor(t *testing.T) {
	for i, j := range smallJobs() {
		for _, consumers := range []int{1, 4} {
			if !deep.On() && i > 0 {
				continue
			}
			dir := t.TempDir()
			p, err := build(j.c, func(o *attend.Config) { o.SMs, o.Consumers, o.StageBytes, o.Trace = 3, consumers, 2048, 2000 })
			require.NoError(t, err)
			text, err := traceJob(t.Context(), bench.Executor{Seed: uint64(i)}, p, j, dir)
			require.NoError(t, err, "%s, %d consumers", j.c.Name, consumers)
			require.Contains(t, text, "sync after attention")
			require.FileExists(t, filepath.Join(dir, "trace-"+j.c.Name+".html"))
			require.FileExists(t, filepath.Join(dir, "trace-"+j.c.Name+".json"))
		}
	}
}

// A trace has room beside the ring of the largest cases.
func TestLargeCasesCanBeTraced(t *testing.T) {
	for _, j := range jobs([]string{"one-"}) {
		p, err := build(j.c, traced)
		require.NoError(t, err, j.c.Name)
		require.NotEmpty(t, p.Traced)
	}
}

func TestACaseIsMeasuredOnTheExecutor(t *testing.T) {
	dir := t.TempDir()
	j := smallJobs()[0]
	r := run1(t, j, dir)
	require.Equal(t, []int{1, 60, 17}, r.Lengths)
	require.Len(t, r.Rounds, 5)
	require.Positive(t, r.Micros)
	require.Equal(t, j.c.UniqueBytes(), r.Bytes)
	require.FileExists(t, filepath.Join(dir, "decode", "case.json"))
	require.FileExists(t, filepath.Join(dir, "decode", "out.0.f32"))
}

// All of the chain but the GPU: kernels of every kind of case and of every variant
// on the executor, judged by attention.py.
func TestKernelsOnTheExecutorAgreeWithTorch(t *testing.T) {
	python := cmp.Or(os.Getenv("MKGEN_PYTHON"), "python3")
	if out, err := exec.Command(python, "-c", "import torch").CombinedOutput(); err != nil {
		t.Skipf("%s has no torch (set MKGEN_PYTHON to one that has): %.200s", python, out)
	}
	if !deep.On() {
		t.Skip("runs many kernels on the executor")
	}
	dir, r := t.TempDir(), &record.Record{}
	for _, j := range smallJobs() {
		r.Cases = append(r.Cases, run1(t, j, dir))
	}
	text, err := exec.Command(python, "../attention.py", dir, "--device", "cpu").CombinedOutput()
	t.Logf("%s", text)
	require.NoError(t, err)
	torch, err := record.ReadTorch(filepath.Join(dir, "torch.json"))
	require.NoError(t, err)
	require.NoError(t, r.Merge(torch))
	for _, c := range r.Cases {
		require.True(t, c.Gate.Passed, c.Name)
	}
}

func TestJobsAreChosenByTheBeginningOfTheirNames(t *testing.T) {
	var names []string
	for _, j := range jobs([]string{"prefix-", "variant-r"}) {
		names = append(names, j.c.Name)
	}
	require.Equal(t, []string{"prefix-8192", "prefix-8192-single", "prefix-4096-4096", "prefix-4096-4096-single",
		"variant-rope"}, names)
	require.Greater(t, len(jobs(nil)), 25)
}

func TestEveryCaseHasAKernel(t *testing.T) {
	for _, j := range jobs(nil) {
		p, err := build(j.c, nil)
		require.NoError(t, err, j.c.Name)
		require.NotEmpty(t, p.Classes)
	}
}
