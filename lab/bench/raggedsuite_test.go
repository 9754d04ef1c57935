package bench_test

import (
	"context"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// raggedSuite is a benchmark of tiny with four rows a step.
func raggedSuite(t *testing.T) *bench.RaggedSuite {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	o := megakernel.Options{SMs: 4, Page: 4, StageBytes: 2048} // enough SMs that KV is split
	one, err := megakernel.Build(c, o)
	require.NoError(t, err)
	o.Tokens, o.Draws = 4, true
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	return &bench.RaggedSuite{Machine: bench.Executor{Seed: 1}, Kernel: mk, OneRow: one, Weights: synth.NewWeights(2, c),
		WeightsName: "random, seed 2"}
}

func TestARaggedSuiteMeasuresOnTheExecutor(t *testing.T) {
	if !deep.On() {
		t.Skip("runs two kernels on the executor")
	}
	s := raggedSuite(t)
	s.Method = bench.Method{Contexts: []int{6}, Rounds: 2, Tokens: 2}
	s.Choices = bench.BesideGreedy(sampling.Params{Temperature: 1.5, TopK: 40, Seed: 1})
	o, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Nil(t, o.Gate)
	require.Len(t, o.Cases, 6)
	require.Equal(t, []bench.Shape{bench.Sequences, bench.Sequences, bench.Chunk},
		[]bench.Shape{o.Cases[0].Feed, o.Cases[4].Feed, o.Cases[5].Feed})
	for _, c := range o.Cases {
		require.Positive(t, c.StepMicros)
		require.Positive(t, c.P99)
	}
	for _, c := range o.Cases[:5] {
		require.Equal(t, c.TokensPerRound, c.Replayed)
	}
	require.Equal(t, o.Cases[5].Tokens, o.Cases[5].Replayed)
	require.Positive(t, o.Cases[5].Ratio)
}

// With its KV cut at fixed places the real kernel gives a sequence the same bits
// whatever else is in its steps.
func TestPinnedStepsDoNotDependOnOtherSequences(t *testing.T) {
	deep.Only(t)
	if !deep.On() {
		t.Skip("runs a kernel on the executor")
	}
	s := raggedSuite(t)
	ref, err := gate.OpenReference(writeReference(t, s.Kernel.Config, 2, 26, 9))
	require.NoError(t, err)
	pages := gate.RaggedPages(ref, s.Kernel.KV.Page)
	sim, err := runtime.NewSim(s.Kernel.IR, 1)
	require.NoError(t, err)
	session, err := runtime.Open(t.Context(), s.Kernel, sim, runtime.FromTensors(s.Weights, runtime.LoadOptions{}),
		runtime.Options{Pages: pages, Pin: s.Kernel.ChunkTokens()})
	require.NoError(t, err)
	subject := gate.RaggedSubject{Kernel: s.Kernel, Weights: s.Weights, Rows: 4, Pages: pages, Pinned: true,
		Write: sim.Write, Runner: &bench.GateRunner{Session: session, Device: sim, Vocab: s.Kernel.Config.Vocab},
		Plant: func(context.Context, megakernel.Fault) (func(), error) { return func() {}, nil }}
	report, err := subject.Judge(t.Context(), ref, small())
	require.NoError(t, err)
	require.True(t, report.Identical)
	require.Empty(t, report.Depends)
	require.True(t, report.Details[0].Passed, "%v", report.Details[0].Reasons)
}

// Steps of rows of two sequences are as good as the reference at every position,
// and with each planted fault they are not.
func TestARaggedSuiteJudgesWithPlantedFaults(t *testing.T) {
	if !deep.On() {
		t.Skip("runs several kernels on the executor")
	}
	s := raggedSuite(t)
	var err error
	s.Reference, err = gate.OpenReference(writeReference(t, s.Kernel.Config, 2, 26, 9))
	require.NoError(t, err)
	s.Rules = small()
	s.Progress = func(what string) { t.Log(what) }
	o, err := s.Run(t.Context())
	require.NoError(t, err)
	for _, d := range o.Gate.Details {
		t.Logf("%+v", d)
	}
	require.Empty(t, o.Cases)
	require.True(t, o.Gate.Identical)
	require.True(t, o.Gate.Details[0].Passed, "%v", o.Gate.Details[0].Reasons)
	require.Equal(t, 26+9, o.Gate.Gate.Positions)
	require.Equal(t, gate.Faults(), o.Gate.Gate.FaultsCaught)
}
