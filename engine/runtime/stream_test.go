package runtime_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// onSim is a session of tiny on the executor, and its device.
func onSim(t *testing.T, o megakernel.Options) (*runtime.Sequence, *runtime.Sim) {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	s, err := runtime.NewSequence(mk, sim, synth.NewWeights(1, c), 4, nil, 0)
	require.NoError(t, err)
	return s, sim
}

func TestTokensComeWhileTheLaunchRuns(t *testing.T) {
	s, _ := onSim(t, megakernel.Options{SMs: 2})
	want, err := s.Generate([]int{5, 6, 7}, 6)
	require.NoError(t, err)
	require.Len(t, want, 6)

	s, sim := onSim(t, megakernel.Options{SMs: 2})
	var got []int
	early := 0
	out, err := s.Stream(t.Context(), []int{5, 6, 7}, 6, func(token int) bool {
		got = append(got, token)
		select {
		case <-sim.Done():
		default:
			early++
		}
		return true
	})
	require.NoError(t, err)
	require.Equal(t, want, out)
	require.Equal(t, want, got)
	require.Positive(t, early, "no token came before the launch had ended")
	require.Equal(t, 8, s.Pos())
}

func TestAStoppedLaunchLeavesASessionThatGoesOn(t *testing.T) {
	fresh, _ := onSim(t, megakernel.Options{SMs: 2})
	want, err := fresh.Generate([]int{5, 6, 7}, 12)
	require.NoError(t, err)

	for name, stop := range map[string]func(cancel func()) bool{
		"by its listener": func(func()) bool { return false },
		"by its context":  func(cancel func()) bool { cancel(); return true },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := onSim(t, megakernel.Options{SMs: 2})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			heard := 0
			out, err := s.Stream(ctx, []int{5, 6, 7}, 40, func(int) bool {
				heard++
				return heard < 2 || stop(cancel)
			})
			if ctx.Err() == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, context.Canceled)
			}
			require.GreaterOrEqual(t, heard, 2)
			require.Less(t, len(out), 40, "the launch was not stopped")
			require.GreaterOrEqual(t, len(out), 2)
			require.Equal(t, want[:min(12, len(out))], out[:min(12, len(out))])

			require.NoError(t, s.Rewind(4)) // the prompt and the first token chosen
			again, err := s.Generate(want[1:2], 10)
			require.NoError(t, err)
			require.Equal(t, want[2:], again)
		})
	}
}

// A CTA that does not arrive at a grid barrier stops the kernel. It is given up,
// says where everyone stood, and the same buffers serve a right kernel.
func TestAHangingLaunchIsGivenUp(t *testing.T) {
	good, _ := onSim(t, megakernel.Options{SMs: 3})
	want, err := good.Generate([]int{5, 6}, 3)
	require.NoError(t, err)

	for i, seed := 0, uint64(0); seed < uint64(deep.Count(8, 2)); i, seed = i+1, seed+1 {
		watchdog := []megakernel.Watchdog{megakernel.WatchGrid, megakernel.WatchAll}[i%2]
		s, sim := onSim(t, megakernel.Options{SMs: 3, Fault: megakernel.FaultLostArrival, Watchdog: watchdog})
		sim.Reseed(seed)
		s.HangTimeout = time.Second
		_, err = s.Generate([]int{5, 6}, 3)
		var hang *runtime.HangError
		require.ErrorAs(t, err, &hang)
		require.Equal(t, 0, hang.Pos)
		require.ErrorContains(t, err,
			`SM 0-2: consumers in "sync after gate_up", layer 0, waits for the grid barrier to count 9 arrivals (grid/barrier.go:`)
		require.ErrorContains(t, err, "producer in")

		c, err := models.Lookup("tiny")
		require.NoError(t, err)
		mk, err := megakernel.Build(c, megakernel.Options{SMs: 3, Watchdog: watchdog})
		require.NoError(t, err)
		require.NoError(t, sim.Swap(mk.IR))
		s.HangTimeout = 0
		require.Equal(t, 0, s.Pos())
		got, err := s.Generate([]int{5, 6}, 3)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// A stage that is not released stops one SM at its ring, and thereby all.
func TestAHangWithinAnSMIsGivenUp(t *testing.T) {
	for seed := range uint64(deep.Count(6, 2)) {
		o := megakernel.Options{SMs: 3, Stages: 3, InFlight: 2, StageBytes: 2048, Fault: megakernel.FaultLostRelease,
			Watchdog: megakernel.WatchAll}
		s, sim := onSim(t, o)
		sim.Reseed(seed)
		s.HangTimeout = time.Second
		_, err := s.Generate([]int{5, 6}, 3)
		var hang *runtime.HangError
		require.ErrorAs(t, err, &hang)
		require.Regexp(t,
			`SM 2: consumers in "(sync after attention / chunks held for )?o", layer 0, waits for a chunk in stage`,
			err.Error())
		require.ErrorContains(t, err, "of the ring to be drained")

		o.Watchdog = megakernel.WatchGrid
		s, sim = onSim(t, o)
		sim.Reseed(seed)
		s.HangTimeout = time.Second
		_, err = s.Generate([]int{5, 6}, 3)
		require.ErrorContains(t, err, "deadlock")
		require.ErrorContains(t, err, "pipeline/ring.go:", "what waits for the stage")
	}
}

// A wait inside an SM that no watchdog ends is named with its line, although the host has given the
// launch up: here the consumers' for the producer, with the other parity.
func TestAWaitThatDoesNotLeaveIsNamedWithItsLine(t *testing.T) {
	o := megakernel.Options{SMs: 3}
	s, sim := onSim(t, o)
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	mutations := slices.DeleteFunc(mutate.List(mk.IR), func(m mutate.Mutation) bool {
		return m.Name != "parity wait.mbar @step_ack: the other parity"
	})
	require.NotEmpty(t, mutations)
	k, err := mutate.Apply(mk.IR, mutations[0])
	require.NoError(t, err)
	require.NoError(t, sim.Swap(k))
	s.HangTimeout = time.Second
	_, err = s.Generate([]int{5, 6}, 3)
	require.ErrorContains(t, err, "deadlock")
	require.ErrorContains(t, err, "@step_ack")
	require.ErrorContains(t, err, mutations[0].Pos.Line)
}

func TestAKernelWithoutWatchdogHangs(t *testing.T) {
	s, _ := onSim(t, megakernel.Options{SMs: 3, Fault: megakernel.FaultLostArrival, Watchdog: megakernel.WatchNone})
	s.HangTimeout = time.Millisecond
	_, err := s.Generate([]int{5, 6}, 3)
	require.ErrorContains(t, err, "deadlock")
	_, err = s.Generate([]int{5, 6}, 3)
	require.ErrorContains(t, err, "the session ended with a failed launch")
}

func TestAListenerThatPanicsLeavesNoLaunchRunning(t *testing.T) {
	s, sim := onSim(t, megakernel.Options{SMs: 2})
	require.PanicsWithValue(t, "no", func() {
		_, _ = s.Stream(t.Context(), []int{5}, 20, func(int) bool { panic("no") })
	})
	select {
	case <-sim.Done():
	default:
		require.FailNow(t, "the launch runs on")
	}
	_, err := s.Generate([]int{5}, 1)
	require.ErrorContains(t, err, "the session ended with a failed launch: its listener panicked")
}
