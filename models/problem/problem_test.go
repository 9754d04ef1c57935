package problem

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAListNamesTheFirstAndCountsTheRest(t *testing.T) {
	var l List
	require.NoError(t, l.Err())
	for range Most + 3 {
		l.Add(errors.New("x"))
	}
	require.Equal(t, Most, l.Len())
	require.EqualError(t, l.Err(), strings.Repeat("x\n", Most)+"and 3 more problems")
}

func TestShortenedTextIsPrintable(t *testing.T) {
	require.Equal(t, `a\nb`, Shorten("a\nb", 10))
	require.Equal(t, "a...", Shorten("a\u00e9", 2), "a rune is not cut")
	require.Equal(t, "ab", Shorten("ab", 2))
}
