package sweep_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/lab/sweep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// bed is a Measurer that makes figures up.
type bed struct {
	mu       sync.Mutex
	s        *sweep.Sweep
	free     int64
	compile  func(rows int) error
	open     func(rows int) error
	measure  func(batch, context int) error
	report   func(rows int) *gate.Report
	ceiling  error
	compiled []int    // rows
	done     []string // what was asked of the device
	live     int      // kernels that are loaded
}

func (b *bed) Compile(_ context.Context, mk *megakernel.Kernel) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.compiled = append(b.compiled, mk.Options.Tokens)
	if b.compile != nil {
		if err := b.compile(mk.Options.Tokens); err != nil {
			return "", err
		}
	}
	return "nvcc 1", nil
}

func (b *bed) Ceiling(context.Context) (ceiling.Measured, error) {
	return ceiling.Measured{Variant: ceiling.Variants()[0], GBps: 4610, Min: 4600, Max: 4620}, b.ceiling
}

func (b *bed) Free(context.Context) (int64, error) { return b.free, nil }

func (b *bed) Open(_ context.Context, mk *megakernel.Kernel, pages int,
	contexts []int) (sweep.Opened, *gate.Report, error) {
	rows := mk.Options.Tokens
	b.done = append(b.done, fmt.Sprintf("load %d: %d pages, %v", rows, pages, contexts))
	if b.open != nil {
		if err := b.open(rows); err != nil {
			return nil, nil, err
		}
	}
	b.live++
	var report *gate.Report
	if b.report != nil {
		report = b.report(rows)
	}
	return &loaded{b, report}, report, nil
}

type loaded struct {
	*bed
	report *gate.Report
}

func (l *loaded) Measure(ctx context.Context, _ ceiling.Measured, batch, n int) (bench.Case, error) {
	l.done = append(l.done, fmt.Sprintf("%d × %d", batch, n))
	if l.measure != nil {
		if err := l.measure(batch, n); err != nil {
			return bench.Case{}, err
		}
	}
	setup := l.s.Setup
	setup.Model, setup.DType, setup.Rounds, setup.Tokens = l.s.Config.Name, "bf16", l.s.Method.Rounds, l.s.Method.Tokens
	c := figures(batch, n, 1000, 0.8, setup)
	if l.report != nil {
		c.Gate = l.report.Gate
	}
	return c, ctx.Err()
}

func (l *loaded) Close() error {
	l.live--
	return nil
}

// sweepOf is a sweep of tiny at contexts 10, 100 and 500, the last of which goes beyond its
// positions.
func sweepOf(t *testing.T, rows int, batches ...int) (*sweep.Sweep, *bed) {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	b := &bed{free: 1 << 40}
	s := &sweep.Sweep{Config: c, Rows: rows, Measurer: b, Method: bench.Method{Rounds: 5, Tokens: 128, WarmUp: 2},
		Setup: sweep.Setup{GPU: "NVIDIA H200", Driver: "1", CUDA: "13.0", Commit: "abc", Arch: "sm_90a",
			Weights: "random, seed 1", Gate: bench.Ungated, Contexts: []int{10, 100, 500}, Batches: batches},
		Save: func(r *sweep.Record) error { return r.Check() },
		Now:  func() time.Time { return time.Date(2026, 11, 25, 1, 2, 3, 0, time.UTC) }}
	for _, batch := range batches {
		n := sweep.RowsFor(batch, rows)
		if slices.ContainsFunc(s.Kernels, func(k sweep.Candidate) bool { return k.Rows == n }) {
			continue
		}
		mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Tokens: n, StageBytes: 4096})
		require.NoError(t, err)
		s.Kernels = append(s.Kernels, sweep.Candidate{Rows: n, Kernel: mk})
	}
	b.s = s
	return s, b
}

func statuses(r *sweep.Record) (all []string) {
	for _, c := range r.Cells {
		all = append(all, string(c.Status))
	}
	return all
}

