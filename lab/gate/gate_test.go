package gate

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

// lns returns the natural logarithms of v as logits; 0 becomes -inf.
func lns(v ...float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(math.Log(x))
	}
	return out
}

// small are the rules without the demand for evidence.
func small() Rules {
	r := DefaultRules()
	r.MinPositions, r.MinSequences = 1, 1
	return r
}

// judge runs the same three rows through the gate n times.
func judge(t *testing.T, r Rules, n int, o, h, k []float32) Result {
	t.Helper()
	g := New(r)
	for i := range n {
		add(t, g, 0, i, o, h, k)
	}
	return g.Result()
}

// add puts a position in whose s is as far from o as h is, so that the rules of h come first.
func add(t *testing.T, g *Gate, sequence, position int, o, h, k []float32) {
	t.Helper()
	own := divergence(o, logSumExp(o), h, logSumExp(h))
	if !finite(own) {
		own = 0
	}
	require.NoError(t, g.Add(sequence, position, o, h, k, own))
}

func TestDivergenceByHand(t *testing.T) {
	for _, c := range []struct {
		p, q []float32
		want float64
	}{
		{lns(1, 1), lns(1, 3), 0.5*math.Log(2) + 0.5*math.Log(2.0/3)},
		{lns(2, 2), lns(1, 3), 0.5*math.Log(2) + 0.5*math.Log(2.0/3)}, // only differences of logits count
		{lns(0, 1, 1), lns(2, 1, 1), math.Log(2)},                     // probability 0 in p adds nothing
		{lns(0, 1, 1), lns(0, 1, 1), 0},
		{lns(1, 1), lns(0, 1), math.Inf(1)},
		{[]float32{0, -1e30}, []float32{0, 0}, math.Log(2)},
		{[]float32{0, 0}, []float32{0, -200}, 100 - math.Log(2)},
		{[]float32{0, 0}, []float32{0, 0x1p-10}, 0x1p-23}, // d²/8
	} {
		got := divergence(c.p, logSumExp(c.p), c.q, logSumExp(c.q))
		if math.IsInf(c.want, 1) {
			require.Equal(t, c.want, got)
			continue
		}
		require.InDelta(t, c.want, got, 1e-7*c.want+1e-15, "%v ‖ %v", c.p, c.q)
		require.GreaterOrEqual(t, got, 0.0)
	}
}

func TestTermsOfDivergenceMeetAtTheirBorders(t *testing.T) {
	for _, d := range []float64{1e-3, 1, -1e-3, -1} {
		below, above := term(-1, -1+d*(1-1e-9)), term(-1, -1+d*(1+1e-9))
		require.InEpsilon(t, below, above, 1e-7, "d = %v", d)
	}
}

func TestSmallDivergenceIsExact(t *testing.T) {
	// KL of two-valued distributions 1/2 ± e is about 2e²; the naive sum would be lost in rounding at this size.
	o, k := []float32{0, 0}, []float32{0, 0x1p-26}
	require.InEpsilon(t, 0x1p-52/8, divergence(o, logSumExp(o), k, logSumExp(k)), 1e-6)
}

func TestIdenticalInputsPass(t *testing.T) {
	row := []float32{1, 5, -2}
	r := judge(t, small(), 3, row, row, row)
	require.Equal(t, 0, *r.WorstPosition.Position)
	r.WorstPosition, r.WorstSequence = Worst{}, Worst{}
	require.Equal(t, Result{Positions: 3, Sequences: 1, Sure: 3, Passed: true}, r)
}

func TestKernelAsGoodAsReferencePasses(t *testing.T) {
	o, h := []float32{0, 1}, []float32{0, 1.01}
	r := judge(t, small(), 5, o, h, []float32{0, 0.99})
	require.True(t, r.Passed, r.Reasons)
	require.InEpsilon(t, r.KLReference, r.KLOurs, 0.02)
	require.InEpsilon(t, 1e-4/2*0.1966, r.KLReference, 0.01) // d²/2 · p(1-p)
}

func TestMeanLimit(t *testing.T) {
	o, h := []float32{0, 0}, []float32{0, 0.1} // KL = d²/8
	at := func(d float32) Result { return judge(t, small(), 1, o, h, []float32{0, d}) }
	require.True(t, at(0.1045).Passed) // 1.092
	bad := at(0.1055)                  // 1.113
	require.False(t, bad.Passed)
	require.Contains(t, bad.Reasons[0], "mean KL(o‖k) is 0.00139")
	require.Len(t, bad.Reasons, 1)
}

func TestPercentileLimit(t *testing.T) {
	g := New(small())
	o, h := []float32{0, 0}, []float32{0, 0.1}
	for i := range 100 {
		k := []float32{0, 0.05}
		if i >= 98 { // two of a hundred are beyond, so the 99th is
			k[1] = 0.12
		}
		add(t, g, 0, i, o, h, k)
	}
	r := g.Result()
	require.Less(t, r.KLOurs, r.KLReference)
	require.Len(t, r.Reasons, 1)
	require.Contains(t, r.Reasons[0], "99th percentile of KL(o‖k)")
}

