package tests

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/stretchr/testify/require"
)

var (
	killrate = flag.Bool("killrate", false, "run a mutant of each kind that ships, and pairs; -record writes records")
	pairs    = flag.Int("pairs", 120, "with -killrate, how many pairs of mutants to draw in each family of kernels")
)

const (
	killSeeds = 4  // schedules that a mutant is run under on a subject, and a pair
	pairSeed  = 26 // of the draw of pairs
)

// familyExcuses is why mutants of a family's kernels may go unreported.
func familyExcuses(f family) mutate.Excuses {
	switch f {
	case oneRow:
		return slices.Concat(singleExcuses, drawExcuses)
	case manyRows:
		return slices.Concat(ringExcuses, raggedExcuses)
	case manyPrompts:
		return slices.Concat(prefillExcuses, severalExcuses)
	}
	return prefillExcuses
}

// verdict is what became of a kind of mutants, or of two.
type verdict struct {
	report string         // empty for one that survives
	runs   int            // under how many schedules it was run, on all subjects
	first  int            // the number of the subject that it was run on first,
	on     int            // and last
	excuse *mutate.Excuse // nil for none
}

// killRun is the mutants of a family.
type killRun struct {
	family   family
	excuses  mutate.Excuses
	small    []killSubject
	open     map[int]*subject
	verdicts map[kind]*verdict // of all kinds that ship
	firsts   []map[kind]mutate.Mutation
}

// subject opens a subject once, and lists its first mutant of each kind.
func (r *killRun) subject(t *testing.T, i int) (*subject, map[kind]mutate.Mutation) {
	t.Helper()
	if r.open[i] == nil {
		s := r.small[i].open(t)
		s.seeds = min(s.seeds, killSeeds)
		r.open[i], r.firsts[i] = s, map[kind]mutate.Mutation{}
		for _, m := range mutate.Kinds(mutate.List(s.ir)) {
			r.firsts[i][kind{r.family, m.Name, m.Key}] = m
		}
	}
	return r.open[i], r.firsts[i]
}

// kinds tries each kind on the first subject that has it, then those that are neither reported nor excused on the
// others, and tells of each subject when it is through.
func (r *killRun) kinds(t *testing.T, through func()) {
	t.Helper()
	for _, again := range []bool{false, true} {
		for i, small := range r.small {
			if !again && !r.hasNew(t, small) {
				continue
			}
			s, _ := r.subject(t, i)
			var ms []mutant
			var of []*verdict
			for _, m := range mutate.Kinds(mutate.List(s.ir)) {
				v := r.verdicts[kind{r.family, m.Name, m.Key}]
				if v == nil || v.report != "" || (v.runs > 0) != again || again && (v.excuse != nil || v.first == i) {
					continue
				}
				if !again {
					v.first = i
				}
				v.excuse = r.excuses.Of(m)
				ms, of = append(ms, mutant{Mutation: m}), append(of, v)
			}
			start := time.Now()
			for j, o := range s.tryAll(t, ms, r.excuses) {
				of[j].report, of[j].on = o.Report, i
				of[j].runs += o.Runs
			}
			t.Logf("%s: %d kinds of mutants in %.0f s", small.name, len(ms), time.Since(start).Seconds())
			through()
		}
	}
}

// hasNew reports whether a subject has a kind that has not been run.
func (r *killRun) hasNew(t *testing.T, s killSubject) bool {
	t.Helper()
	if s.kernel == nil {
		return false
	}
	for k := range kindsOf(r.family, s.kernel(t)) {
		if v := r.verdicts[k]; v != nil && v.runs == 0 {
			return true
		}
	}
	return false
}

// pair is two mutants that are made at once.
type pair struct {
	a, b kind
	verdict
}

