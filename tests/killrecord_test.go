package tests

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/stretchr/testify/require"
)

// killRecord is bench/results/executor/…-killrate-….json: what was run of a family of kernels, and what that says of
// each.
type killRecord struct {
	What          string        `json:"what"`
	Host          host          `json:"host"`
	Seconds       float64       `json:"seconds"`
	Subjects      []string      `json:"subjects"`  // small kernels that a mutant of each kind was tried on
	Schedules     int           `json:"schedules"` // at most, on a subject
	Kinds         int           `json:"kinds"`
	Reported      int           `json:"reported"`
	Excused       int           `json:"excused"`
	NotRun        int           `json:"not_run"` // kinds that the run had not come to
	Runs          int           `json:"runs"`
	PairSeed      uint64        `json:"pair_seed"`
	Pairs         int           `json:"pairs"`
	PairReported  int           `json:"pairs_reported"`
	PairExcused   int           `json:"pairs_excused"`
	Kernels       []killKernel  `json:"kernels"`
	Excuses       []killExcused `json:"excuses"`
	Survivors     []string      `json:"survivors"`      // kinds that nothing reports and no excuse names
	PairSurvivors []string      `json:"pair_survivors"` // pairs that nothing reports and that no two excuses cover
	PairFinds     []string      `json:"pair_finds"`     // pairs that are reported although both are excused alone
}

// killKernel is a kernel that ships: how many of its mutants are of kinds that are reported, how many of kinds that are
// excused, and which of the pairs it has.
type killKernel struct {
	Kernel       string `json:"kernel"`
	Mutants      int    `json:"mutants"`
	Kinds        int    `json:"kinds"`
	Reported     int    `json:"reported"`
	Excused      int    `json:"excused"`
	NotRun       int    `json:"not_run"`
	Survivors    int    `json:"survivors"`
	Pairs        int    `json:"pairs"`
	PairReported int    `json:"pairs_reported"`
	PairExcused  int    `json:"pairs_excused"`
}

// killExcused is an excuse and the kinds of mutants that have it.
type killExcused struct {
	Rule  mutate.Rule `json:"rule"`
	Why   string      `json:"why"`
	Kinds []string    `json:"kinds"`
}

func newKillRecord(r *killRun, kernels []shippedKernel, found []pair, took time.Duration) *killRecord {
	rec := &killRecord{What: "mutants of the kernels of llama3-8b, " + string(r.family) +
		": a mutant of each kind on small kernels on the executor, and pairs of them",
		Host: thisHost(), Seconds: took.Round(time.Second).Seconds(), Schedules: killSeeds, PairSeed: pairSeed,
		Kinds: len(r.verdicts), Pairs: len(found), Survivors: []string{}, PairSurvivors: []string{}, PairFinds: []string{}}
	for _, s := range r.small {
		rec.Subjects = append(rec.Subjects, s.name)
	}
	rec.countKinds(r)
	rec.countPairs(r, found)
	for _, k := range kernels {
		if k.family == r.family {
			rec.kernel(r, k, found)
		}
	}
	return rec
}

func (rec *killRecord) countKinds(r *killRun) {
	why := map[*mutate.Excuse][]string{}
	for k, v := range r.verdicts {
		rec.Runs += v.runs
		switch {
		case v.runs == 0:
			rec.NotRun++
		case v.report != "":
			rec.Reported++
		case v.excuse != nil:
			rec.Excused++
			why[v.excuse] = append(why[v.excuse], k.name+" ("+k.key.String()+")")
		default:
			rec.Survivors = append(rec.Survivors, k.String())
		}
	}
	slices.Sort(rec.Survivors)
	for i := range r.excuses {
		x := &r.excuses[i]
		if kinds := why[x]; kinds != nil {
			slices.Sort(kinds)
			rec.Excuses = append(rec.Excuses, killExcused{x.Rule, x.Why, kinds})
		}
	}
}

