package verify

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// twoRuns are good runs under two schedules of a small kernel.
func twoRuns(t *testing.T) (*Trial, *Run, *Run) {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 3, Splits: 2, Unsplit: megakernel.UnsplitNone})
	require.NoError(t, err)
	return twoRunsOf(t, mk)
}

// twoRunsOf are those of a kernel.
func twoRunsOf(t *testing.T, mk *megakernel.Kernel) (*Trial, *Run, *Run) {
	t.Helper()
	trial, err := NewTrial(mk, 2)
	require.NoError(t, err)
	a, err := trial.Run(t.Context(), mk.IR, 1)
	require.NoError(t, err)
	b, err := trial.Run(t.Context(), mk.IR, 2)
	require.NoError(t, err)
	require.NoError(t, trial.Judge(a, b).Err())
	return trial, a, b
}

// Each way in which a run can be wrong without a fault fails the report.
func TestWrongOutcomesAreReported(t *testing.T) {
	trial, a, b := twoRuns(t)
	for want, test := range map[string]struct{ spoil, repair func() }{
		"1 × wrong token": {func() { b.next[1]++ }, func() { b.next[1]-- }},
		"1 × stray write": {func() { b.ran.stray = 2 }, func() { b.ran.stray = 0 }},
		"seeds 1 and 2 differ in buffer query_words,": {func() { b.outputs[0].sum[3] ^= 1 },
			func() { b.outputs[0].sum[3] ^= 1 }},
		"in logit 7 of step 0": {func() { b.logits[0][7] = next(b.logits[0][7]) },
			func() { b.logits[0][7] = a.logits[0][7] }},
		"keys and values ÷ rms, seed 2 off by": {func() { b.fresh[1][0].v[3] += 0.2 },
			func() { b.fresh[1][0].v[3] = a.fresh[1][0].v[3] }},
		"logits, seed 2 off by NaN": {func() { b.logits[1][0] = float32(math.NaN()) },
			func() { b.logits[1][0] = a.logits[1][0] }},
		"bytes through the ring":         {func() { b.ran.copied += 16 }, func() { b.ran.copied -= 16 }},
		"the ring went round 2 times":    {func() { b.ran.turns = 2 }, func() { b.ran.turns = a.ran.turns }},
		"layers that stored KV 1 layers": {func() { b.ran.layers = 1 }, func() { b.ran.layers = 2 }},
		"order of the KV pages": {func() { b.table[0], b.table = 0, []uint32{1, 3} },
			func() { b.table = []uint32{3, 1} }},
	} {
		test.spoil()
		require.ErrorContains(t, trial.Judge(a, b).Err(), want)
		test.repair()
		require.NoError(t, trial.Judge(a, b).Err(), "after %q", want)
	}
}

// A key or value may be off by a small share of how large its token's are.
func TestKeysAndValuesAreHeldToTheirSize(t *testing.T) {
	trial, a, _ := twoRuns(t)
	require.Equal(t, 0.06, cacheTolerance(trial.mk.Config.Layers))
	want := trial.fresh[1][0].k
	at := 5
	off := func(by float64) error {
		old := a.fresh[1][0].k[at]
		defer func() { a.fresh[1][0].k[at] = old }()
		a.fresh[1][0].k[at] = want[at] + by*rms(want)
		return trial.Judge(a).Err()
	}
	require.Greater(t, rms(want), 1.0, "keys are larger than 1")
	require.NoError(t, off(0.05))
	require.ErrorContains(t, off(0.07), "keys and values ÷ rms, seed 1 off by 0.07, want at most 0.06")
}

// next is the float above x.
func next(x float32) float32 { return math.Nextafter32(x, float32(math.Inf(1))) }

// A mistake that every schedule shows at the same lines is one finding.
func TestEqualFindingsAreListedOnce(t *testing.T) {
	var r Report
	race := Finding{Kind: "data race", Sides: []Side{{Op: "ld"}, {Op: "st"}}, Seed: 1}
	r.add(race)
	race.Seed, race.Text = 2, "another element"
	r.add(race)
	require.Len(t, r.Findings, 1)
	race.Sides[0].Pos.Line = "product/gemv.go:1"
	r.add(Finding{Kind: "deadlock", Sides: race.Sides})
	require.Len(t, r.Findings, 2)
}
