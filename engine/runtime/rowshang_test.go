package runtime_test

import (
	"testing"
	"time"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// raggedFor is a ragged kernel of tiny on three SMs.
func raggedFor(t *testing.T, o megakernel.Options) *megakernel.Kernel {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	o.SMs, o.Tokens, o.Page, o.Stages, o.InFlight, o.StageBytes = 3, 8, 4, 3, 2, 2048
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	return mk
}

// raggedSession is a session of a kernel, whose planner splits what is short.
func raggedSession(t *testing.T, mk *megakernel.Kernel, seed uint64) (*runtime.Session, *runtime.Sim) {
	t.Helper()
	sim, err := runtime.NewSim(mk.IR, seed)
	require.NoError(t, err)
	weights := runtime.FromTensors(synth.NewWeights(1, mk.Config), runtime.LoadOptions{})
	s, err := runtime.Open(t.Context(), mk, sim, weights,
		runtime.Options{Pages: 40, Guard: 39, Steps: 3, Costs: kv.Costs{Item: 1, Row: 1, Token: 1}})
	require.NoError(t, err)
	return s, sim
}

// longRun feeds a sequence of 56 tokens and runs three steps of it beside a short one.
func longRun(t *testing.T, s *runtime.Session) (batch.StepRequest, [][]int) {
	t.Helper()
	var pages []uint32
	for i := range uint32(20) {
		pages = append(pages, 38-i)
	}
	for at := 0; at < 56; at += 8 {
		run(t, s, 1, batch.Sequence{New: []int{at, 7, 9, 2, 1, 8, at, 3}, Cached: at, Pages: pages})
	}
	q := batch.StepRequest{Steps: 3, Sequences: []batch.Sequence{{New: []int{40}, Cached: 56, Pages: pages},
		{New: []int{5}, Pages: []uint32{3, 1}}}}
	want, err := s.Run(t.Context(), q)
	require.NoError(t, err)
	return q, want
}

// A CTA that does not arrive at a grid barrier stops a launch whose SMs merge each
// other's partial states. It is given up, says where everyone stood, and the same
// buffers serve a right kernel.
func TestAHangingRaggedLaunchIsGivenUp(t *testing.T) {
	deep.Only(t)
	for seed := range uint64(2) {
		o := megakernel.Options{Watchdog: []megakernel.Watchdog{megakernel.WatchGrid, megakernel.WatchAll}[seed%2]}
		mk := raggedFor(t, o)
		s, sim := raggedSession(t, mk, seed)
		q, want := longRun(t, s)
		o.Fault = megakernel.FaultLostArrival
		require.NoError(t, sim.Swap(raggedFor(t, o).IR))
		s.HangTimeout = time.Second
		_, err := s.Run(t.Context(), q)
		var hang *runtime.HangError
		require.ErrorAs(t, err, &hang)
		require.ErrorContains(t, err,
			`SM 0-2: consumers in "sync after gate_up", layer 0, waits for the grid barrier to count`)
		require.NoError(t, sim.Swap(mk.IR))
		s.HangTimeout = 0
		got, err := s.Run(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// A stage that is not released stops one SM at its ring, and thereby all.
func TestAHangOfARaggedLaunchWithinAnSMIsGivenUp(t *testing.T) {
	deep.Only(t)
	for seed := range uint64(2) {
		o := megakernel.Options{Watchdog: megakernel.WatchAll}
		mk := raggedFor(t, o)
		s, sim := raggedSession(t, mk, seed)
		q, want := longRun(t, s)
		o.Fault = megakernel.FaultLostRelease
		require.NoError(t, sim.Swap(raggedFor(t, o).IR))
		s.HangTimeout = time.Second
		_, err := s.Run(t.Context(), q)
		var hang *runtime.HangError
		require.ErrorAs(t, err, &hang)
		require.ErrorContains(t, err, "of the ring to be drained")
		require.NoError(t, sim.Swap(mk.IR))
		s.HangTimeout = 0
		got, err := s.Run(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
