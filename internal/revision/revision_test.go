package revision

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAStampedProgramSaysWhatItWasStampedWith(t *testing.T) {
	defer func(s string) { stamped = s }(stamped)
	stamped = "0123abc"
	require.Equal(t, "0123abc", String())
}
