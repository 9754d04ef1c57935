package gate

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// sound returns positions of a sound kernel: KL(o‖s) and KL(o‖k) are two draws at each position, of errors in
// dimensions directions, times how much the position makes of them; h's errors are greater.
func sound(seed uint64, n, dimensions int) []Position {
	random := rand.New(rand.NewPCG(seed, 1))
	draw := func(scale float64) (kl float64) {
		for range dimensions {
			x := random.NormFloat64()
			kl += scale * x * x / float64(dimensions)
		}
		return kl
	}
	out := make([]Position, n)
	for i := range out {
		scale := 1e-3 * math.Exp(0.7*random.NormFloat64())
		out[i] = Position{KLOwn: draw(scale), KLOurs: draw(scale), KLReference: draw(2.5 * scale), Margin: 1}
	}
	return out
}

// judged puts positions of sequences of these lengths into a gate.
func judged(positions []Position, lengths ...int) Result {
	g := New(small())
	for q, n := range lengths {
		for p := range n {
			g.Put(q, p, positions[0])
			positions = positions[1:]
		}
	}
	return g.Result()
}

func TestASoundKernelIsWithinAllLimits(t *testing.T) {
	lengths := []int{1, 2, 3, 10, 32, 500, 500, 1000}
	for seed := range uint64(20) {
		for _, dimensions := range []int{3, 10} {
			r := judged(sound(seed, 2048, dimensions), lengths...)
			require.True(t, r.Passed, "%d directions, seed %d: %v", dimensions, seed, r.Reasons)
			require.NotEqual(t, Worst{}, r.WorstSequence)
			require.NotNil(t, r.WorstPosition.Position)
		}
	}
}

// A kernel whose roundings are as large as h's flips tokens whose margins are three times rms(h-o) and more: of 2048
// positions some. It flips none that o is sure of. One whose logits are off by three times as much does.
func TestASoundKernelOfLargeRoundingsFlipsNoSureToken(t *testing.T) {
	const rms = 0.1
	wide := 0
	run := func(seed uint64, size float64) Result {
		random, g := rand.New(rand.NewPCG(seed, 2)), New(small())
		for i, p := range sound(seed, 2048, 10) {
			p.KLReference = p.KLOwn
			p.Margin, p.RMS = -rms*4*math.Log(random.Float64()), rms
			if size*rms*(random.NormFloat64()-random.NormFloat64()) > p.Margin {
				p.Got = 1
				if size == 1 && p.Margin > 3*rms {
					wide++
				}
			}
			g.Put(i/256, i%256, p)
		}
		return g.Result()
	}
	for seed := range uint64(20) {
		r := run(seed, 1)
		require.Zero(t, r.Flips, r.Reasons)
		require.Greater(t, r.Sure, 300)
		require.Positive(t, run(seed, 3).Flips)
	}
	require.Greater(t, wide, 20, "a sound kernel's, beyond three times rms(h-o)")
}

// The bound by the kernel's own roundings holds where h leaves room for 2.5 times as much.
func TestTheKernelsOwnRoundingsBoundTheMean(t *testing.T) {
	scaled := func(by float64) Result {
		positions := sound(1, 2048, 10)
		for i := range positions {
			positions[i].KLOurs = positions[i].KLOwn * by
		}
		return judged(positions, 1024, 1024)
	}
	require.True(t, scaled(1.49).Passed)
	bad := scaled(1.52)
	require.Len(t, bad.Reasons, 1, "a bound of the whole alone: %v", bad.Reasons)
	require.Contains(t, bad.Reasons[0], "the kernel's own roundings cost ")
	require.Less(t, bad.KLOurs, bad.KLReference)
}

// A sequence that is three times as far as its roundings make it is seen among many that are not.
func TestOneBadSequenceAmongGoodOnesFails(t *testing.T) {
	positions := sound(2, 2048, 10)
	for i := range 256 {
		positions[i].KLOurs *= 3
	}
	r := judged(positions, 256, 896, 896)
	require.Less(t, r.KLOurs, 1.5*r.KLOwn, "the mean hides it")
	require.Len(t, r.Reasons, 1, r.Reasons)
	require.Regexp(t, `^sequence 0: mean KL\(o‖k\) of its 256 positions is `, r.Reasons[0])
	require.Equal(t, 0, r.WorstSequence.Sequence)
	require.Nil(t, r.WorstSequence.Position)
	require.Greater(t, r.WorstSequence.KLOurs, r.WorstSequence.Limit)
}

// The mean of a few positions says no more than they do: the limit of a position holds for them alone.
func TestASequenceOfFewPositionsIsJudgedByThemAlone(t *testing.T) {
	positions := sound(8, 2048, 10)
	for i := range 8 {
		positions[i].KLOwn, positions[i].KLOurs = 0, 0.012
	}
	require.True(t, judged(positions, 7, 1, 2040).Passed)
	r := judged(positions, 8, 2040)
	require.Len(t, r.Reasons, 1, r.Reasons)
	require.Regexp(t, `^sequence 0: mean KL\(o‖k\) of its 8 positions is 0.012, want at most 0.0`, r.Reasons[0])
}