func TestPercentileIsNearestRank(t *testing.T) {
	v := make([]float64, 200)
	for i := range v {
		v[i] = float64((i*77)%200 + 1)
	}
	require.Equal(t, 198.0, percentile99(v))
	require.Equal(t, 3.0, percentile99([]float64{3, 1, 2}))
	require.True(t, math.IsNaN(percentile99(nil)))
}

func TestFlipCountsOnlyWhereReferenceIsSure(t *testing.T) {
	rules := small()
	rules.MeanSlack, rules.P99Slack, rules.OwnSlack = 10, 10, 10                // flips alone
	o, h, k := []float32{1.1, 0, 0}, []float32{1.1, 0, 0.3}, []float32{0, 1, 0} // rms = 0.1732, six times that 1.04
	sure := judge(t, rules, 1, o, h, k)
	require.Equal(t, 1, sure.Flips)
	require.Equal(t, []string{"1 flips of a sure top-1, first sequence 0 position 0: token 1, want 0"}, sure.Reasons)
	require.InEpsilon(t, 1.1/(6*0.1732), sure.WidestFlip, 1e-3)

	o[0], h[0] = 1, 1 // margin below 1.04
	unsure := judge(t, rules, 1, o, h, k)
	require.Zero(t, unsure.Flips+unsure.Sure)
	require.True(t, unsure.Passed)
	require.InEpsilon(t, 1/(6*0.1732), unsure.WidestFlip, 1e-3)
}

// Roundings of a size with h's move a margin of three times rms(h-o) past 0 now and then; those of a quarter of it do
// not.
func TestWhatMakesSureFollowsTheKernelsOwnRoundings(t *testing.T) {
	rules := small()
	rules.MeanSlack, rules.P99Slack, rules.OwnSlack = 10, 10, 10
	at := func(own, margin float64) Result {
		g := New(rules)
		g.Put(0, 0, Position{KLReference: 1e-3, KLOwn: own, KLOurs: own, Margin: margin, RMS: 0.1, Want: 1, Got: 2})
		return g.Result()
	}
	for _, c := range []struct{ own, limit float64 }{{1e-3, 0.6}, {2.5e-4, 0.3}, {1e-5, 0.3}, {4e-3, 1.2}} {
		below, above := at(c.own, 0.99*c.limit), at(c.own, 1.01*c.limit)
		require.Equal(t, []int{0, 0, 1, 1}, []int{below.Sure, below.Flips, above.Sure, above.Flips}, "own %v", c.own)
		require.InEpsilon(t, 0.99, below.WidestFlip, 1e-9)
		require.InEpsilon(t, 1.01, above.WidestFlip, 1e-9)
	}
}

func TestTieInKernelFlipsToTheLowestToken(t *testing.T) {
	rules := small()
	rules.MeanSlack, rules.P99Slack, rules.OwnSlack = 10, 10, 10
	o := []float32{0, 1}
	first := judge(t, rules, 1, o, o, []float32{1, 1})
	require.Equal(t, 1, first.Flips)
	require.True(t, math.IsInf(first.WidestFlip, 1), "h is o: every margin is sure")
	o = []float32{1, 0}
	require.Equal(t, 0, judge(t, rules, 1, o, o, []float32{1, 1}).Flips)
}

func TestBadKernelLogitsFail(t *testing.T) {
	o := []float32{0, 1, 2}
	loose := small()
	loose.MeanSlack, loose.P99Slack = math.Inf(1), math.Inf(1) // not even this lets them through
	for _, k := range [][]float32{{0, nan, 2}, {nan, nan, nan}, {0, 1, inf}, {-inf, -inf, -inf}, {0, -inf, 2}} {
		r := judge(t, loose, 2, o, o, k)
		require.False(t, r.Passed, "%v", k)
		require.Contains(t, r.Reasons[0],
			"2 positions with NaN, +inf or wrongly excluded logits, first sequence 0 position 0")
	}
}

func TestOneBadPositionAmongManyFails(t *testing.T) {
	g := New(DefaultRules())
	row := []float32{0, 1}
	for i := range 4096 {
		k := row
		if i == 4000 {
			k = []float32{nan, 1}
		}
		add(t, g, i%2, i/2, row, row, k)
	}
	r := g.Result()
	require.False(t, r.Passed)
	require.Contains(t, r.Reasons[0], "sequence 0 position 2000")
}

func TestReferenceThatCannotJudgeIsAnError(t *testing.T) {
	ok := []float32{0, 1}
	for name, c := range map[string][3][]float32{
		"NaN in o": {{nan, 1}, ok, ok}, "NaN in h": {ok, {0, nan}, ok}, "+inf in o": {{inf, 0}, ok, ok},
		"o all -inf": {{-inf, -inf}, ok, ok}, "length of h": {ok, {1}, ok}, "length of k": {ok, ok, {1, 2, 3}}, "empty": {},
	} {
		g := New(small())
		require.ErrorContains(t, g.Add(3, 7, c[0], c[1], c[2], 0), "sequence 3 position 7: gate: ", name)
		require.Zero(t, g.Result().Positions)
	}
	for _, own := range []float64{math.NaN(), math.Inf(1), -1e-9} {
		require.ErrorContains(t, New(small()).Add(3, 7, ok, ok, ok, own), "sequence 3 position 7: gate: KL(o‖s) is ")
	}
}

