package plural_test

import (
	"testing"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	require.Equal(t, []string{"0 stages", "1 stage", "2 stages"},
		[]string{plural.Of(0, "stage"), plural.Of(1, "stage"), plural.Of(2, "stage")})
}

func TestOfWhatEndsOtherwise(t *testing.T) {
	require.Equal(t, []string{"1 launch", "2 launches", "1 matrix", "2 matrices"}, []string{plural.Of(1, "launch"),
		plural.Of(2, "launch"), plural.Of(1, "matrix"), plural.Of(2, "matrix")})
}

func TestAre(t *testing.T) {
	require.Equal(t, []string{"0 cases are", "1 case is", "2 cases are"},
		[]string{plural.Are(0, "case"), plural.Are(1, "case"), plural.Are(2, "case")})
}

func TestWhatCanBeChosenIsListed(t *testing.T) {
	type way string
	for want, all := range map[string][]way{"": nil, "a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		require.Equal(t, want, plural.Or(all))
	}
}
