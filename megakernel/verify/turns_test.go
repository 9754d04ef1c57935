package verify

import (
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// Of the turns of the two warpgroups of a prompt's attention the whole kernel reports what lets one of them wait for
// ever, or miss a phase. The other phase only gives the other warpgroup the first turn.
func TestBrokenTurnsAreReported(t *testing.T) {
	for i, x := range []struct{ name, region, kind string }{
		{"remove mbar.arrive @turns", "attention", "deadlock"},
		{"remove wait.mbar @turns", "attention", "mbarrier phase skipped"},
		{"earlier wait.mbar @turns", "attention", "deadlock"}, // in front of a stage that the other warpgroup releases
		{"count mbar.init @turns: one arrival more", "prologue", "deadlock"},
		{"count mbar.init @turns: one arrival less", "prologue", "mbarrier phase skipped"},
		{"remove mbar.init @turns", "prologue", "mbarrier misuse"},
		{"parity wait.mbar @turns: the other parity", "attention", ""},
	} {
		if i > 1 && !deep.On() {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			c, err := models.Lookup("tiny")
			require.NoError(t, err)
			r, err := check(t.Context(), Request{Config: c, Seeds: 1, Steps: 2, Prefill: 200}, mutant(x.name, x.region, ""))
			require.NoError(t, err)
			if x.kind == "" {
				require.NoError(t, r.Err())
				return
			}
			require.NotEmpty(t, r.Findings)
			require.Equal(t, x.kind, r.Findings[0].Kind, r.Findings[0].Text)
		})
	}
}
