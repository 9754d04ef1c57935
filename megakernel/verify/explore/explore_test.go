package explore

import (
	"errors"
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/stretchr/testify/require"
)

func TestSubjectsHaveNoFaultInAnyExecution(t *testing.T) {
	r, err := Subjects(interp.Bounds{Executions: 30000, Stale: 1})
	require.NoError(t, err)
	require.NoError(t, r.Write(t.Output()))
	require.NoError(t, r.Err())
	for _, row := range r.Rows {
		require.True(t, row.Complete, row.Subject)
	}
}

// A planted fault is found in some execution.
func TestPlantedFaultsAreFound(t *testing.T) {
	want := map[string]string{"a consumer releases nothing": "deadlock", "a CTA does not arrive": "deadlock",
		"a barrier orders nothing": "data race",
		"flags do not change":      "want 12", "no ack of a step": "nobody has waited for phase 0",
		"no syncwarp before a release": "may still wait for phase 0 of mbarrier 0 of @full when phase 1 completes"}
	for _, s := range planted() {
		require.Contains(t, want, s.fault)
		t.Run(s.fault, func(t *testing.T) {
			row, err := s.explore(interp.Bounds{Executions: 30000, Stale: 1})
			require.NoError(t, err)
			require.ErrorContains(t, row.err, want[s.fault])
			require.Contains(t, row.Verdict, want[s.fault])
		})
	}
}

// SPIN, which knows nothing of the executor, says the same of the same kernels.
func TestSpinAgrees(t *testing.T) {
	s, err := FindSpin("")
	if errors.Is(err, ErrNoSpin) {
		t.Skip(err)
	}
	require.NoError(t, err)
	quick := []subject{subjects()[6], planted()[2]}
	c, err := s.compareAll(t.Context(), interp.Bounds{Executions: 100000, Stale: 1},
		deep.Most(append(quick, append(subjects(), planted()...)...), len(quick)))
	require.NoError(t, err)
	require.NoError(t, c.Write(t.Output()))
	require.NoError(t, c.Err())
}
