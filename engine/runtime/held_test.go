package runtime_test

import (
	"testing"
	"time"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// holding are options of kernels that hold chunks in registers, on SMs of which some have
// no tiles of some matrices.
func holding(held int) megakernel.Options {
	return megakernel.Options{SMs: 14, Splits: 2, Stages: 3, InFlight: 2, StageBytes: 2048, Consumers: 2, Held: held}
}

// A step that does not run holds nothing, so what was fetched for it can be drained whole:
// wherever the host stops a launch, the session goes on.
func TestALaunchThatHoldsChunksCanBeStopped(t *testing.T) {
	fresh, _ := onSim(t, holding(0))
	want, err := fresh.Generate([]int{5, 6, 7}, 8)
	require.NoError(t, err)
	for held := 1; held <= deep.Count(5, 1); held += 2 {
		s, sim := onSim(t, holding(held))
		sim.Reseed(uint64(held))
		heard := 0
		out, err := s.Stream(t.Context(), []int{5, 6, 7}, 40, func(int) bool { heard++; return heard < held })
		require.NoError(t, err)
		require.Less(t, len(out), 40, "the launch was not stopped")
		n := min(len(want), len(out))
		require.Equal(t, want[:n], out[:n])
		require.NoError(t, s.Rewind(4)) // the prompt and the first token chosen
		again, err := s.Generate(want[1:2], 6)
		require.NoError(t, err)
		require.Equal(t, want[2:], again)
	}
}

// A launch that hangs at a barrier is given up while chunks are held, too, and the same
// buffers serve a right kernel.
func TestALaunchThatHoldsChunksIsGivenUp(t *testing.T) {
	deep.Only(t)
	good, _ := onSim(t, holding(0))
	want, err := good.Generate([]int{5, 6}, 3)
	require.NoError(t, err)
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for seed := range uint64(6) {
		o := holding(3)
		o.Watchdog = []megakernel.Watchdog{megakernel.WatchGrid, megakernel.WatchAll}[seed%2]
		mk, err := megakernel.Build(c, o)
		require.NoError(t, err)
		o.Fault = megakernel.FaultLostArrival
		s, sim := onSim(t, o)
		sim.Reseed(seed)
		s.HangTimeout = time.Second
		_, err = s.Generate([]int{5, 6}, 3)
		require.ErrorAs(t, err, new(*runtime.HangError))
		require.ErrorContains(t, err, "waits for the grid barrier to count")
		require.NoError(t, sim.Swap(mk.IR))
		s.HangTimeout = 0
		got, err := s.Generate([]int{5, 6}, 3)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// A stage that is not released after its chunk has been taken stops one SM.
func TestAStageThatHoldingDoesNotReleaseIsNoticed(t *testing.T) {
	o := holding(8)
	o.SMs, o.Fault, o.Watchdog = 3, megakernel.FaultLostRelease, megakernel.WatchAll
	s, _ := onSim(t, o)
	s.HangTimeout = time.Second
	_, err := s.Generate([]int{5, 6}, 3)
	require.ErrorAs(t, err, new(*runtime.HangError))
	require.ErrorContains(t, err, `chunks held for o", layer 0, waits for a chunk in stage`)
	require.ErrorContains(t, err, "of the ring to be drained")
}
