package sweep

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Printed grey, a greater share is darker, everywhere; and text can be read on all.
func TestColoursFallInLuminanceAndTextStandsOut(t *testing.T) {
	s := newScale()
	before := 2.0
	for share := lowShare; share <= highShare; share += 0.005 {
		c := s.of(share)
		require.Less(t, luminance(c), before, "%.3f", share)
		require.GreaterOrEqual(t, contrast(on(c), c), 4.5, "%.3f", share)
		before = luminance(c)
	}
	require.Equal(t, s.of(lowShare), s.of(0))
	require.Equal(t, s.of(highShare), s.of(1.2))
}

func TestTextIsWrappedToItsPlace(t *testing.T) {
	require.Nil(t, wrap(" ", 10, 3))
	require.Equal(t, []string{"takes 9 GB", "of memory"}, wrap("takes 9 GB of memory", 10, 3))
	require.Equal(t, []string{"takes 9 GB", "of memory…"}, wrap("takes 9 GB of memory that is not there", 10, 2),
		"the rest is cut")
	require.Equal(t, []string{"incompreh…"}, wrap("incomprehensible", 10, 2))
}

func TestTimesHaveFourDigits(t *testing.T) {
	for x, want := range map[float64]string{1.23456: "1.235", 12.3456: "12.35", 123.456: "123.5", 1234.56: "1235",
		123456.7: "123457"} {
		require.Equal(t, want, micros(x))
	}
	require.Equal(t, "79.1 %", percent(0.79149))
}