func TestASweepMeasuresEveryCellOnce(t *testing.T) {
	s, b := sweepOf(t, 0, 1, 2, 4)
	saved := 0
	s.Save = func(r *sweep.Record) error { saved++; return r.Check() }
	r, err := s.Run(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Check())
	require.True(t, r.Finished)
	require.Equal(t, []any{"2026-11-25", "tiny", "bf16", "nvcc 1", 5, 128},
		[]any{r.Date, r.Model, r.DType, r.Compiler, r.Rounds, r.Tokens})
	require.ElementsMatch(t, []int{1, 2, 4}, b.compiled)
	require.Equal(t, []string{"load 1: 15 pages, [10 100]", "1 × 10", "1 × 100", "load 2: 30 pages, [10 100]", "2 × 10",
		"2 × 100", "load 4: 60 pages, [10 100]", "4 × 10", "4 × 100"}, b.done)
	require.Equal(t, "takes 628 positions, the model has 512", r.Cell(2, 500).Why)
	require.Equal(t, 3, r.Count(sweep.Unfit))
	require.Equal(t, 8, saved, "before, after each cell, and at the end")
	require.Zero(t, b.live)
	require.Nil(t, r.Cell(3, 10))
}

// One kernel of several rows may serve all batches.
func TestBatchesMayShareAKernel(t *testing.T) {
	s, b := sweepOf(t, 8, 1, 2, 8)
	r, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"load 1: 15 pages, [10 100]", "1 × 10", "1 × 100", "load 8: 120 pages, [10 100 10 100]",
		"2 × 10", "2 × 100", "8 × 10", "8 × 100"}, b.done)
	require.Equal(t, []int{1, 8, 8}, []int{r.Cell(1, 10).Rows, r.Cell(2, 10).Rows, r.Cell(8, 10).Rows})
	require.Len(t, r.Kernels, 2)
	require.Equal(t, 8, r.Kernels[1].Options.Tokens)
}

func TestWhatDoesNotFitIntoMemorySaysSo(t *testing.T) {
	s, b := sweepOf(t, 0, 1, 16)
	bytes := int64(0)
	for _, g := range s.Kernels[1].Kernel.IR.Globals() {
		bytes += g.Bytes()
	}
	pages := int64(16 * ((100 + 128 + 15) / 16))
	b.free = bytes + pages*int64(s.Config.Layers)*int64(s.Kernels[1].Kernel.KV.PageBytes()) - 1
	r, err := s.Run(t.Context())
	require.NoError(t, err)
	require.True(t, r.Finished, "it will never fit")
	require.Equal(t, sweep.Unfit, r.Cell(16, 100).Status)
	require.Regexp(t, `^takes [0-9.]+ MB of memory, [0-9.]+ MB are free$`, r.Cell(16, 100).Why)
	require.Equal(t, "load 16: 144 pages, [10]", b.done[3])
	b.free = -1 // not even for the weights
	r, err = s.Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, r.Count(sweep.Measured))
	require.Contains(t, r.Cell(1, 10).Why, "of memory, 0 B are free")
}

// What fails is a cell that says so; the others are measured, and the next run tries it
// again.
func TestAFailedCaseIsTriedAgainByTheNextRun(t *testing.T) {
	s, b := sweepOf(t, 0, 1, 2)
	b.measure = func(batch, n int) error {
		if batch == 2 && n == 10 {
			return errors.New("it hangs")
		}
		return nil
	}
	r, err := s.Run(t.Context())
	require.NoError(t, err)
	require.False(t, r.Finished)
	require.Equal(t, []any{sweep.Failed, "it hangs"}, []any{r.Cell(2, 10).Status, r.Cell(2, 10).Why})
	require.Equal(t, []string{"load 2: 30 pages, [10 100]", "2 × 10", "load 2: 30 pages, [10 100]", "2 × 100"}, b.done[3:],
		"the kernel is loaded anew")
	require.Zero(t, b.live)

	again, bed := sweepOf(t, 0, 1, 2)
	again.Before = r
	again.Now = func() time.Time { return time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC) }
	r, err = again.Run(t.Context())
	require.NoError(t, err)
	require.True(t, r.Finished)
	require.Equal(t, "2026-11-25", r.Date, "the day on which it began")
	require.Equal(t, []string{"load 2: 18 pages, [10]", "2 × 10"}, bed.done)
	require.Equal(t, 3, again.Taken)
}

