package gate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// The faults that a record must show the gate failing on. Two of them can be planted so that the mathematics stays
// right, and then no gate may fail: a rotation off by the same for the query and all keys (plant it in one of them),
// and whole pages swapped for keys and values alike (plant it in one of them, or swap with another sequence's page).
const (
	KVTokenDropped   = "kv_token_dropped"
	RopeOffByOne     = "rope_off_by_one"
	NormGainSkipped  = "norm_gain_skipped"
	MergeWeightWrong = "merge_weight_wrong"
	PagesSwapped     = "pages_swapped"
)

// Faults lists those that Record wants, in the order of their report.
func Faults() []string {
	return []string{KVTokenDropped, RopeOffByOne, NormGainSkipped, MergeWeightWrong, PagesSwapped}
}

// Record is the `gate` object of a benchmark record.
type Record struct {
	// RulesVersion, or 2; absent: before s, sequences and positions were looked at
	Rules        int      `json:"rules,omitempty"`
	KLReference  Number   `json:"kl_reference"`
	KLOwn        Number   `json:"kl_own,omitempty"` // of the kernel's own roundings
	KLOurs       Number   `json:"kl_ours"`
	P99Reference Number   `json:"p99_reference"`
	P99Ours      Number   `json:"p99_ours"`
	Positions    int      `json:"positions"`
	Sequences    int      `json:"sequences"`
	Lengths      []int    `json:"lengths,omitempty"` // of the sequences
	WorstSeq     Worst    `json:"worst_sequence,omitzero"`
	WorstPos     Worst    `json:"worst_position,omitzero"`
	Sure         int      `json:"sure"` // positions where a flip would have counted
	Flips        int      `json:"flips"`
	WidestFlip   Number   `json:"widest_flip,omitempty"` // see Result; absent: no flip at all, or rules before 3
	FaultsCaught []string `json:"faults_caught"`
	FaultsMissed []string `json:"faults_missed,omitempty"` // planted, and the gate passed
	FaultsAbsent []string `json:"faults_absent,omitempty"` // of Faults, what the kernel's attention has no place for
	Passed       bool     `json:"passed"`
	Reasons      []string `json:"reasons,omitempty"`
	Local        *Local   `json:"local,omitempty"` // absent: the reference has no rows of the cache
	// absent: not of prefill kernels, or a record up to 2026-11-30
	Launches *PrefillLaunches `json:"launches,omitempty"`
}

// NewRecord joins the verdict on the kernel with those on the same kernel with planted faults. It passes when the
// kernel does and every fault of names was planted and failed. lengths are those of the sequences.
func NewRecord(ours Result, lengths []int, names []string, faults map[string]Result) Record {
	r := Record{
		Rules: RulesVersion, KLOwn: Number(ours.KLOwn), Lengths: slices.Clone(lengths), WorstSeq: ours.WorstSequence,
		WorstPos:    ours.WorstPosition,
		KLReference: Number(ours.KLReference), KLOurs: Number(ours.KLOurs),
		P99Reference: Number(ours.P99Reference), P99Ours: Number(ours.P99Ours),
		Positions: ours.Positions, Sequences: ours.Sequences, Sure: ours.Sure, Flips: ours.Flips,
		WidestFlip:   Number(ours.WidestFlip),
		FaultsCaught: []string{}, Reasons: slices.Clone(ours.Reasons),
	}
	for _, name := range Faults() {
		if !slices.Contains(names, name) {
			r.FaultsAbsent = append(r.FaultsAbsent, name)
		}
	}
	for _, name := range names {
		f, planted := faults[name]
		switch {
		case !planted:
			r.Reasons = append(r.Reasons, fmt.Sprintf("fault %s was not planted", name))
		// too few would look like a fault caught
		case !f.shown && f.Positions != ours.Positions && f.Positions < DefaultRules().MinPositions:
			r.Reasons = append(r.Reasons, fmt.Sprintf("fault %s was judged on %d positions, want the kernel's %d or at least %d",
				name, f.Positions, ours.Positions, DefaultRules().MinPositions))
		case f.Passed:
			r.FaultsMissed = append(r.FaultsMissed, name)
			r.Reasons = append(r.Reasons, fmt.Sprintf("fault %s was not caught", name))
		default:
			r.FaultsCaught = append(r.FaultsCaught, name)
		}
	}
	r.Passed = ours.Passed && len(r.Reasons) == 0
	return r
}

// Problems says what is wrong with a record that passed: figures that its rules forbid, or that are missing. Of a
// record by older rules (Rules 0) only what they had is asked for.
func (r *Record) Problems() (all []string) {
	rule := func(ok bool, format string, args ...any) {
		if !ok {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	for _, fault := range Faults() {
		rule(slices.Contains(r.FaultsCaught, fault) || slices.Equal(r.FaultsAbsent, []string{MergeWeightWrong}) &&
			fault == MergeWeightWrong, "the gate did not catch %s", fault)
	}
	if r.Rules == 0 {
		return all
	}
	rules, sum := DefaultRules(), 0
	for _, n := range r.Lengths {
		sum += n
	}
	rule(r.Rules == 2 || r.Rules == RulesVersion, "the gate's rules are of version %d, want 2 or %d", r.Rules,
		RulesVersion)
	rule(len(r.Lengths) == r.Sequences && sum >= r.Positions,
		"the gate has sequences of %v tokens for %d sequences and %d positions", r.Lengths, r.Sequences, r.Positions)
	limit := rules.OwnFactor*float64(r.KLOwn) + rules.OwnSlack
	rule(float64(r.KLOurs) <= limit, "the gate's mean KL is %v, want at most %v by that of the kernel's own roundings",
		r.KLOurs, limit)
	for name, w := range map[string]Worst{"sequence": r.WorstSeq, "position": r.WorstPos} {
		rule(w.Limit > 0 && w.KLOurs <= w.Limit, "the gate's worst %s has a KL of %v, its limit is %v", name, w.KLOurs,
			w.Limit)
	}
	rule(r.WorstPos.Position != nil, "the gate's worst position has no number")
	return all
}

// Number is a float64 whose JSON form allows what JSON's numbers do not: "NaN", "+Inf" and "-Inf" as strings.
type Number float64

// MarshalJSON writes the shortest decimal that reads back the same.
func (n Number) MarshalJSON() ([]byte, error) {
	s := strconv.FormatFloat(float64(n), 'g', -1, 64)
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		s = `"` + s + `"`
	}
	return []byte(s), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *Number) UnmarshalJSON(data []byte) error {
	s := string(data)
	if u, err := strconv.Unquote(s); err == nil {
		s = u
	}
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return fmt.Errorf("gate: number is %s, want a decimal, \"NaN\", \"+Inf\" or \"-Inf\"", data)
	}
	*n = Number(x)
	return nil
}
