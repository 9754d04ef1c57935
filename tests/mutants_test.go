package tests

import (
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/megakernel/runtime"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

var mutants = flag.Int("mutants", 9, "test every n-th mutant of the tiny kernel; 1 tests all")

// mutantSeeds and mutantSteps are how many schedules of how many steps a mutant may hide in.
const mutantSeeds, mutantSteps = 3, 3

// redundant says why mutants of the tiny kernel break nothing. A rule holds for the mutants whose class is one of classes (all
// when empty), whose name ends in or contains what, and which sit in that role and region ("" is any).
type redundant struct {
	classes, what, role, region string
	why                         string
}

var redundancies = []redundant{
	{"remove earlier later", "wait.mbar @full", "producer", "", "limits the copies in flight; the wait on empty keeps the order"},
	{"later", "wait.mbar @empty", "producer", "", "changes places with the wait that limits copies in flight"},
	{"earlier later", "fence.proxy.async", "producer", "", "stays behind the wait on empty and in front of the copy, so it stays on the path"},
	{"earlier later", "mbar.expect @full", "producer", "", "stays in the copy's phase: PTX's tx-count is signed, bytes may complete before they are expected while the arrival is missing"},
	{"remove earlier later", "syncwarp", "producer", "", "lanes that copy have waited on empty and fenced themselves; they need nothing of the lane that expects"},
	{"remove earlier", "fence.mbarrier_init", "", "prologue", "the producer's fence.proxy.async lies on every path from the initialisation to a copy"},
	{"later", "mbar.arrive @empty", "consumers", "", "a stage released later"},
	{"remove earlier later", "mbar.arrive @empty", "consumers", "lm_head", "the last op's chunks fit into one lap: nobody fills these stages again"},
	{"remove earlier later", "syncwarp", "consumers", "lm_head", "the same"},
	{"earlier", "syncwarp", "consumers", "", "passes a load from another buffer, behind the last load from the stage"},
	{"remove later", "bar.sync", "consumers", "hand-off after attention", "attention ends in the same barrier"},
	{"remove earlier", "bar.sync", "consumers", "attention", "the hand-off begins with the same barrier, and a CTA has one item at a time"},
	{"remove later", "bar.sync", "consumers", "hand-off after lm_head", "what is handed off was written by the thread that releases"},
	{"remove earlier later", "bar.sync", "consumers", "lm_head", "needed in a CTA without rows only; here every CTA has rows"},
	{"later", "bar.sync", "consumers", "", "passes a load of the plan, which nobody writes"},
}

func (r redundant) covers(m mutate.Mutation) bool {
	return strings.Contains(r.classes, string(m.Class)) && strings.Contains(m.Name, r.what) &&
		(r.role == "" || r.role == m.Role) && (r.region == "" || r.region == m.Region)
}

// steps runs the kernel k, built as mk or a mutant of that, for some steps.
func steps(mk *megakernel.Kernel, k *ir.Kernel, seed uint64) error {
	sim, err := runtime.NewSim(k, seed)
	if err != nil {
		return err
	}
	c := mk.Config
	s, err := runtime.NewSession(mk, sim, synth.NewWeights(1, reference.ShapeOf(c).Dims()), 4, []uint32{2, 0, 3, 1}, 0xffffff00)
	if err != nil {
		return err
	}
	for _, id := range synth.Tokens(1, 0, mutantSteps, c.Vocab) {
		if _, err := s.Step(id); err != nil {
			return err
		}
	}
	return nil
}

// TestMutantsOfTinyAreReported breaks each synchronisation of the tiny kernel and wants the executor to say so, unless a rule
// above says why the kernel is still right.
func TestMutantsOfTinyAreReported(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 4})
	require.NoError(t, err)
	reported, excused := 0, 0
	for i, mu := range mutate.List(mk.IR) {
		if i%max(*mutants, 1) != 0 {
			continue
		}
		k, err := mutate.Apply(mk.IR, mu)
		require.NoError(t, err)
		var f *interp.Fault
		for seed := 0; seed < mutantSeeds && f == nil; seed++ {
			if err := steps(mk, k, uint64(seed)); !errors.As(err, &f) {
				require.NoError(t, err)
			}
		}
		why := ""
		for _, r := range redundancies {
			if r.covers(mu) {
				why = r.why
			}
		}
		switch {
		case f != nil:
			reported++
		case why != "":
			excused++
		default:
			t.Errorf("survives: %s (role %s)", mu, mu.Role)
		}
	}
	require.NotZero(t, reported)
	t.Logf("%d mutants reported, %d redundant by rule", reported, excused)
}
