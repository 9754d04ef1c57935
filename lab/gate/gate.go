// Package gate decides whether a kernel's logits are as good as they can be: k (the kernel) may be hardly further from
// o (the reference in float32) than s (the reference with the kernel's own roundings) is, no further than h (the
// reference in bf16), and may not flip a token that o is sure of. All four come from the same tokens, teacher-forced.
package gate

import (
	"fmt"
	"math"
	"sort"
)

// Rules are the thresholds. KL is in nats.
type Rules struct {
	// MeanFactor and MeanSlack bound the mean: KL(o‖k) <= MeanFactor*KL(o‖h) + MeanSlack.
	MeanFactor, MeanSlack float64
	// P99Factor and P99Slack bound the 99th percentiles likewise.
	P99Factor, P99Slack float64
	// OwnFactor and OwnSlack bound the mean by what the kernel's own roundings cost: KL(o‖k) <= OwnFactor*KL(o‖s) +
	// OwnSlack.
	OwnFactor, OwnSlack float64
	// Deviations is how many standard errors the mean of one sequence may lie beyond the two bounds of the mean; of a
	// sequence with fewer than SequencePositions positions each is judged, and their mean is not.
	Deviations        float64
	SequencePositions int
	// PositionFactor bounds KL(o‖k) at each position; see limits.
	PositionFactor float64
	// MarginFactor and OwnMarginFactor say when o is sure: its top-2 margin exceeds MarginFactor * rms(h-o) at the
	// position, and OwnMarginFactor times what the kernel's own roundings move a logit there; see flips.
	MarginFactor, OwnMarginFactor float64
	// MinPositions and MinSequences are the least evidence accepted.
	MinPositions, MinSequences int
}

// RulesVersion is that of DefaultRules, which records carry. Records without one were judged without the bounds by s,
// those of version 2 without OwnMarginFactor.
const RulesVersion = 3

// DefaultRules are the project's; docs/benchmarking.md says why each figure is what it is.
func DefaultRules() Rules {
	return Rules{MeanFactor: 1.1, MeanSlack: 1e-6, P99Factor: 1.25, P99Slack: 1e-5, OwnFactor: 1.5, OwnSlack: 1e-7,
		Deviations: 4, SequencePositions: 8, PositionFactor: 16, MarginFactor: 3, OwnMarginFactor: 6,
		MinPositions: 2048, MinSequences: 2}
}

// Position is what is measured at one position.
type Position struct {
	KLReference, KLOurs float64 // KL(o‖h), KL(o‖k); +inf where k is no distribution or excludes what o allows
	KLOwn               float64 // KL(o‖s)
	Margin              float64 // o's greatest minus its second greatest logit
	RMS                 float64 // of h - o
	Want, Got           int     // top token of o, of k
}

// Measure compares one position's rows of logits; own is KL(o‖s) there. Only a reference that cannot judge is an error:
// rows of different or zero length, NaN or +inf in o or h, no finite value in o or h, own not finite or below 0. A
// fault in k is no error: NaN or +inf in k, no finite value in k, or -inf in k where o is finite make KLOurs infinite.
// An entry of -inf in o has probability 0 and is no part of the margin.
func Measure(o, h, k []float32, own float64) (Position, error) {
	if len(o) == 0 || len(h) != len(o) || len(k) != len(o) {
		return Position{}, fmt.Errorf("gate: o, h and k have %d, %d and %d logits, want the same number, not 0", len(o),
			len(h), len(k))
	}
	oSum, hSum, kSum := logSumExp(o), logSumExp(h), logSumExp(k)
	if !finite(oSum) || !finite(hSum) {
		return Position{}, fmt.Errorf("gate: log-sum-exp of o is %v, of h %v, want both finite", oSum, hSum)
	}
	if !finite(own) || own < 0 {
		return Position{}, fmt.Errorf("gate: KL(o‖s) is %v, want a finite number from 0 on", own)
	}
	want, second := topTwo(o)
	got, _ := topTwo(k)
	p := Position{divergence(o, oSum, h, hSum), math.Inf(1), own, margin(o, want, second), rmsDifference(o, h), want, got}
	if finite(kSum) {
		p.KLOurs = divergence(o, oSum, k, kSum)
	}
	return p, nil
}

// Gate collects positions. Make it with New. Not safe for concurrent use; Measure is, and takes nearly all of the time.
type Gate struct {
	rules     Rules
	places    []place // every position
	badLogits int
	firstBad  string
}

