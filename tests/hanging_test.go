package tests

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// hanging is a kernel with a lost arrival at a grid barrier, so that every launch is
// given up: what a kernel does then is all that differs from other subjects.
type hanging struct {
	ir    *ir.Kernel
	seeds uint64
	// launch runs k on the device, which a *HangError must end.
	launch func(ctx context.Context, sim *runtime.Sim) error
}

// newHanging is tiny, with some sizes changed.
func newHanging(t *testing.T, watchdog megakernel.Watchdog, sms, consumers, vocab int) *hanging {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Intermediate, c.Vocab, c.BOS, c.EOS = 160, vocab, models.NoToken, nil
	mk, err := megakernel.Build(c, megakernel.Options{SMs: sms, Splits: 2, Consumers: consumers, Stages: 3, InFlight: 2,
		Fault: megakernel.FaultLostArrival, Watchdog: watchdog})
	require.NoError(t, err)
	h := &hanging{ir: mk.IR, seeds: 2 * mutantSeeds, launch: func(_ context.Context, sim *runtime.Sim) error {
		s, err := runtime.NewSequence(mk, sim, synth.NewWeights(1, mk.Config), 2, nil, 0)
		if err != nil {
			return err
		}
		s.HangTimeout = time.Minute // the executor knows a hang at once
		_, err = s.Generate([]int{5, 6}, 2)
		return err
	}}
	h.mustHang(t)
	return h
}

// newRaggedHanging is a ragged kernel that hangs, with splits, merges and new tokens.
func newRaggedHanging(t *testing.T, o megakernel.Options) *hanging {
	t.Helper()
	o.Fault, o.Draws = megakernel.FaultLostArrival, true
	mk := raggedShape(t, 3, 1, 120, 96, o)
	p, x := newPlay(t, mk, 16, 40, 5)
	h := &hanging{ir: mk.IR, seeds: 2 * mutantSeeds, launch: func(ctx context.Context, sim *runtime.Sim) error {
		s, err := p.open(ctx, sim)
		if err != nil {
			return err
		}
		s.HangTimeout = time.Minute
		_, err = s.Run(ctx, batch.StepRequest{Sequences: []batch.Sequence{x[0].feed(1, 0), x[1].feed(1, 0)}, Steps: 2})
		return err
	}}
	h.mustHang(t)
	return h
}

// mustHang wants the kernel itself to leave in good order under all schedules.
func (h *hanging) mustHang(t *testing.T) {
	t.Helper()
	for seed := range h.seeds {
		report, err := h.run(t.Context(), h.ir, seed)
		require.NoError(t, err)
		require.Empty(t, report)
	}
}

// run launches k; a report is what shows that it is broken: a deadlock, since it does not leave,
// or it touches what it must not when it leaves.
func (h *hanging) run(ctx context.Context, k *ir.Kernel, seed uint64) (report string, err error) {
	sim, err := runtime.NewSim(k, seed)
	if err != nil {
		return "", err
	}
	err = h.launch(ctx, sim)
	var hang *runtime.HangError
	var fault *interp.Fault
	switch {
	case errors.As(err, &hang):
		return "", nil
	case errors.As(err, &fault):
		return fault.Kind.String(), nil
	case err == nil:
		return "does not hang", nil
	}
	return "", err
}

// tryAgain runs what survived elsewhere and the table does not explain.
func (h *hanging) tryAgain(t *testing.T, outcomes []outcome, but mutate.Excuses) {
	t.Helper()
	here := map[string]mutate.Mutation{}
	for _, m := range mutantsOf(h.ir) {
		here[m.id] = m.Mutation
	}
	for i, o := range outcomes {
		m, ok := here[o.id]
		if !ok || o.Report != "" || but.Of(o.Mutation) != nil {
			continue
		}
		k, err := mutate.Apply(h.ir, m)
		require.NoError(t, err)
		for seed := range h.seeds {
			outcomes[i].Runs++
			if outcomes[i].Report, err = h.run(t.Context(), k, seed); err != nil || outcomes[i].Report != "" {
				outcomes[i].Seed = seed
				break
			}
		}
		require.NoError(t, err)
	}
}

// The full watchdog's own synchronisation: no copy outlives its CTA.
func TestMutantsOfTheFullWatchdogAreReported(t *testing.T) {
	deep.Only(t)
	for name, h := range map[string]*hanging{
		"one row": newHanging(t, megakernel.WatchAll, 3, 3, 160),
		"ragged": newRaggedHanging(t, megakernel.Options{SMs: 3, Tokens: 4, Page: 4, Consumers: 3, Stages: 3, InFlight: 2,
			StageBytes: 1024, Watchdog: megakernel.WatchAll}),
	} {
		tried := 0
		for _, m := range mutantsOf(h.ir) {
			if m.Region != "" || m.Role != "producer" || m.Class != mutate.Remove && m.Class != mutate.Parity ||
				!strings.Contains(m.Name, "@full") {
				continue
			}
			tried++
			o := []outcome{{mutant: m}}
			h.tryAgain(t, o, singleExcuses)
			require.NotEmpty(t, o[0].Report, "%s: %s", name, m)
		}
		require.Positive(t, tried, name)
	}
}