func (rec *killRecord) countPairs(r *killRun, found []pair) {
	for _, p := range found {
		rec.Runs += p.runs
		text := r.small[p.on].name + ": " + p.a.String() + " and " + p.b.String()
		switch excused := r.excused(p); {
		case p.report != "":
			if rec.PairReported++; excused {
				rec.PairFinds = append(rec.PairFinds, text+": "+p.report)
			}
		case excused:
			rec.PairExcused++
		default:
			rec.PairSurvivors = append(rec.PairSurvivors, text)
		}
	}
}

// kernel counts those of a kernel that ships.
func (rec *killRecord) kernel(r *killRun, k shippedKernel, found []pair) {
	has := k.kinds
	out := killKernel{Kernel: k.name, Kinds: len(has)}
	for x, n := range has {
		out.Mutants += n
		switch v := r.verdicts[x]; {
		case v.runs == 0:
			out.NotRun += n
		case v.report != "":
			out.Reported += n
		case v.excuse != nil:
			out.Excused += n
		default:
			out.Survivors += n
		}
	}
	for _, p := range found {
		if min(has[p.a], has[p.b]) == 0 {
			continue
		}
		if out.Pairs++; p.report != "" {
			out.PairReported++
		} else if r.excused(p) {
			out.PairExcused++
		}
	}
	rec.Kernels = append(rec.Kernels, out)
}

// A report on one subject is enough, a pair is of two kinds on one subject, and each kernel has the verdicts of its
// kinds.
func TestARecordOfKillsSaysWhatBecameOfKindsAndPairs(t *testing.T) {
	at := func(line string) ir.Stmt { return &ir.Instr{Op: ir.OpBarCTA, Pos: ir.Pos{Line: line}} }
	load := &ir.Instr{Op: ir.OpLd, Mem: []ir.Addr{{Buf: &ir.Buf{Name: "x", Elem: ir.U32, Len: 1}}}}
	k := &ir.Kernel{Name: "k", Warps: 1, Body: &ir.Block{Stmts: []ir.Stmt{at("first"), load, at("last")}}}
	has := func(k *ir.Kernel) (lines string) {
		for _, s := range k.Body.Stmts {
			lines += s.Position().Line + " "
		}
		return strings.Join(strings.Fields(lines), " ")
	}
	small := func(name string, faulty ...string) killSubject {
		return killSubject{name, oneRow, func(*testing.T) *ir.Kernel { return k }, func(*testing.T) *subject {
			return &subject{seeds: 8, ir: k, run: func(_ context.Context, k *ir.Kernel, _ uint64) (string, string, error) {
				if slices.Contains(faulty, has(k)) {
					return "data race", "", nil
				}
				return "", "", nil
			}}
		}}
	}
	r := &killRun{family: oneRow, verdicts: map[kind]*verdict{},
		small: []killSubject{small("blind", ""), small("seeing", "last")},
		excuses: mutate.Excuses{{Op: "bar.cta", Classes: mutate.Gone, Front: "ld @x", Why: "nobody needs it",
			Rule: mutate.Causality}}}
	kernel := shippedKernel{"kernel", oneRow, kindsOf(oneRow, k)}
	for x := range kernel.kinds {
		r.verdicts[x] = &verdict{}
	}
	require.Equal(t, 4, newKillRecord(r, []shippedKernel{kernel}, nil, 0).Kernels[0].NotRun)
	r.kinds(t, func() {})
	rec := newKillRecord(r, []shippedKernel{kernel}, r.pairs(t, 30), 0)
	require.Equal(t, []int{4, 1, 2}, []int{rec.Kinds, rec.Reported, rec.Excused},
		"removed first; the last removed or earlier")
	require.Len(t, rec.Survivors, 1)
	require.Contains(t, rec.Survivors[0], "later bar.cta")
	require.Equal(t, []killKernel{{Kernel: "kernel", Mutants: 4, Kinds: 4, Reported: 1, Excused: 2, Survivors: 1,
		Pairs: rec.Pairs, PairReported: rec.PairReported, PairExcused: rec.PairExcused}}, rec.Kernels)
	require.Equal(t, rec.Pairs, rec.PairReported+rec.PairExcused+len(rec.PairSurvivors))
	require.Positive(t, rec.PairReported, "without both the blind subject sees it, too")
	require.Positive(t, len(rec.PairSurvivors))
}
