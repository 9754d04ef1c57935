package tests

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/stretchr/testify/require"
)

var (
	killrate = flag.Bool("killrate", false, "run a mutant of each kind that ships, and pairs; -record writes records")
	pairs    = flag.Int("pairs", 120, "with -killrate, how many pairs of mutants to draw in each family of kernels")
	kinds    = flag.String("kinds", "", "with -killrate, run small kernels' kinds that match this `regexp` alone, no pairs")
)

const (
	killSeeds  = 4                // schedules that a mutant is run under on a subject, and a pair
	pairSeed   = 26               // of the draw of pairs
	notesEvery = 20 * time.Second // between records of a run that has not ended
)

// scaleExcuses are of kernels whose cache is in e4m3.
var scaleExcuses = mutate.Excuses{
	{Op: "bar.sync", Classes: later, Role: "consumers", Regions: []string{"attention"}, Behind: "ld @kv_scales",
		Why: "passes a load of the cache's scales, which no thread of a launch writes", Rule: mutate.Conflict},
	{Op: "bar.sync", Classes: earlier, Role: "consumers", Regions: []string{"attention"}, Front: "ld @kv_scales",
		Why: "passes a load of the cache's scales, which no thread of a launch writes", Rule: mutate.Conflict},
}

// registerExcuses are of kernels whose consumers get registers of the producer's warpgroup. That they get all is
// another test's (megakernel, Registers).
var registerExcuses = mutate.Excuses{
	{Op: "setmaxreg", Classes: []mutate.Class{mutate.Remove, mutate.Later}, Role: "consumers", Behind: "ld @epoch",
		Why: "with the registers of the launch, for a while or for good, it computes the same", Rule: mutate.SetMaxReg},
}

// sumsExcuses are of products of 4 bits for several rows whose sums are in shared memory.
var sumsExcuses = mutate.Excuses{
	{Op: "mbar.arrive @empty", Classes: later, Role: "consumers", Front: "syncwarp",
		Behind: "ld @normed | ld @attn | ld @act",
		Why:    "a stage is released behind a load of an input, which is other memory: later than it could",
		Rule:   mutate.Causality},
	{Op: "bar.sync", Classes: []mutate.Class{mutate.Remove, mutate.Later}, Role: "consumers",
		Regions: []string{"sync after gate_up"}, Front: "bar.sync", Behind: "red.add.release @barrier",
		Why: "the same warps have met at the barrier in front of it, and none has written since", Rule: mutate.Causality},
}

// familyExcuses is why mutants of a family's kernels may go unreported.
func familyExcuses(f family) mutate.Excuses {
	switch f {
	case oneRow:
		return slices.Concat(singleExcuses, drawExcuses, scaleExcuses)
	case manyRows:
		return slices.Concat(ringExcuses, raggedExcuses, scaleExcuses, sumsExcuses, registerExcuses)
	case manyPrompts:
		return slices.Concat(prefillExcuses, codedExcuses, codedElsewhere, severalExcuses, registerExcuses)
	}
	return slices.Concat(prefillExcuses, codedExcuses, codedElsewhere, registerExcuses)
}

// verdict is what became of a kind of mutants, or of two.
type verdict struct {
	report string         // empty for one that survives
	runs   int            // under how many schedules it was run, on all subjects
	on     int            // the number of the subject that it was run on last
	excuse *mutate.Excuse // nil for none
}

// opened is a subject and its first mutant of each kind.
type opened struct {
	*subject
	firsts map[kind]mutate.Mutation
}

// killRun is the mutants of a family.
type killRun struct {
	family   family
	excuses  mutate.Excuses
	small    []killSubject
	open     []opened
	verdicts map[kind]*verdict // of all kinds that ship
}

// openAll opens the subjects. Each must pass without a mutant under all schedules that mutants are run under.
func (r *killRun) openAll(t *testing.T) {
	t.Helper()
	r.open = make([]opened, len(r.small))
	atOnce(len(r.small), func(i int) {
		s := r.small[i].open(t)
		s.seeds = min(s.seeds, killSeeds)
		s.mustPass(t)
		r.open[i] = opened{s, map[kind]mutate.Mutation{}}
		for _, m := range mutate.Kinds(mutate.List(s.ir)) {
			r.open[i].firsts[kind{r.family, m.Name, m.Key}] = m
		}
	})
	if t.Failed() {
		t.FailNow() // a subject that could not be opened has ended no more than its own goroutine
	}
}

// firstOn is the kinds that a subject is the first to have, in its kernel's order, but for one without a kernel of its
// own.
func (r *killRun) firstOn(i int, taken map[kind]bool) (ks []kind) {
	if r.small[i].kernel == nil {
		return nil
	}
	for _, m := range mutate.Kinds(mutate.List(r.open[i].ir)) {
		if k := (kind{r.family, m.Name, m.Key}); r.verdicts[k] != nil && !taken[k] {
			taken[k] = true
			ks = append(ks, k)
		}
	}
	return ks
}

// kinds tries each kind on the first subject that has it, then those that are neither reported nor excused on the
// others, and calls note now and then, not twice at a time. Kinds of the last subjects, which are larger, come first.
func (r *killRun) kinds(t *testing.T, note func()) {
	t.Helper()
	r.openAll(t)
	var ks []kind
	var first []int
	taken := map[kind]bool{}
	for i := range r.small {
		for _, k := range r.firstOn(i, taken) {
			ks, first = append(ks, k), append(first, i)
		}
	}
	var mu sync.Mutex
	noted, errs := time.Now(), make([]error, len(ks))
	atOnce(len(ks), func(n int) {
		n = len(ks) - 1 - n
		var v verdict
		v, errs[n] = r.try(t.Context(), ks[n], first[n])
		mu.Lock()
		defer mu.Unlock()
		*r.verdicts[ks[n]] = v
		if time.Since(noted) > notesEvery {
			note()
			noted = time.Now()
		}
	})
	require.NoError(t, errors.Join(errs...))
	t.Logf("%d kinds on %d subjects", len(ks), len(r.small))
}