// A sequence may not be worse than h's either, where s has more room: a reference whose s and h do not fit together.
func TestASequenceIsBoundByTheFrameworkToo(t *testing.T) {
	positions := sound(3, 2048, 10)
	for i := range 512 {
		positions[i].KLOurs, positions[i].KLReference = 1.4*positions[i].KLOwn, positions[i].KLOwn/2
	}
	r := judged(positions, 512, 1536)
	require.Regexp(t, `^sequence 0: mean KL`, r.Reasons[0])
}

// One position gone wrong is in no mean and no percentile of thousands.
func TestOneBadPositionFails(t *testing.T) {
	positions := sound(4, 2048, 10)
	positions[1500].KLOurs = 0.2
	r := judged(positions, 512, 1536)
	require.Less(t, r.KLOurs, 1.5*r.KLOwn)
	require.Len(t, r.Reasons, 1, r.Reasons)
	require.Contains(t, r.Reasons[0],
		"1 positions with KL(o‖k) beyond their limits, the worst sequence 1 position 988: 0.2, want at most 0.")
	require.Equal(t, 988, *r.WorstPosition.Position)
	require.Equal(t, Number(0.2), r.WorstPosition.KLOurs)
}

// Where the roundings cost much at a position by s or by h, the kernel may cost as much.
func TestAPositionsLimitGrowsWithWhatRoundingsCostThere(t *testing.T) {
	rules, of := DefaultRules(), &Result{KLOwn: 1e-3, KLReference: 4e-3}
	at := func(own, ref float64) float64 {
		return float64(rules.position(of, place{KLs: KLs{Own: own, Reference: ref}}).Limit)
	}
	require.InEpsilon(t, 16e-3, at(0, 0), 1e-3)
	require.InEpsilon(t, 32e-3, at(1e-3, 0), 1e-3)
	require.InEpsilon(t, 32e-3, at(0, 4e-3), 1e-3)
	of.KLReference = 0
	require.InEpsilon(t, 16e-3, at(0, 4e-3), 1e-3)
}

func TestInfinitiesAreBeyondEveryLimit(t *testing.T) {
	positions := sound(5, 2048, 10)
	positions[7].KLOurs = math.Inf(1)
	r := judged(positions, 1024, 1024)
	require.Contains(t, r.Reasons, "1 positions with NaN, +inf or wrongly excluded logits, first sequence 0 position 7")
	require.Equal(t, 7, *r.WorstPosition.Position)
	require.True(t, math.IsInf(Worst{KLOurs: Number(math.NaN()), Limit: 1}.beyond(), 1))
}

func TestOfManyBadSequencesThreeAreNamed(t *testing.T) {
	positions := sound(6, 2048, 10)
	for i := range 2000 {
		positions[i].KLOurs *= 4
	}
	r := judged(positions, 400, 400, 400, 400, 400, 48)
	require.Contains(t, r.Reasons, "5 sequences beyond their limits")
	require.Len(t, r.Reasons, 7, r.Reasons) // both means, the percentile, three sequences, how many
}

func TestARecordByTodaysRulesSaysWhatItWasJudgedOn(t *testing.T) {
	caught := map[string]Result{}
	for _, f := range Faults() {
		caught[f] = Result{Positions: 2048}
	}
	good := func() Record {
		return NewRecord(judged(sound(7, 2048, 10), 1024, 1024), []int{1024, 1024}, Faults(), caught)
	}
	r := good()
	require.True(t, r.Passed, r.Reasons)
	require.Empty(t, r.Problems())
	for want, spoil := range map[string]func(*Record){
		"the gate did not catch pages_swapped": func(r *Record) {
			r.FaultsCaught = Faults()[:4]
		},
		"the gate's rules are of version 4, want 2 or 3": func(r *Record) { r.Rules = 4 },
		"the gate has sequences of [1024] tokens for 2 sequences and 2048 positions": func(r *Record) {
			r.Lengths = r.Lengths[:1]
		},
		"the gate has sequences of [1024 1000] tokens for 2 sequences and 2048 positions": func(r *Record) {
			r.Lengths = []int{1024, 1000}
		},
		"the gate's mean KL is 1, want at most 1e-07 by that of the kernel's own roundings": func(r *Record) {
			r.KLOurs,
				r.KLOwn = 1, 0
		},
		"the gate's worst sequence has a KL of 0, its limit is 0": func(r *Record) { r.WorstSeq = Worst{} },
		"the gate's worst position has a KL of 2, its limit is 1": func(r *Record) {
			r.WorstPos.KLOurs, r.WorstPos.Limit = 2,
				1
		},
		"the gate's worst position has no number": func(r *Record) { r.WorstPos.Position = nil },
	} {
		r := good()
		spoil(&r)
		require.Equal(t, []string{want}, r.Problems())
	}
	require.Empty(t, (&Record{FaultsCaught: Faults(), Passed: true}).Problems(), "a record by the older rules")
}