// New returns an empty gate.
func New(r Rules) *Gate { return &Gate{rules: r} }

// Add measures one position of one sequence and puts it in; Measure says what is an error, and the position then does
// not count.
func (g *Gate) Add(sequence, position int, o, h, k []float32, own float64) error {
	p, err := Measure(o, h, k, own)
	if err != nil {
		return fmt.Errorf("sequence %d position %d: %w", sequence, position, err)
	}
	g.Put(sequence, position, p)
	return nil
}

// Put counts a measured position.
func (g *Gate) Put(sequence, position int, p Position) {
	g.places = append(g.places, place{Sequence: sequence, Position: position,
		KLs: KLs{p.KLReference, p.KLOwn, p.KLOurs}, top: top{p.Margin, p.RMS, p.Want, p.Got}})
	if math.IsInf(p.KLOurs, 1) {
		if g.badLogits++; g.badLogits == 1 {
			g.firstBad = fmt.Sprintf("sequence %d position %d", sequence, position)
		}
	}
}

// Result is what a gate found. KL in nats.
type Result struct {
	KLReference, KLOurs   float64 // mean KL(o‖h), mean KL(o‖k)
	KLOwn                 float64 // mean KL(o‖s)
	P99Reference, P99Ours float64 // 99th percentiles, by nearest rank
	WorstSequence         Worst   // that whose KL(o‖k) is the greatest multiple of its limit
	WorstPosition         Worst   // likewise
	Positions, Sequences  int
	Sure, Flips           int     // positions where o is sure, and those of them where k's top token is another
	WidestFlip            float64 // o's greatest margin where k's top token is another, over what makes o sure there
	Passed                bool
	Reasons               []string // why not; empty when passed

	shown bool // a planted fault's: it failed on these positions, however many more there are
}

// Result judges everything added so far. Nothing added does not pass, and its figures are NaN.
func (g *Gate) Result() Result {
	all := kls(g.places)
	sequences := bySequence(g.places)
	r := Result{
		KLReference: mean(all.ref), KLOurs: mean(all.ours), KLOwn: mean(all.own), P99Reference: percentile99(all.ref),
		P99Ours:   percentile99(all.ours),
		Positions: len(g.places), Sequences: len(sequences),
	}
	fail := func(format string, args ...any) { r.Reasons = append(r.Reasons, fmt.Sprintf(format, args...)) }
	if r.Positions < g.rules.MinPositions {
		fail("%d positions, want at least %d", r.Positions, g.rules.MinPositions)
	}
	if r.Sequences < g.rules.MinSequences {
		fail("%d sequences, want at least %d", r.Sequences, g.rules.MinSequences)
	}
	if math.IsInf(r.KLReference, 0) {
		fail("mean KL(o‖h) is infinite: h excludes tokens that o allows, and cannot judge")
	}
	if g.badLogits > 0 {
		fail("%d positions with NaN, +inf or wrongly excluded logits, first %s", g.badLogits, g.firstBad)
	}
	if limit := g.rules.MeanFactor*r.KLReference + g.rules.MeanSlack; !(r.KLOurs <= limit) {
		fail("mean KL(o‖k) is %.4g, want at most %.4g", r.KLOurs, limit)
	}
	if limit := g.rules.OwnFactor*r.KLOwn + g.rules.OwnSlack; !(r.KLOurs <= limit) {
		fail("mean KL(o‖k) is %.4g, want at most %.4g: the kernel's own roundings cost %.4g", r.KLOurs, limit, r.KLOwn)
	}
	if limit := g.rules.P99Factor*r.P99Reference + g.rules.P99Slack; !(r.P99Ours <= limit) {
		fail("99th percentile of KL(o‖k) is %.4g, want at most %.4g", r.P99Ours, limit)
	}
	g.limits(&r, all, sequences, fail)
	g.flips(&r, fail)
	r.Passed = len(r.Reasons) == 0
	return r
}

// shows is the result of a run with a fault so far, and whether that is all it takes: it does not pass, for another
// reason than too few positions.
func (g *Gate) shows() (Result, bool) {
	part := *g
	part.rules.MinPositions, part.rules.MinSequences = 1, 1
	r := part.Result()
	r.shown = r.Positions > 0 && !r.Passed
	return r, r.shown
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// percentile99 is the smallest value that at least 99 % of the values do not exceed; NaN of none.
func percentile99(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	sorted := append([]float64(nil), v...)
	sort.Float64s(sorted)
	return sorted[(len(v)*99+99)/100-1]
}
