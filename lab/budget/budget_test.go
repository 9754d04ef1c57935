package budget_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/lab/budget"
	"github.com/mkgen/mkgen/lab/trace"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/stretchr/testify/require"
)

func kernel(t *testing.T, o megakernel.Options) *megakernel.Kernel {
	t.Helper()
	c, err := models.Lookup("llama3.2-1b")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	return mk
}

// twice is a summary in which everything took twice as long as predicted, and 500 µs lay
// between the phases of a step.
func twice(mk *megakernel.Kernel, context int) *trace.Summary {
	s := &trace.Summary{Unit: trace.Nanoseconds, Steps: 2, Cold: 0, Until: math.Inf(1)}
	for _, f := range mk.Predict(machine.H200(), context, 1).Phases {
		p := trace.Parts{Time: 2e9 * f.Time, Work: 2e9 * f.Work, Chunks: 2e9 * f.Chunks, Syncs: 2e9 * f.Sync}
		s.Phases = append(s.Phases, trace.PhaseSummary{Name: f.Name, Runs: 2 * f.Runs, Parts: p})
		s.Step.Time += float64(f.Runs) * p.Time
	}
	s.Step.Time += 500e3
	return s
}

func TestMeasuredStandsBesidePredicted(t *testing.T) {
	mk := kernel(t, megakernel.Options{})
	b := budget.Of(mk, machine.H200(), 1024, 1, twice(mk, 1024), budget.Times{Traced: 1010, Untraced: 1000})
	require.Len(t, b.Phases, len(mk.Phases))
	bytes := int64(0)
	for i, p := range b.Phases {
		require.Equal(t, mk.Phases[i].Name, p.Name)
		require.InEpsilon(t, 2, p.Ratio(), 1e-9, p.Name)
		require.InDelta(t, 2*p.Predicted.Sync, p.Measured.Sync, 1e-9)
		require.InDelta(t, p.Measured.Time, p.Measured.Work+p.Measured.Chunks+p.Measured.Sync, 1e-9)
		bytes += int64(p.Runs) * p.Bytes
	}
	require.GreaterOrEqual(t, bytes, mk.Plan.WeightBytes()+mk.KVBytes(1024))
	require.InDelta(t, mk.Predict(machine.H200(), 1024, 1).Total*1e6, b.Step.Predicted.Time, 1e-6)
	require.InDelta(t, 2*b.Step.Predicted.Time+500, b.Step.Measured.Time, 1e-6)
	require.InDelta(t, 500, b.Between, 1e-6)

	var out strings.Builder
	require.NoError(t, b.WriteTable(&out))
	text := out.String()
	require.Contains(t, text, fmt.Sprintf("Context 1024, predicted for NVIDIA H200, measured %s by %.7s\n",
		machine.H200().Date, machine.H200().Commit))
	require.Regexp(t, `(?m)^  gate_up +16  67.11 MB  measured µs +2\d\.\d .* 2\.00\n {29}predicted µs +1\d\.\d `, text)
	require.Regexp(t, `(?m)^  step +1  2\.\d+ GB  measured µs +1\d\d\d .* 2\.\d\d\n {29}predicted µs +[567]\d\d\.\d `,
		text)
	require.Contains(t, text, "Between the phases of a step, such as the choice of a token: 500.0 µs.")
	require.Contains(t, text,
		"By the GPU's clock a step takes 1010 µs with the trace and 1000 without: the\ntrace costs +1.00 %.")
	for line := range strings.Lines(text) {
		require.LessOrEqual(t, len([]rune(line)), 91, "%q", line)
	}
	require.EqualError(t, b.WriteTable(full{}), "full")
}

// Who waits for other SMs' words waits for a sync.
func TestWaitsForWordsCountAsSyncs(t *testing.T) {
	mk := kernel(t, megakernel.Options{})
	s := twice(mk, 100)
	s.Phases[1].Others, s.Phases[1].Work = 700, s.Phases[1].Work-700
	b, plain := budget.Of(mk, machine.H200(), 100, 1, s, budget.Times{}),
		budget.Of(mk, machine.H200(), 100, 1, twice(mk, 100), budget.Times{})
	require.InDelta(t, plain.Phases[1].Measured.Sync+0.7, b.Phases[1].Measured.Sync, 1e-9)
	require.InDelta(t, plain.Phases[1].Measured.Work-0.7, b.Phases[1].Measured.Work, 1e-9)
	require.InDelta(t, plain.Phases[1].Measured.Time, b.Phases[1].Measured.Time, 1e-9)
}

// Phases that only one side has are shown all the same.
func TestPhasesOfOneSide(t *testing.T) {
	mk := kernel(t, megakernel.Options{})
	s := twice(mk, 100)
	s.Phases[2].Name = "something else"
	s.Dropped = 7
	b := budget.Of(mk, machine.H200(), 100, 1, s, budget.Times{Traced: 1, Untraced: 1})
	require.Len(t, b.Phases, len(mk.Phases)+1)
	require.Zero(t, b.Phases[2].Measured.Time)
	require.Zero(t, b.Phases[2].Ratio())
	last := b.Phases[len(mk.Phases)]
	require.Equal(t, "something else", last.Name)
	require.Equal(t, 16, last.Runs)
	require.Zero(t, last.Ratio())
	require.InDelta(t, 500, b.Between, 1e-6)
	var out strings.Builder
	require.NoError(t, b.WriteTable(&out))
	require.Contains(t, out.String(), "7 spans did not fit into the trace")
}

func TestStepsOfTheExecutorAreNoSpeed(t *testing.T) {
	mk := kernel(t, megakernel.Options{SMs: 2})
	s := twice(mk, 1)
	s.Unit = trace.Steps
	b := budget.Of(mk, machine.H200(), 1, 1, s, budget.Times{})
	require.InEpsilon(t, s.Phases[0].Time, b.Phases[0].Measured.Time, 1e-9)
	var out strings.Builder
	require.NoError(t, b.WriteTable(&out))
	require.Contains(t, out.String(), "an order, not a speed")
	require.NotContains(t, out.String(), "GPU's clock")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }
