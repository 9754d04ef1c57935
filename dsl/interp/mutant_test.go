package interp_test

import (
	"errors"
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/stretchr/testify/require"
)

// mutantSeeds is how many schedules a mutant may hide in.
const mutantSeeds = 24

// ringExcuses are of the ring kernel.
var ringExcuses = mutate.Excuses{
	{Op: "fence.mbarrier_init", Classes: []mutate.Class{mutate.Earlier}, Front: "mbar.init @gathered",
		Why:  "only @gathered stays unfenced by it, and the consumers' fence.proxy.async lies between its initialisation and its copy",
		Rule: mutate.Causality},
	{Op: "fence.proxy.async.*", Classes: []mutate.Class{mutate.Later}, Role: "consumer",
		Behind: "syncwarp | bar.sync | mbar.expect @gathered",
		Why:    "the fence stays on the path: every thread has it, before the arrival or the copy that comes behind",
		Rule:   mutate.Causality},
	{Op: "syncwarp", Classes: []mutate.Class{mutate.Earlier}, Role: "consumer", Front: "fence.proxy.async.shared",
		Why:  "it stays between the loads and the arrival; the lane that arrives fences behind it",
		Rule: mutate.Causality},
	{Op: "bar.sync", Classes: []mutate.Class{mutate.Earlier}, Role: "consumer", Front: "fence.proxy.async.global",
		Why: "the thread that arrives for its CTA fences behind the barrier, for all", Rule: mutate.Causality},
	{Op: "mbar.expect @gathered", Classes: []mutate.Class{mutate.Earlier}, Front: "fence.proxy.async.global",
		Why: "it stays in the copy's phase; the fence still comes before the copy", Rule: mutate.Causality},
	{Op: "mbar.expect @gathered | mbar.expect @full", Classes: []mutate.Class{mutate.Later}, Behind: "bulk.g2s *",
		Why:  "a copy may complete before its bytes are expected (tx-count is signed) while the phase lacks its arrival",
		Rule: mutate.Phases},
}

func TestMutantsOfTheRingAreReported(t *testing.T) {
	k := buildIR(t, ringConsumers+1, ringGrid, ringKernel)
	left := unreported(t, k)
	require.NoError(t, ringExcuses.Check(left, ringExcuses))
	clean(t, load(t, k), mutantSeeds)
}

// unreported lists the mutants of a kernel, of which there must be more than 50, that run through under every seed
// without a fault.
func unreported(t *testing.T, k *ir.Kernel) (left []mutate.Mutation) {
	t.Helper()
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
		if !found {
			left = append(left, mu)
		}
	}
	return left
}