func TestAKernelThatIsNotThereLeavesTheOthers(t *testing.T) {
	s, b := sweepOf(t, 0, 1, 2, 4, 8)
	s.Kernels[1] = sweep.Candidate{Rows: 2, Problem: errors.New("no room")}
	b.compile = func(rows int) error {
		if rows == 4 {
			return errors.New("nvcc: no\nand more")
		}
		return nil
	}
	b.open = func(rows int) error {
		if rows == 8 {
			return errors.New("out of memory")
		}
		return nil
	}
	r, err := s.Run(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Check())
	require.Equal(t, []string{"measured", "measured", "does not fit", "does not fit", "does not fit", "does not fit",
		"failed", "failed", "does not fit", "failed", "failed", "does not fit"}, statuses(r))
	require.Equal(t, "there is no such kernel: no room", r.Cell(2, 10).Why)
	require.Equal(t, "out of memory", r.Cell(8, 100).Why)

	b.compile = func(int) error { return errors.New("no nvcc") }
	_, err = s.Run(t.Context())
	require.ErrorContains(t, err, "no nvcc", "nothing can be measured")
}

// Speeds of a kernel that fails the gate are not taken at all.
func TestAKernelThatFailsTheGateIsNotMeasured(t *testing.T) {
	s, b := sweepOf(t, 0, 1, 2)
	s.Setup.Gate = sweep.Gated
	b.report = func(rows int) *gate.Report {
		g := gate.Record{KLReference: 2e-3, KLOurs: 1e-3, FaultsCaught: gate.Faults(), Passed: rows == 1}
		if rows != 1 {
			g.Reasons = []string{"3 flips"}
		}
		return &gate.Report{Identical: true, Gate: g}
	}
	r, err := s.Run(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Check())
	require.Equal(t, []string{"load 1: 15 pages, [10 100]", "1 × 10", "1 × 100", "load 2: 30 pages, [10 100]"}, b.done)
	require.Equal(t, "the gate is not passed: 3 flips", r.Cell(2, 100).Why)
	require.Len(t, s.Reports, 2)
	require.Zero(t, b.live)
	require.EqualError(t, r.Committable(), "it is not finished")
}

func TestAnInterruptedSweepKeepsWhatItHas(t *testing.T) {
	s, b := sweepOf(t, 0, 1, 2)
	ctx, cancel := context.WithCancel(t.Context())
	b.measure = func(batch, n int) error {
		if batch == 2 && n == 100 {
			cancel()
			return ctx.Err()
		}
		return nil
	}
	var saved []byte
	s.Save = func(r *sweep.Record) (err error) {
		require.NoError(t, r.Check())
		saved, err = json.Marshal(r)
		return err
	}
	r, err := s.Run(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"measured", "measured", "does not fit", "measured", "not measured yet", "does not fit"},
		statuses(r))
	require.Zero(t, b.live)
	before, err := sweep.Parse(saved)
	require.NoError(t, err)
	require.Equal(t, 3, before.Count(sweep.Measured))

	s, b = sweepOf(t, 0, 1, 2)
	s.Before = before
	r, err = s.Run(t.Context())
	require.NoError(t, err)
	require.True(t, r.Finished)
	require.Equal(t, []string{"load 2: 30 pages, [100]", "2 × 100"}, b.done)
	s.Before, b.done = r, nil
	_, err = s.Run(t.Context())
	require.NoError(t, err)
	require.Empty(t, b.done, "all is known")
}

