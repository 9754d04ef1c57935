package explore

import (
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
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
	all := map[string]subject{}
	for _, s := range subjects() {
		all[s.name] = s
	}
	for name, fault := range map[string]struct {
		of   string
		edit func(s *subject)
		want string
	}{
		"a consumer releases nothing": {"ring", func(s *subject) { s.body = ringBody(6, 1) }, "deadlock"},
		"a CTA does not arrive":       {"grid barrier", func(s *subject) { s.body = gridBody(2, 2, false) }, "deadlock"},
		"a barrier orders nothing":    {"grid barrier", func(s *subject) { s.body = gridBody(2, 0, true) }, "data race"},
		"flags do not change":         {"LL packets, two buffers", func(s *subject) { s.body = packetBody(3, false, 0) }, "want 12"},
		"no ack of a step":            {"step", func(s *subject) { s.body = stepBody(3, 0) }, "nobody has waited for phase 0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := all[fault.of]
			fault.edit(&s)
			row, err := s.explore(interp.Bounds{Executions: 30000, Stale: 1})
			require.NoError(t, err)
			require.ErrorContains(t, row.err, fault.want)
			require.Contains(t, row.Verdict, fault.want)
		})
	}
}
