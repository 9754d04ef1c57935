package verify

import (
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/stretchr/testify/require"
)

func TestAFewSeedsAreAsManyPolicies(t *testing.T) {
	seeds, err := (&Request{Seeds: 6}).schedules()
	require.NoError(t, err)
	require.Equal(t, []uint64{1, 2, 3, 4, 5, 6}, seeds)
	require.Equal(t, interp.Policies(), policiesOf(seeds))
	seeds, err = (&Request{Seeds: 2, Seed: 9}).schedules()
	require.NoError(t, err)
	require.Equal(t, []uint64{9, 10}, seeds)
	seeds, err = (&Request{Seeds: 3, Seed: 2, Policy: "uniform"}).schedules()
	require.NoError(t, err)
	require.Equal(t, []uint64{7, 13, 19}, seeds)
	require.Equal(t, []string{"uniform"}, policiesOf(seeds))
	_, err = (&Request{Seeds: 1, Policy: "fair"}).schedules()
	require.EqualError(t, err, `verify: found "fair", want uniform, bursts, starve, early copies, late copies or round robin`)
}

// What a finding names runs it again.
func TestAFindingIsFoundAgainByItsSeed(t *testing.T) {
	b := broken{edit: mutant("remove fence.proxy.async", "gate_up", "tasks/gemv.go")}
	first, again := b.report(t, Request{Seeds: 3}), Request{Seeds: 1}
	again.Seed = first.Findings[len(first.Findings)-1].Seed
	require.Contains(t, b.report(t, again).Findings, first.Findings[len(first.Findings)-1])
}