func TestABrokenCeilingOrFileEndsTheSweep(t *testing.T) {
	s, b := sweepOf(t, 0, 1)
	b.ceiling = errors.New("void")
	r, err := s.Run(t.Context())
	require.EqualError(t, err, "void")
	require.Equal(t, 2, r.Count(sweep.Open))
	require.Zero(t, b.live)
	s, b = sweepOf(t, 0, 1)
	s.Save = func(*sweep.Record) error { return errors.New("disk full") }
	_, err = s.Run(t.Context())
	require.EqualError(t, err, "disk full")
	require.Zero(t, b.live)
}

func TestTheRecordOfAnotherSweepIsRefused(t *testing.T) {
	s, _ := sweepOf(t, 0, 1, 2)
	before, err := s.Run(t.Context())
	require.NoError(t, err)
	text, err := json.Marshal(before)
	require.NoError(t, err)
	for want, spoil := range map[string]func(*sweep.Record){
		`gpu is "other", want "NVIDIA H200"`:       func(r *sweep.Record) { r.GPU = "other" },
		`commit is "abd", want "abc"`:              func(r *sweep.Record) { r.Commit = "abd" },
		`gate is "gated", want "UNGATED"`:          func(r *sweep.Record) { r.Gate = sweep.Gated },
		`rounds is 7, want 5`:                      func(r *sweep.Record) { r.Rounds = 7 },
		`the kernel of 2 rows: stages is 3, want `: func(r *sweep.Record) { r.Kernels[1].Options.Stages = 3 },
		`batch 2 has a kernel of 16 rows, want 2`:  func(r *sweep.Record) { r.Cells[3].Rows = 16 },
		`contexts is 10,100,400, want 10,100,500`: func(r *sweep.Record) {
			r.Contexts = []int{10, 100,
				400}
		},
		`weights is "random, seed 2", want "random, seed 1"`:       func(r *sweep.Record) { r.Weights = "random, seed 2" },
		`the record is of another sweep: model is "x", want "tiny`: func(r *sweep.Record) { r.Model = "x" },
	} {
		s, b := sweepOf(t, 0, 1, 2)
		s.Before = &sweep.Record{}
		require.NoError(t, json.Unmarshal(text, s.Before))
		spoil(s.Before)
		_, err := s.Run(t.Context())
		require.ErrorIs(t, err, sweep.ErrOther)
		require.ErrorContains(t, err, want)
		require.Empty(t, b.done)
	}
}

// All of it on the executor: a kernel of one row and one of four, which measures batches
// of two and of four.
func TestASuiteSweepsOnTheExecutor(t *testing.T) {
	if testing.Short() {
		t.Skip("runs two kernels on the executor")
	}
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	m := bench.Method{Rounds: 1, Tokens: 2}
	suite := &sweep.Suite{Machine: bench.Executor{Seed: 1}, Weights: synth.NewWeights(2, c), WeightsName: "random, seed 2",
		Method: m, SMs: 2}
	s, _ := sweepOf(t, 4, 1, 2, 4)
	s.Measurer, s.Method = suite, m
	s.Setup.GPU, s.Setup.Weights, s.Setup.Contexts = "executor", suite.WeightsName, []int{5, 20}
	r, err := s.Run(t.Context())
	require.NoError(t, err)
	require.NoError(t, suite.Close())
	require.NoError(t, r.Check())
	require.True(t, r.Finished)
	require.Equal(t, 6, r.Count(sweep.Measured))
	for _, cell := range r.Cells {
		require.Equal(t, cell.Batch, cell.Case.Batch)
		require.Positive(t, cell.Case.P99)
		require.Equal(t, 2*cell.Batch, cell.Case.TokensPerRound)
	}
	require.Greater(t, r.Cell(4, 20).Case.BytesPerToken*4, r.Cell(2, 20).Case.BytesPerToken*2, "a step of four reads more")
}
