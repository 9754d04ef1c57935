package promela

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const completed = `
State-vector 180 byte, depth reached 93, errors: 0
      686 states, stored
      186 states, matched
      872 transitions (= stored+matched)
pan: elapsed time 0.01 seconds
`

func TestVerdictsOfSpin(t *testing.T) {
	for out, want := range map[string]Result{
		completed: {"no fault", 686, 872},
		"pan:1: invalid end state (at depth 5)\n    1.2e+06 states, stored\n": {
			"deadlock", 1200000, 0},
		"pan:1: assertion violated ((slot[0]<=V[3])||no_data_race) (at depth 9)\n": {
			Verdict: "data race"},
		"pan:1: assertion violated ((V[((1*10)+8)]>=mbar_phase[4])||no_mbarrier_phase_skipped) (at depth 9)\n" +
			"pan: x": {Verdict: "mbarrier phase skipped"},
	} {
		r, err := Read(out)
		require.NoError(t, err, out)
		require.Equal(t, want, *r, out)
	}
}

// A search that ended early is no verdict.
func TestSearchesThatEndEarlyAreErrors(t *testing.T) {
	for _, out := range []string{"", "error: max search depth too small\n" + completed,
		"pan: out of memory\n" + completed, "pan:1: assertion violated x==1 (at depth 3)\n",
		"Warning: Search not completed\n" + completed} {
		_, err := Read(out)
		require.ErrorContains(t, err, "not completed", out)
	}
}