func TestExcludedTokensInAllThree(t *testing.T) {
	o, h := []float32{-inf, 0, 1}, []float32{-inf, 0, 1.1}
	r := judge(t, small(), 1, o, h, o)
	require.True(t, r.Passed, r.Reasons)
	require.Equal(t, 1, r.Sure, "rms is over finite differences")
	// h alone excludes a token: no verdict is possible.
	r = judge(t, small(), 1, []float32{0, 1}, []float32{-inf, 1}, []float32{0, 1})
	require.False(t, r.Passed)
	require.Contains(t, r.Reasons[0], "mean KL(o‖h) is infinite")
}

func TestTooLittleEvidenceFails(t *testing.T) {
	row := []float32{0, 1}
	r := judge(t, DefaultRules(), 2047, row, row, row)
	require.Equal(t, []string{"2047 positions, want at least 2048", "1 sequences, want at least 2"}, r.Reasons)
	none := New(small()).Result()
	require.False(t, none.Passed)
	require.True(t, math.IsNaN(none.KLOurs))
}

func TestAFaultIsJudgedUntilItShows(t *testing.T) {
	r, shown := New(DefaultRules()).shows()
	require.False(t, shown, "%v", r.Reasons)
	g := New(DefaultRules())
	sound := Position{KLReference: 1e-4, KLOwn: 1e-5, KLOurs: 1e-5}
	g.Put(0, 0, sound)
	r, shown = g.shows()
	require.False(t, shown, "too few positions are no fault: %v", r.Reasons)
	g.Put(0, 1, Position{KLReference: 1e-4, KLOwn: 1e-5, KLOurs: 1})
	r, shown = g.shows()
	require.True(t, shown)
	require.False(t, NewRecord(g.Result(), []int{2}, []string{"f"}, map[string]Result{"f": r}).Passed,
		"a kernel of two positions is not")
	require.Equal(t, []string{"f"}, NewRecord(Result{Positions: 2048, Passed: true}, []int{2048}, []string{"f"},
		map[string]Result{"f": r}).FaultsCaught)
	require.Contains(t, NewRecord(Result{Positions: 2048, Passed: true}, []int{2048}, []string{"f"},
		map[string]Result{"f": g.Result()}).Reasons[0], "judged on 2 positions")
}

func TestRecordNeedsEveryFaultCaught(t *testing.T) {
	pass, fail := Result{Positions: 9, Passed: true}, Result{Positions: 9}
	all, names := map[string]Result{}, Faults()
	for _, f := range names {
		all[f] = fail
	}
	r := NewRecord(pass, []int{9}, names, all)
	require.True(t, r.Passed)
	require.Equal(t, Faults(), r.FaultsCaught)

	all[PagesSwapped] = pass
	all["another"] = fail
	names = append(names, "another")
	r = NewRecord(pass, []int{9}, names, all)
	require.False(t, r.Passed)
	require.Equal(t, []string{PagesSwapped}, r.FaultsMissed)
	require.Contains(t, r.FaultsCaught, "another")

	delete(all, PagesSwapped)
	require.Equal(t, []string{"fault pages_swapped was not planted"}, NewRecord(pass, []int{9}, names, all).Reasons)
	all[PagesSwapped] = Result{Positions: 8}
	require.Contains(t, NewRecord(pass, []int{9}, names, all).Reasons[0], "judged on 8 positions, want the kernel's 9")
	all[PagesSwapped] = Result{Positions: 2048}
	require.True(t, NewRecord(pass, []int{9}, names, all).Passed)
	all[PagesSwapped] = fail
	require.False(t, NewRecord(fail, []int{9}, names, all).Passed)
}

func TestRecordAsJSON(t *testing.T) {
	at := 7
	r := NewRecord(Result{WorstPosition: Worst{Position: &at, Limit: 2}, KLReference: 2.5e-7, KLOurs: math.Inf(1),
		P99Ours: math.NaN(), Positions: 1, Flips: 2}, []int{3, 4}, Faults(), nil)
	data, err := json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(data),
		`{"rules":3,"kl_reference":2.5e-07,"kl_ours":"+Inf","p99_reference":0,"p99_ours":"NaN","positions":1,`+
			`"sequences":0,"lengths":[3,4],"worst_position":{"sequence":0,"position":7,"kl_reference":0,"kl_own":0,"kl_ours":0,"limit":2},"sure":0,"flips":2,"faults_caught":[],"passed":false,"reasons":[`)
	var back Record
	require.NoError(t, json.Unmarshal(data, &back))
	again, err := json.Marshal(back)
	require.NoError(t, err)
	require.Equal(t, string(data), string(again))
	require.Error(t, json.Unmarshal([]byte(`{"kl_ours":"much"}`), &back))
}