// pairs draws pairs of kinds, one half among all, one among those that are excused, and runs them. If one of a pair is
// reported alone, the pair runs on the subject that reports it, or not at all. A pair that a schedule of the first
// subject does not show runs on all that have both kinds, but for two that are excused.
func (r *killRun) pairs(t *testing.T, n int) (all []pair) {
	t.Helper()
	rng := rand.New(rand.NewPCG(pairSeed, 0))
	var kinds, excused []kind
	for i, small := range r.small {
		if small.kernel == nil {
			continue
		}
		for _, m := range mutate.Kinds(mutate.List(small.kernel(t))) {
			k := kind{r.family, m.Name, m.Key}
			v := r.verdicts[k]
			if v == nil || v.runs == 0 || v.on != i {
				continue
			}
			if kinds = append(kinds, k); v.report == "" && v.excuse != nil {
				excused = append(excused, k)
			}
		}
	}
	for tries := 0; len(all) < n && tries < 100*n; tries++ {
		from := kinds
		if tries%2 == 1 && len(excused) > 1 {
			from = excused
		}
		p := pair{a: from[rng.IntN(len(from))], b: from[rng.IntN(len(from))]}
		va, vb := r.verdicts[p.a], r.verdicts[p.b]
		if vb.report == "" && va.report != "" || va.on < vb.on && (va.report == "") == (vb.report == "") {
			p.a, p.b, va, vb = p.b, p.a, vb, va
		}
		made, on := false, []int{vb.on}
		if vb.report == "" {
			on = append(on, r.others(vb.on)...)
		}
		for _, i := range on {
			if p.report != "" || made && r.excused(p) {
				break
			}
			s, firsts := r.subject(t, i)
			if firsts[p.a].Name == "" || firsts[p.b].Name == "" {
				continue
			}
			k, err := mutate.Apply(s.ir, firsts[p.a], firsts[p.b])
			if err != nil {
				continue
			}
			made, p.on = true, i
			for seed := uint64(1); seed <= s.seeds && p.report == ""; seed++ {
				p.runs++
				if p.report, _, err = s.run(t.Context(), k, seed); err != nil {
					require.NoError(t, err, "%s and %s", p.a, p.b)
				}
			}
		}
		if made {
			all = append(all, p)
		}
	}
	return all
}

func (r *killRun) others(than int) (all []int) {
	for i := range r.small {
		if i != than {
			all = append(all, i)
		}
	}
	return all
}

// excused reports whether nothing need report the pair: rules excuse both, and neither is reported alone.
func (r *killRun) excused(p pair) bool {
	a, b := r.verdicts[p.a], r.verdicts[p.b]
	return a.report+b.report == "" && a.excuse != nil && b.excuse != nil
}

// A mutant of each kind that the kernels of llama3-8b have, and pairs of them, are reported, or excuses that cite rules
// of PTX are theirs.
func TestKillRateOfWhatShips(t *testing.T) {
	deep.Only(t)
	if !*killrate {
		t.Skip("-killrate runs it")
	}
	for _, f := range killFamilies {
		t.Run(string(f), func(t *testing.T) {
			kernels := shippedKernels(t, f)
			start, r := time.Now(), newKillRun(t, f, kernels)
			note := func(found []pair) *killRecord {
				rec := newKillRecord(r, kernels, found, time.Since(start))
				if *record != "" {
					writeRecord(t, strings.ReplaceAll(string(f), " ", "-"), rec)
				}
				return rec
			}
			r.kinds(t, func() { note(nil) })
			rec := note(r.pairs(t, *pairs))
			require.Zero(t, rec.NotRun, "kinds that no subject has")
			require.Empty(t, rec.Survivors, strings.Join(rec.Survivors, "\n"))
			require.Empty(t, rec.PairSurvivors, strings.Join(rec.PairSurvivors, "\n"))
		})
	}
}

// newKillRun is of a family's kernels and subjects.
func newKillRun(t *testing.T, f family, kernels []shippedKernel) *killRun {
	t.Helper()
	r := &killRun{family: f, excuses: familyExcuses(f), open: map[int]*subject{}, verdicts: map[kind]*verdict{}}
	for _, s := range killSubjects(t) {
		if s.family == f {
			r.small = append(r.small, s)
		}
	}
	r.firsts = make([]map[kind]mutate.Mutation, len(r.small))
	for _, k := range kernels {
		if k.family != f {
			continue
		}
		for x := range k.kinds {
			r.verdicts[x] = &verdict{}
		}
	}
	return r
}