// try tries a kind on its first subject, then on the others while it is neither reported nor excused.
func (r *killRun) try(ctx context.Context, k kind, first int) (v verdict, err error) {
	v.excuse = r.excuses.Of(r.open[first].firsts[k])
	for _, i := range append([]int{first}, r.others(first)...) {
		m, has := r.open[i].firsts[k]
		if !has || v.report != "" || i != first && v.excuse != nil {
			continue
		}
		o, err := r.open[i].try(ctx, mutant{Mutation: m}, r.open[i].seedsOf(m, r.excuses))
		if err != nil {
			return v, err
		}
		v.report, v.on = o.Report, i
		v.runs += o.Runs
	}
	return v, nil
}

// pair is two mutants that are made at once.
type pair struct {
	a, b  kind
	tryOn []int // the subjects that have both
	verdict
}

// pairs draws pairs of kinds and runs them. A pair that a schedule of the first subject does not show runs on all that
// have both kinds, but for two that are excused.
func (r *killRun) pairs(t *testing.T, n int) []pair {
	t.Helper()
	all := r.drawPairs(t, n)
	errs := make([]error, len(all))
	atOnce(len(all), func(i int) { errs[i] = r.tryPair(t.Context(), &all[i]) })
	require.NoError(t, errors.Join(errs...))
	return all
}

// drawPairs draws one half of the pairs among all kinds, one among those that are excused. If one of a pair is reported
// alone, the pair is for the subject that reports it, or is not drawn.
func (r *killRun) drawPairs(t *testing.T, n int) (all []pair) {
	t.Helper()
	rng := rand.New(rand.NewPCG(pairSeed, 0))
	var kinds, excused []kind
	for i, small := range r.small {
		if small.kernel == nil {
			continue
		}
		for _, m := range mutate.Kinds(mutate.List(r.open[i].ir)) {
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
			p.a, p.b, vb = p.b, p.a, va
		}
		on := []int{vb.on}
		if vb.report == "" {
			on = append(on, r.others(vb.on)...)
		}
		for _, i := range on {
			if _, err := r.both(p, i); err == nil && (len(p.tryOn) == 0 || !r.excused(p)) {
				p.tryOn = append(p.tryOn, i)
			}
		}
		if len(p.tryOn) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// both is a subject's kernel with both mutants; an error says that they cannot be made there at once.
func (r *killRun) both(p pair, on int) (*ir.Kernel, error) {
	s := r.open[on]
	a, hasA := s.firsts[p.a]
	b, hasB := s.firsts[p.b]
	if !hasA || !hasB {
		return nil, fmt.Errorf("%s has not both %s and %s", r.small[on].name, p.a, p.b)
	}
	return mutate.Apply(s.ir, a, b)
}

// tryPair runs a pair where it is to be tried, until a schedule shows it.
func (r *killRun) tryPair(ctx context.Context, p *pair) error {
	for _, i := range p.tryOn {
		k, err := r.both(*p, i)
		if err != nil {
			return err
		}
		p.on = i
		for seed := uint64(1); seed <= r.open[i].seeds; seed++ {
			p.runs++
			if p.report, _, err = r.open[i].run(ctx, k, seed); err != nil {
				return fmt.Errorf("%s and %s: %w", p.a, p.b, err)
			}
			if p.report != "" {
				return nil
			}
		}
	}
	return nil
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
			if *kinds != "" {
				killKinds(t, f, regexp.MustCompile(*kinds))
				return
			}
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

// killKinds runs the kinds of a family's subjects that match, each on one subject after another until it is reported,
// or on the first where it is excused, and says what became of it.
func killKinds(t *testing.T, f family, match *regexp.Regexp) {
	t.Helper()
	r, left := newKillRun(t, f, nil), map[string]bool{}
	for _, small := range r.small {
		if small.kernel == nil {
			continue
		}
		ms := slices.DeleteFunc(mutate.Kinds(mutate.List(small.kernel(t))), func(m mutate.Mutation) bool {
			k := kind{f, m.Name, m.Key}.String()
			open, met := left[k]
			return met && !open || !match.MatchString(k)
		})
		if len(ms) == 0 {
			continue
		}
		s := small.open(t)
		s.seeds = min(s.seeds, killSeeds)
		s.mustPass(t)
		for _, m := range ms {
			o, err := s.try(t.Context(), mutant{Mutation: m}, s.seedsOf(m, r.excuses))
			require.NoError(t, err)
			k := kind{f, m.Name, m.Key}.String()
			left[k] = o.Report == "" && r.excuses.Of(m) == nil
			t.Logf("%s: %q, %s, %d runs", k, o.Report, small.name, o.Runs)
		}
	}
	require.NotEmpty(t, left)
	for k, open := range left {
		require.False(t, open, k)
	}
}

// newKillRun is of a family's kernels and subjects.
func newKillRun(t *testing.T, f family, kernels []shippedKernel) *killRun {
	t.Helper()
	r := &killRun{family: f, excuses: familyExcuses(f), verdicts: map[kind]*verdict{}}
	for _, s := range killSubjects(t) {
		if s.family == f {
			r.small = append(r.small, s)
		}
	}
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
