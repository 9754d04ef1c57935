package explore

import (
	"errors"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/stretchr/testify/assert"
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
		"no syncwarp before a release": "may still wait for phase 0 of mbarrier 0 of @full when phase 1 completes",
		"a turn is not waited for":     "nobody has waited for phase 0", "a turn is not passed on": "deadlock",
		"a turn's other phase is waited for": "want 24", "no registers are given up": "deadlock",
		"three of four warps give registers up": "deadlock",
		"8 registers too few are given up":      "deadlock"}
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

// Each mutant of the turns of two warpgroups and of registers that move is found in some execution, but for those that
// change nothing.
func TestMutantsOfTurnsAndRegistersAreFound(t *testing.T) {
	// Who has fewer registers than he could have computes the same, and a load is no matter of registers.
	register := []string{"consumers: remove setmaxreg", "consumers: later setmaxreg"}
	harmless := map[string][]string{
		"turns":     {"consumers: earlier syncwarp"}, // lanes come together in front of the accesses instead
		"registers": register,
		"ring, registers": slices.Concat([]string{
			": remove fence.mbarrier_init", ": earlier fence.mbarrier_init"}, // proxy fences lie behind
			register, []string{
				"producer: later fence.proxy.async", // in front of the copy all the same
				"producer: earlier mbar.expect @full", "producer: later mbar.expect @full",
				"producer: earlier syncwarp"}), // bytes may come before they are expected while an arrival is missing
	}
	for name, harmless := range harmless {
		all := subjects()
		s := &all[slices.IndexFunc(all, func(s subject) bool { return s.name == name })]
		k, err := s.kernel()
		require.NoError(t, err)
		var left []string
		list := mutate.List(k)
		for _, m := range list {
			if mutant, err := mutate.Apply(k, m); err != nil {
				t.Fatal(err)
			} else if row, err := s.exploreOf(mutant, interp.Bounds{Executions: 300}); err != nil {
				t.Fatal(err)
			} else if row.err == nil {
				left = append(left, m.Role+": "+m.Name)
			}
		}
		t.Logf("%s: %d mutants", name, len(list))
		assert.Equal(t, harmless, left, name)
	}
}
