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

func TestMutantsOfTheRingAreReported(t *testing.T) {
	k := buildIR(t, ringConsumers+1, ringGrid, ringKernel)
	muts := mutate.List(k)
	require.Greater(t, len(muts), 40)
	for _, mu := range muts {
		b, err := mutate.Apply(k, mu)
		require.NoError(t, err)
		p := load(t, b)
		found := false
		for s := 0; s < mutantSeeds && !found; s++ {
			_, err := p.Run(bufs(p), interp.Options{Seed: uint64(s), MaxSteps: 1e6})
			var f *interp.Fault
			if found = errors.As(err, &f); found {
				t.Logf("seed %2d %-28s %s", s, f.Kind, mu)
			}
		}
		if !found {
			t.Errorf("SURVIVES %s", mu)
		}
	}
	clean(t, load(t, k), mutantSeeds)
}
