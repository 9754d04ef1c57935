package verify

import (
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

func TestAFewSeedsAreAsManyPolicies(t *testing.T) {
	seeds, err := (&Request{Seeds: 6}).schedules()
	require.NoError(t, err)
	require.Equal(t, []uint64{1, 2, 3, 4, 5, 6}, seeds)
	require.Equal(t, interp.Policies()[:6], policiesOf(seeds))
	seeds, err = (&Request{Seeds: 2, Seed: 9}).schedules()
	require.NoError(t, err)
	require.Equal(t, []uint64{9, 10}, seeds)
	seeds, err = (&Request{Seeds: 3, Seed: 2, Policy: "uniform"}).schedules()
	require.NoError(t, err)
	require.Equal(t, []uint64{7, 13, 19}, seeds)
	require.Equal(t, []string{"uniform"}, policiesOf(seeds))
	_, err = (&Request{Seeds: 1, Policy: "fair"}).schedules()
	require.EqualError(t, err,
		`verify: found "fair", want uniform, bursts, starve, early copies, late copies, round robin or pct`)
	seeds, err = (&Request{Seeds: 2, Seed: 3, Policy: "pct"}).schedules()
	require.NoError(t, err)
	require.Equal(t, []uint64{interp.FirstPCT + 3, interp.FirstPCT + 4}, seeds)
}

// What a finding names runs it again.
func TestAFindingIsFoundAgainByItsSeed(t *testing.T) {
	b := broken{edit: mutant("remove fence.proxy.async", "gate_up", "product/gemv.go")}
	first, again := b.report(t, Request{Seeds: 3}), Request{Seeds: 1}
	again.Seed = first.Findings[len(first.Findings)-1].Seed
	require.Contains(t, b.report(t, again).Findings, first.Findings[len(first.Findings)-1])
}

// A finding of the scenario that runs twice is found again by the scenario's seed alone.
func TestTheScheduleOneMoreComesFromTheFirstSeed(t *testing.T) {
	for _, seeds := range [][]uint64{{3}, {3, 4, 5, 6}, {3, 9}} {
		schedules := withOneMore(seeds)
		require.Equal(t, append(slices.Clone(seeds), 4), schedules)
		require.NotEqual(t, interp.PolicyOf(seeds[0]), interp.PolicyOf(schedules[len(seeds)]))
	}
}

// Of several rows, too, what a finding names runs it again; its policy is that of the schedule it was found under.
func TestAFindingOfSeveralRowsIsFoundAgain(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	q := Request{Config: c, Options: megakernel.Options{Tokens: 4}, Seeds: 2, Steps: 2}
	first, err := check(t.Context(), q, noSync("sync after qkv"))
	require.NoError(t, err)
	require.NotEmpty(t, first.Findings)
	for _, f := range first.Findings {
		q.Seeds, q.Seed = 1, f.Seed
		again, err := check(t.Context(), q, noSync("sync after qkv"))
		require.NoError(t, err)
		require.Contains(t, again.Findings, f)
	}
	r := good()
	r.Command = "mkgen verify --model tiny"
	r.Findings = []Finding{{Kind: "data race", Text: "x", Seed: 7, Under: 8}}
	require.Contains(t, text(t, r),
		"1. data race (seed 7, bursts, step 0): x\n     again: mkgen verify --model tiny --seeds 1 --seed 7\n")
}
