package tests

import (
	"context"
	"errors"
	"flag"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/verify"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

var (
	mutants = flag.String("mutants", "some", "`which` mutants of a kernel to run: some or all")
	draw    = flag.Int("draw", 0, "with -mutants=some, which of the samples that together are all")
	record  = flag.String("record", "", "with -mutants=all, -ragged or -real, write the record to this `file`")
)

const (
	mutantSeeds    = 8  // schedules that a mutant must survive to count as a survivor
	knownSeeds     = 2  // of a ragged kernel's that a table explains
	quickSeeds     = 2  // the same without -mutants=all and -deep
	quickFewer     = 32 // and by so much fewer mutants are run than of these:
	sampleEvery    = 6  // every sixth mutant is run
	regionEvery    = 6  // of those in some regions
	raggedEvery    = 32
	attentionEvery = 12
)

// subject is one shape of a kernel, small enough to run a mutant in some tens of
// milliseconds.
type subject struct {
	seeds uint64 // schedules to try a mutant under
	ir    *ir.Kernel
	// run runs a mutant. A report, with the place of the instruction that showed it,
	// says that it is broken; the error is for what is not the kernel's fault.
	run func(ctx context.Context, k *ir.Kernel, seed uint64) (report, place string, err error)
}

// seedsPerMutant is how many schedules a mutant is tried under.
func seedsPerMutant() uint64 {
	if *mutants == "all" || deep.On() {
		return mutantSeeds
	}
	return quickSeeds
}

// newSubject builds tiny with some sizes changed. Three stages: every matrix goes
// round the ring in every phase, so that a stage that is not released is missed.
func newSubject(t *testing.T, sms, consumers, vocab, steps int) *subject {
	t.Helper()
	return newSubjectOf(t, megakernel.Options{SMs: sms, Splits: 2, Consumers: consumers, Stages: 3, InFlight: 2}, vocab,
		steps)
}

func newSubjectOf(t *testing.T, o megakernel.Options, vocab, steps int) *subject {
	t.Helper()
	return subjectOf(t, smallConfig(t, func(c *models.Config) { c.Vocab = vocab }), o, steps)
}

// newShort is a subject of one layer, all of whose chunks a ring holds: the producer copies
// KV of the step before when it has heard of the step, and nothing else has come between.
func newShort(t *testing.T) *subject {
	t.Helper()
	return newShortOf(t, megakernel.Options{SMs: 3, Splits: 2, Consumers: 3})
}

func newShortOf(t *testing.T, o megakernel.Options) *subject {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Layers, c.Intermediate, c.Vocab, c.BOS, c.EOS = 1, 160, 16, models.NoToken, nil
	o.Stages = 32
	return subjectOf(t, c, o, 3)
}

// newEven is a subject whose stages are filled by whole chunks only, or by last ones of tiles only: what is read at a
// stage's end the next chunk there overwrites.
func newEven(t *testing.T, o megakernel.Options) *subject {
	t.Helper()
	o.Stages += o.Stages % 2
	return subjectOf(t, smallConfig(t, func(c *models.Config) { c.Hidden, c.Vocab = 128, 160 }), o, 2)
}

// subjectOf is a kernel that runs n steps, the last of them in one launch. Where Unsplit is left open the first step
// has no splits, and the others have.
func subjectOf(t *testing.T, c models.Config, o megakernel.Options, steps int) *subject {
	t.Helper()
	mk := buildOf(t, c, o)
	trial, err := verify.NewTrial(mk, steps)
	require.NoError(t, err)
	if o.Unsplit == 0 && mk.Options.Unsplit > 0 {
		o.Unsplit = trial.Context()
		mk = buildOf(t, c, o)
		trial, err = verify.NewTrial(mk, steps)
		require.NoError(t, err)
	}
	good, err := trial.Run(t.Context(), mk.IR, 1)
	require.NoError(t, err)
	require.Empty(t, good.Findings)
	return &subject{seeds: seedsPerMutant(), ir: mk.IR,
		run: func(ctx context.Context, k *ir.Kernel, seed uint64) (report, place string, err error) {
			r, err := trial.Run(ctx, k, seed)
			if err != nil {
				return reportOf(err)
			}
			if len(r.Findings) > 0 {
				f := r.Findings[0]
				if len(f.Sides) > 0 {
					place = f.Sides[0].Pos.String()
				}
				return f.Kind, place, nil
			}
			if d := r.Differs(good); d != "" && mk.Options.Repeatable() {
				return "wrong value in " + d, "", nil
			}
			for _, v := range trial.Judge(r).Values {
				if !v.OK() {
					report = "wrong value in " + v.What
				}
			}
			return report, "", nil
		}}
}

// mustPass wants no report of the kernel itself, under any schedule.
func (s *subject) mustPass(t *testing.T) {
	t.Helper()
	for seed := range s.seeds {
		report, place, err := s.run(t.Context(), s.ir, seed+1)
		require.NoError(t, err)
		require.Empty(t, report, "seed %d, %s", seed+1, place)
	}
}

// reportOf is the report of a run that ended with an error, or the error when it
// is not the kernel's.
func reportOf(err error) (report, place string, other error) {
	var fault *interp.Fault
	var bad *runtime.ResultError
	switch {
	case errors.As(err, &fault):
		if len(fault.Sides) > 0 {
			place = fault.Sides[0].Pos.String()
		}
		return fault.Kind.String(), place, nil
	case errors.As(err, &bad):
		return "wrong progress", "", nil
	}
	return "", "", err
}

// mutant is a mutation with an id that is the same on all subjects: its name,
// its place, and how many like it there are before. A kernel may lack code that lies
// before, such as that for few rows: so behind is the same with how many there are from it on.
type mutant struct {
	mutate.Mutation
	id, behind string
}

// outcome is what became of one mutant. Report is empty for a survivor.
type outcome struct {
	mutant
	Report string // the finding's kind, or where the result differs
	Seed   uint64 // of the schedule that showed it
	Place  string // line of the instruction that showed it
	Runs   int    // schedules that it was run under, on all subjects
}

// try runs a mutant under a number of schedules, until something shows.
func (s *subject) try(ctx context.Context, m mutant, seeds uint64) (outcome, error) {
	o := outcome{mutant: m}
	k, err := mutate.Apply(s.ir, m.Mutation)
	if err != nil {
		return o, err
	}
	for o.Seed = 1; o.Seed <= seeds; o.Seed++ {
		o.Runs++
		if o.Report, o.Place, err = s.run(ctx, k, o.Seed); err != nil {
			return o, fmt.Errorf("%s: %w", m, err)
		}
		if o.Report != "" {
			break
		}
	}
	return o, nil
}

// seedsOf is how many schedules a mutant is run under: fewer where known explains it.
func (s *subject) seedsOf(m mutate.Mutation, known mutate.Excuses) uint64 {
	if known.Of(m) != nil {
		return min(s.seeds, knownSeeds)
	}
	return s.seeds
}

// tryAll runs mutants, as many at a time as there are CPUs, and keeps their order. Those that known
// explains are run under fewer schedules.
func (s *subject) tryAll(t *testing.T, ms []mutant, known mutate.Excuses) []outcome {
	t.Helper()
	out, errs := make([]outcome, len(ms)), make([]error, len(ms))
	atOnce(len(ms), func(i int) { out[i], errs[i] = s.try(t.Context(), ms[i], s.seedsOf(ms[i].Mutation, known)) })
	for _, err := range errs {
		require.NoError(t, err)
	}
	return out
}

// atOnce calls do for each of n numbers, as many at a time as there are CPUs, and in their order but for that.
func atOnce(n int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, goruntime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

// sample is every mutant of a kernel with -mutants=all, else one of every n: which, -draw
// says. Without -deep it is a smaller sample.
func sample(t *testing.T, k *ir.Kernel, every int, known mutate.Excuses) []mutant {
	t.Helper()
	return sampleOf(t, mutantsOf(k), every, known)
}

// sampleOf is sample of mutants. Those that known explains are not of a sample: nothing is wrong with them whether
// they are reported or not.
func sampleOf(t *testing.T, all []mutant, every int, known mutate.Excuses) (chosen []mutant) {
	t.Helper()
	require.Contains(t, []string{"some", "all"}, *mutants, "-mutants")
	if !deep.On() {
		every *= quickFewer
	}
	for i, m := range all {
		if *mutants == "all" || i%every == *draw%every && known.Of(m.Mutation) == nil {
			chosen = append(chosen, m)
		}
	}
	return chosen
}

// Every synchronisation of the tiny kernel, removed, weakened, miscounted or
// moved, is reported, but for those that redundant explains.
func TestMutantsOfTinyAreReported(t *testing.T) {
	start := time.Now()
	first := newSubject(t, 3, 3, 320, 2) // more tiles of the LM head than are held and the ring has stages
	outcomes := first.tryAll(t, sample(t, first.ir, sampleEvery, singleExcuses), singleExcuses)
	again := func(open func() *subject) { tryAgain(t, outcomes, singleExcuses, open) }
	// KV of the step before is copied as soon as a step runs
	again(func() *subject { return newShort(t) })
	again(func() *subject {
		return newEven(t, megakernel.Options{SMs: 3, Splits: 2, Consumers: 3, Stages: 3, InFlight: 2})
	})
	// some SMs have no rows of the LM head
	again(func() *subject { return newSubject(t, 4, 3, 16, 2) })
	again(func() *subject { return newHanging(t, megakernel.WatchGrid, 3, 3, 160) }) // the launch is given up
	// some have none at all, and a launch runs two steps
	again(func() *subject { return newSubject(t, 110, 1, 16, 3) })
	judge(t, "mutants of the tiny kernel on the executor", outcomes, singleExcuses, singleExcuses, start)
}

// The same of attention behind a barrier, whose states are merged behind another, with
// a producer that keeps fewer copies in flight where it leads.
func TestMutantsOfBarriersAroundAttentionAreReported(t *testing.T) {
	deep.Only(t)
	o := megakernel.Options{Stages: 6, InFlight: 3, Leads: "4:2,5:1", Queries: megakernel.SyncBarrier,
		Merge: megakernel.MergePhase, Vectors: "barrier"}
	aroundAttention(t, o, "mutants of barriers around attention, and of leads, on the executor", barrierExcuses)
}

// The same of the MLP whose halves have no sync between.
func TestMutantsOfTheFusedMLPAreReported(t *testing.T) {
	deep.Only(t)
	o := megakernel.Options{Stages: 3, InFlight: 2, MLP: megakernel.MLPFused}
	mutantsOfRegions(t, o, "mutants of the MLP without a sync, on the executor", nil, "o", "sync after o", "gate_up",
		"down", "sync after down")
}

// aroundAttention is about the mutants of the phases before, of and behind attention, and
// their syncs.
func aroundAttention(t *testing.T, o megakernel.Options, what string, own mutate.Excuses) {
	t.Helper()
	mutantsOfRegions(t, o, what, own, "qkv", "sync after qkv", "attention", "sync after attention", "merge",
		"sync after merge")
}

// mutantsOfRegions is about the mutants in these regions.
func mutantsOfRegions(t *testing.T, o megakernel.Options, what string, own mutate.Excuses, regions ...string) {
	t.Helper()
	start := time.Now()
	o.SMs, o.Splits, o.Consumers = 3, 3, 3
	first, excuses := newSubjectOf(t, o, 16, 2), append(slices.Clone(singleExcuses), own...)
	var near []mutant
	for _, m := range sample(t, first.ir, regionEvery, excuses) {
		if slices.Contains(regions, m.Region) {
			near = append(near, m)
		}
	}
	require.NotEmpty(t, near)
	outcomes := first.tryAll(t, near, excuses)
	tryElsewhere(t, o, outcomes, excuses)
	judge(t, what, outcomes, excuses, own, start)
}

// judge wants an excuse for every survivor, and, when all mutants were run, a survivor for
// every excuse of own.
func judge(t *testing.T, what string, outcomes []outcome, excuses, own mutate.Excuses, start time.Time) {
	t.Helper()
	var survivors []mutate.Mutation
	for _, o := range outcomes {
		if o.Report == "" {
			survivors = append(survivors, o.Mutation)
		}
	}
	if *mutants != "all" {
		own = nil
	}
	require.NoError(t, excuses.Check(survivors, own))
	if *mutants == "all" && *record != "" {
		writeRecord(t, "", newMutantsRecord(what, outcomes, excuses, time.Since(start)))
	}
}

func mutantsOf(k *ir.Kernel) []mutant { return mutantsNamed(k, mutate.Mutation.String) }

// mutantsNamed is mutantsOf where other subjects have other names for them.
func mutantsNamed(k *ir.Kernel, name func(m mutate.Mutation) string) []mutant {
	front, back := map[string]int{}, map[string]int{}
	var out []mutant
	for _, m := range mutate.List(k) {
		n := name(m)
		out = append(out, mutant{Mutation: m, id: fmt.Sprint(n, " #", front[n])})
		front[n]++
	}
	for i, m := range slices.Backward(out) {
		n := name(m.Mutation)
		back[n]++
		out[i].behind = fmt.Sprint(n, " #-", back[n])
	}
	return out
}
