package tune_test

import (
	"encoding/json"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/tune"
	"github.com/stretchr/testify/require"
)

// A flag may have the value that the search begins with: then only what is searched tells
// two searches apart.
func TestASearchOfOtherOptionsIsNotGoneOnWith(t *testing.T) {
	l := &land{micros: flat}
	s, _ := search(t, l)
	s.Dimensions = []string{tune.Merge, tune.Splits}
	p, _, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"stage-bytes", "stages", "in-flight", "leads", "held", "consumers", "queries", "vectors"},
		p.Kept)
	measured := len(l.measured)
	for want, dimensions := range map[string][]string{
		"it searched splits, want that to stay":             {tune.Merge},
		"it did not search held, want that searched":        {tune.Held, tune.Splits, tune.Merge},
		"it searched splits, merge, want that to stay":      {tune.Held},
		"it did not search stage-bytes, stages, in-flight,": nil,
	} {
		s.Before, s.Dimensions = p, dimensions
		_, _, err := s.Run(t.Context())
		require.ErrorIs(t, err, tune.ErrOther)
		require.ErrorContains(t, err, want)
	}
	s.Dimensions = []string{tune.Splits, tune.Merge}
	_, _, err = s.Run(t.Context())
	require.NoError(t, err, "the same in another order")
	require.Len(t, l.measured, measured, "nothing is measured again")
}

// Profiles of before there was the field are of searches of all options.
func TestASearchOfAllOptionsKeepsNone(t *testing.T) {
	deep.Only(t)
	s, _ := search(t, &land{micros: flat})
	s.Dimensions, s.Most, s.Rounds = nil, 1, 1
	all, _, err := s.Run(t.Context())
	require.NoError(t, err)
	text, err := json.Marshal(all)
	require.NoError(t, err)
	require.NotContains(t, string(text), "kept")
}
