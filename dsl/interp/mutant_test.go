package interp_test

import (
	"errors"
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/stretchr/testify/require"
)

// mutantSeeds is how many schedules a mutant may hide in.
const mutantSeeds = 24

// equivalent lists the mutants of the ring kernel that break nothing, and why.
var equivalent = map[string]string{
	"earlier fence.mbarrier_init":   "only @gathered stays unfenced by it, and the consumers' fence.proxy.async lies between its initialisation and its copy",
	"later fence.proxy.async":       "the fence stays on the path: behind syncwarp, or in front of the copy",
	"earlier syncwarp":              "it stays between the loads and the arrival; the lane that arrives fences behind it",
	"earlier bar.sync":              "the thread that arrives for its CTA fences behind the barrier, for all",
	"earlier mbar.expect @gathered": "it stays in the copy's phase; the fence still comes before the copy",
	"later mbar.expect @gathered":   "a copy may complete before its bytes are expected (tx-count is signed) while the phase lacks its arrival",
	"later mbar.expect @full":       "the same",
}

func TestMutantsOfTheRingAreReported(t *testing.T) {
	k := buildIR(t, ringConsumers+1, ringGrid, ringKernel)
	muts := mutate.List(k)
	require.Greater(t, len(muts), 50)
	for _, mu := range muts {
		b, err := mutate.Apply(k, mu)
		require.NoError(t, err)
		p := load(t, b)
		found := false
		for s := 0; s < mutantSeeds && !found; s++ {
			_, err := p.Run(bufs(p), interp.Options{Seed: uint64(s), MaxSteps: 1e6})
			var f *interp.Fault
			if found = errors.As(err, &f); !found {
				require.NoError(t, err)
			}
		}
		if reason, ok := equivalent[mu.Name]; ok {
			require.False(t, found, "%s is reported, but was thought to be equivalent: %s", mu, reason)
			continue
		}
		require.True(t, found, "%s is not reported", mu)
	}
	clean(t, load(t, k), mutantSeeds)
}
