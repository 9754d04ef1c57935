package megakernel

import (
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

func TestEveryRegisteredModelBuilds(t *testing.T) {
	for _, c := range models.All() {
		for _, sms := range []int{1, 4, 132} {
			mk, err := Build(c, Options{SMs: sms})
			require.NoError(t, err, "%s on %d SMs", c.Name, sms)
			require.NotNil(t, mk.IR)
		}
	}
}

// 132 splits, one an SM, are more than a merge takes.
func TestAModelOfOneKVHeadBuildsWithDefaults(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.KVHeads = 1
	mk, err := Build(c, Options{})
	require.NoError(t, err)
	require.Equal(t, maxSplits, mk.Options.Splits)
}
