package tests

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/runtime"
	"github.com/mkgen/mkgen/megakernel/verify"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

var (
	mutants = flag.String("mutants", "some", "`which` mutants of the tiny kernel to run: some or all")
	record  = flag.String("record", "", "with -mutants=all or -real, write the record to this `file`")
)

const (
	mutantSeeds = 8 // schedules that a mutant must survive to count as a survivor
	sampleSeeds = 3 // the same without -mutants=all
	sampleEvery = 6 // and every sixth mutant is run
)

// subject is one shape of the tiny kernel, small enough to run a mutant in some
// tens of milliseconds, and its right outcome.
type subject struct {
	seeds uint64 // schedules to try a mutant under
	mk    *megakernel.Kernel
	trial *verify.Trial
	good  *verify.Run
}

// newSubject builds tiny with some sizes changed. Three stages: every matrix goes
// round the ring in every phase, so that a stage that is not released is missed.
func newSubject(t *testing.T, sms, consumers, vocab, steps int) *subject {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Intermediate, c.Vocab, c.BOS, c.EOS = 160, vocab, models.NoToken, nil
	s := &subject{seeds: sampleSeeds}
	if *mutants == "all" {
		s.seeds = mutantSeeds
	}
	s.mk, err = megakernel.Build(c, megakernel.Options{SMs: sms, Splits: 2, Consumers: consumers, Stages: 3, InFlight: 2})
	require.NoError(t, err)
	s.trial, err = verify.NewTrial(s.mk, steps)
	require.NoError(t, err)
	s.good, err = s.trial.Run(t.Context(), s.mk.IR, 1)
	require.NoError(t, err)
	require.Empty(t, s.good.Findings)
	return s
}

// mutant is a mutation with an id that is the same on all subjects: its name,
// its place, and how many like it there are before.
type mutant struct {
	mutate.Mutation
	id string
}

// outcome is what became of one mutant. Report is empty for a survivor.
type outcome struct {
	mutant
	Report string // the finding's kind, or where the result differs
	Seed   uint64 // of the schedule that showed it
	Place  string // line of the instruction that showed it
}

// try runs a mutant until something shows.
func (s *subject) try(ctx context.Context, m mutant) (outcome, error) {
	o := outcome{mutant: m}
	k, err := mutate.Apply(s.mk.IR, m.Mutation)
	if err != nil {
		return o, err
	}
	for o.Seed = 1; o.Seed <= s.seeds; o.Seed++ {
		r, err := s.trial.Run(ctx, k, o.Seed)
		if bad := new(runtime.ResultError); errors.As(err, &bad) {
			o.Report = "wrong progress"
			return o, nil
		}
		if err != nil {
			return o, fmt.Errorf("%s: %w", m, err)
		}
		if len(r.Findings) > 0 {
			f := r.Findings[0]
			if o.Report = f.Kind; len(f.Sides) > 0 {
				o.Place = f.Sides[0].Pos.String()
			}
			return o, nil
		}
		if d := r.Differs(s.good); d != "" {
			o.Report = "wrong value in " + d
			return o, nil
		}
	}
	return o, nil
}

// tryAll runs mutants, two at a time, and keeps their order.
func (s *subject) tryAll(t *testing.T, ms []mutant) []outcome {
	t.Helper()
	out, errs := make([]outcome, len(ms)), make([]error, len(ms))
	next := make(chan int)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := range next {
				out[i], errs[i] = s.try(t.Context(), ms[i])
			}
		})
	}
	for i := range ms {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return out
}

// Every synchronisation of the tiny kernel, removed, weakened, miscounted or
// moved, is reported, but for those that redundant explains.
func TestMutantsOfTinyAreReported(t *testing.T) {
	start := time.Now()
	all := *mutants == "all"
	require.Contains(t, []string{"some", "all"}, *mutants, "-mutants")
	first := newSubject(t, 3, 3, 160, 2)
	var chosen []mutant
	for i, m := range first.mutants() {
		if all || i%sampleEvery == 0 {
			chosen = append(chosen, m)
		}
	}
	outcomes := first.tryAll(t, chosen)
	newSubject(t, 4, 3, 16, 2).tryAgain(t, outcomes, false)              // some SMs have no rows of the LM head
	newSubject(t, 110, 1, 16, 3).tryAgain(t, outcomes, true)             // some have none at all, and a launch runs two steps
	newHanging(t, megakernel.WatchGrid, 3, 3, 160).tryAgain(t, outcomes) // the launch is given up
	used := map[*redundancy]int{}
	var unexplained []string
	for _, o := range outcomes {
		if o.Report != "" {
			continue
		}
		if why := explain(t, o.Mutation); why != nil {
			used[why]++
		} else {
			unexplained = append(unexplained, o.String())
		}
	}
	require.Empty(t, unexplained, "mutants that nothing reported")
	if !all {
		return
	}
	for i := range redundant {
		require.NotZero(t, used[&redundant[i]], "no mutant survives any more for the reason %q: take it out of the table", redundant[i].why)
	}
	if *record != "" {
		writeMutants(t, outcomes, time.Since(start))
	}
}

// mutants lists a subject's mutants.
func (s *subject) mutants() []mutant { return mutantsOf(s.mk.IR) }

func mutantsOf(k *ir.Kernel) []mutant {
	seen := map[string]int{}
	var out []mutant
	for _, m := range mutate.List(k) {
		name := m.String()
		out = append(out, mutant{m, fmt.Sprint(name, " #", seen[name])})
		seen[name]++
	}
	return out
}

// tryAgain runs here what survived on another subject (or of that only what
// redundant does not explain) and fills in what is reported here.
func (s *subject) tryAgain(t *testing.T, outcomes []outcome, unexplained bool) {
	t.Helper()
	here := map[string]mutant{}
	for _, m := range s.mutants() {
		here[m.id] = m
	}
	var at []int
	var ms []mutant
	for i, o := range outcomes {
		if m, ok := here[o.id]; ok && o.Report == "" && !(unexplained && explain(t, o.Mutation) != nil) {
			at, ms = append(at, i), append(ms, m)
		}
	}
	for i, o := range s.tryAll(t, ms) {
		if o.Report != "" {
			outcomes[at[i]] = o
		}
	}
}
