package tests

import (
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/megakernel"
)

// tryElsewhere runs what survived on subjects of the same options
// that differ in what orders an SM's producer and consumers by chance, the cheapest first. What known explains is not.
func tryElsewhere(t *testing.T, o megakernel.Options, outcomes []outcome, known mutate.Excuses) {
	t.Helper()
	again := func(open func() *subject) { tryAgain(t, outcomes, known, open) }
	again(func() *subject { return newShortOf(t, o) }) // KV of the step before is copied as soon as a step runs
	again(func() *subject { return newEven(t, o) })
	few, none := o, o
	few.SMs = 8 // some SMs have no tiles of some matrices
	again(func() *subject { return newSubjectOf(t, few, 16, 3) })
	none.SMs, none.Consumers = 110, 1 // some have none at all, and a launch runs two steps
	again(func() *subject { return newSubjectOf(t, none, 16, 3) })
}

// tryAgain opens a subject and runs there what survived on others, if anything did that known does not explain.
func tryAgain(t *testing.T, outcomes []outcome, known mutate.Excuses, open func() *subject) {
	t.Helper()
	if slices.ContainsFunc(outcomes, func(o outcome) bool { return o.Report == "" && known.Of(o.Mutation) == nil }) {
		open().tryAgain(t, outcomes, known)
	}
}

// tryAgain runs here what survived on another subject, but for what the table
// explains, and fills in what is reported here. Where the numbers from the front and from
// behind are of different mutants both are run.
func (s *subject) tryAgain(t *testing.T, outcomes []outcome, but mutate.Excuses) {
	t.Helper()
	here := map[string]mutant{}
	for _, m := range mutantsOf(s.ir) {
		here[m.id], here[m.behind] = m, m
	}
	var at []int
	var ms []mutant
	for i, o := range outcomes {
		if o.Report != "" || but.Of(o.Mutation) != nil {
			continue
		}
		front, ok := here[o.id]
		if ok {
			at, ms = append(at, i), append(ms, front)
		}
		if back, also := here[o.behind]; also && (!ok || back.id != front.id) {
			at, ms = append(at, i), append(ms, back)
		}
	}
	for i, o := range s.tryAll(t, ms, nil) {
		was := &outcomes[at[i]]
		o.Runs += was.Runs
		was.Runs = o.Runs
		if o.Report != "" {
			o.id, o.behind = was.id, was.behind
			*was = o
		}
	}
}
