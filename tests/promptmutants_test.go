package tests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/megakernel/runtime"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

const (
	stepHandoff = "hand-off of a step"
	promptSeeds = 64  // of 100 schedules 10 showed that the hand-off's wait was gone, 8 that it counted one less
	wideSeeds   = 200 // the 74th schedule is the first to show that both barriers of the warps before it were
)

// newPromptSubject is a launch of a prompt, between whose steps no LM head lies, with vectors
// in words. One small head leaves most SMs without rows of qkv, so that between two steps
// nobody but the hand-off waits for them; and the rows of down that they add to o's are other
// SMs' rows of o, so that these write words anew which they may still have to read. With o
// and down cut alike, as on few SMs, each reads words of its own and the wait is not needed.
func newPromptSubject(t *testing.T, sms, hidden int, seeds uint64) *subject {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Layers, c.Hidden, c.Heads, c.KVHeads, c.HeadDim, c.Intermediate, c.Vocab, c.BOS, c.EOS = 1, hidden, 1, 1, 16, 64, 16, models.NoToken, nil
	mk, err := megakernel.Build(c, megakernel.Options{SMs: sms, Splits: 1, Consumers: 2, StageBytes: 2048, Stages: 3, InFlight: 2, Vectors: string(megakernel.HandoffWords)})
	require.NoError(t, err)
	requireRowsOfOthers(t, mk)
	weights := synth.NewWeights(1, reference.ShapeOf(mk.Config).Dims())
	launch := func(k *ir.Kernel, seed uint64) (string, error) {
		sim, err := runtime.NewSim(k, seed)
		if err != nil {
			return "", err
		}
		s, err := runtime.NewSession(mk, sim, weights, 2, nil, 0)
		if err != nil {
			return "", err
		}
		chosen, err := s.Generate([]int{1, 5, 9, 2, 7}, 1)
		if err != nil {
			return "", err
		}
		logits := make([]float32, mk.Config.Vocab)
		err = s.Logits(logits)
		return fmt.Sprint(chosen, logits), err
	}
	want, err := launch(mk.IR, 1)
	require.NoError(t, err)
	return &subject{seeds: seeds, ir: mk.IR, run: func(_ context.Context, k *ir.Kernel, seed uint64) (report, place string, err error) {
		got, err := launch(k, seed)
		if err != nil {
			return reportOf(err)
		}
		if got != want {
			return "wrong value", "", nil
		}
		return "", "", nil
	}}
}

// requireRowsOfOthers wants an SM without rows of qkv that has rows of down, the last of
// which is another SM's of o.
func requireRowsOfOthers(t *testing.T, mk *megakernel.Kernel) {
	t.Helper()
	qkv, o, down := mk.Plan.Layer[megakernel.MatrixQKV], mk.Plan.Layer[megakernel.MatrixO], mk.Plan.Layer[megakernel.MatrixDown]
	for sm := range mk.Options.SMs {
		last := down.First[sm] + down.Count[sm] - 1
		if qkv.Count[sm] == 0 && down.Count[sm] > 0 && (last < o.First[sm] || last >= o.First[sm]+o.Count[sm]) {
			return
		}
	}
	require.FailNow(t, "every SM is waited for, or reads its own words only")
}

// betweenSteps is whether a mutant is of a grid barrier of a layer or of a step, or of a
// barrier of the warps behind a phase whose vector is in words.
func betweenSteps(t *testing.T, m mutant) bool {
	return slices.Contains([]string{stepHandoff, "hand-off after gate_up"}, m.Region) || whoNeedsThem(t, m.Mutation)
}

func whoNeedsThem(t *testing.T, m mutate.Mutation) bool {
	return strings.Contains(sourceLine(t, m.Pos.Caller), "b.env.Sync() // who needs them")
}

// The same of vectors in words: of what hand-offs they leave, behind gate_up and between two
// steps of a prompt. All of these mutants are run, whatever -mutants says: they are few. With
// -mutants=all those that stepRedundant explains are run under all the schedules, too.
func TestMutantsOfVectorsBetweenStepsAreReported(t *testing.T) {
	deep.Only(t)
	start := time.Now()
	s := newPromptSubject(t, 20, 96, promptSeeds)
	s.mustPass(t)
	var near []mutant
	regions := map[string]int{}
	for _, m := range mutantsOf(s.ir) {
		if betweenSteps(t, m) {
			near = append(near, m)
			regions[m.Region]++
		}
	}
	require.Len(t, regions, 3, "%v", regions)
	reasons, known := slices.Concat(redundant, stepRedundant), redundant
	if *mutants != "all" {
		known = reasons
	}
	outcomes := s.tryAll(t, near, known)
	judge(t, "mutants of what vectors in words leave of hand-offs, on the executor", outcomes, reasons, stepRedundant, start)
}

// Of the two barriers of the warps between down and the arrival, behind down and of the
// hand-off, one is needed where a second warp adds rows of down to words of o's: neither
// alone is missed, as stepRedundant and redundant say, but both are.
func TestMutantsOfVectorsWithoutBothBarriersBeforeAStepAreReported(t *testing.T) {
	deep.Only(t)
	s := newPromptSubject(t, 8, 1544, wideSeeds) // 25 tiles of down on an SM: too many to be fetched early, and of the last nine a warp finishes eight
	var downs, steps []mutate.Mutation
	for _, m := range mutate.List(s.ir) {
		switch {
		case m.Name != "remove bar.sync":
		case m.Region == stepHandoff:
			steps = append(steps, m)
		case whoNeedsThem(t, m):
			downs = append(downs, m)
		}
	}
	require.Len(t, steps, 2)
	require.Len(t, downs, 4, "behind qkv, attention, o and down")
	k, err := mutate.Apply(s.ir, steps[0])
	require.NoError(t, err)
	k, err = mutate.Apply(k, downs[3]) // which lies before, where no instruction's number has changed
	require.NoError(t, err)
	for seed := range s.seeds {
		report, place, err := s.run(t.Context(), k, seed+1)
		require.NoError(t, err)
		if report != "" {
			t.Logf("seed %d: %s at %s", seed+1, report, place)
			return
		}
	}
	require.Fail(t, "no schedule shows that both barriers are gone")
}
