package tune_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/tune"
	"github.com/stretchr/testify/require"
)

// Before the GPU is there all is compiled that a search without a better kernel wants, and
// what an earlier run has tried is not.
func TestTheFirstRoundIsCompiledAhead(t *testing.T) {
	deep.Only(t)
	l := &land{micros: flat}
	s, _ := search(t, l)
	s.Dimensions = nil // all
	require.NoError(t, s.Ahead(t.Context()))
	require.Empty(t, l.measured)
	ahead := slices.Clone(l.compiled)
	require.Equal(t, 1, count(ahead, tune.ChoiceOf(s.Start)))
	p, _, err := s.Run(t.Context())
	require.NoError(t, err)
	require.True(t, p.Finished)
	for _, c := range l.compiled {
		require.Equal(t, 1, count(ahead, c), "%s", c)
	}
	require.Len(t, ahead, 1+len(p.Trials))

	p.Trials = p.Trials[3:]
	rest := &land{micros: flat}
	again, _ := search(t, rest)
	again.Dimensions, again.Before = nil, p
	require.NoError(t, again.Ahead(t.Context()))
	require.Len(t, rest.compiled, 4, "the start and what is open")
}

func count(all []tune.Choice, c tune.Choice) (n int) {
	for _, o := range all {
		if o == c {
			n++
		}
	}
	return n
}

func TestWhatDoesNotCompileAheadIsAnErrorOfTheStartOnly(t *testing.T) {
	deep.Only(t)
	bad := errors.New("out of registers")
	l := &land{micros: flat, refused: func(c tune.Choice) error {
		if c.Consumers == 10 {
			return bad
		}
		return nil
	}}
	s, _ := search(t, l)
	require.NoError(t, s.Ahead(t.Context()))
	l.refused = func(c tune.Choice) error {
		if c == tune.ChoiceOf(s.Start) {
			return bad
		}
		return nil
	}
	require.ErrorIs(t, s.Ahead(t.Context()), bad)
	l.refused = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Ahead(ctx), context.Canceled)
}

// A profile of another search is refused before its candidates are compiled.
func TestAheadRefusesAProfileOfAnotherSearch(t *testing.T) {
	first, saved := search(t, &land{micros: flat})
	_, _, err := first.Run(t.Context())
	require.NoError(t, err)
	l := &land{micros: flat}
	s, _ := search(t, l)
	s.Before, s.Setup.GPU = &(*saved)[0], "another GPU"
	require.ErrorIs(t, s.Ahead(t.Context()), tune.ErrOther)
	require.Len(t, l.compiled, 1, "the start, which says what compiled it")
}
