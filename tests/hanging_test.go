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

// hangingSubject is a kernel with a lost arrival at a grid barrier, so that every launch is given up: what a kernel
// does then is all that differs from other subjects. Launch runs it on the device, which a *HangError must end, else it
// is broken: a deadlock, since it does not leave, or it touches what it must not when it leaves.
func hangingSubject(t *testing.T, k *ir.Kernel, launch func(ctx context.Context, sim *runtime.Sim) error) *subject {
	t.Helper()
	s := &subject{ir: k, seeds: 2 * mutantSeeds,
		run: func(ctx context.Context, k *ir.Kernel, seed uint64) (report, place string, err error) {
			sim, err := runtime.NewSim(k, seed)
			if err != nil {
				return "", "", err
			}
			err = launch(ctx, sim)
			var hang *runtime.HangError
			var fault *interp.Fault
			switch {
			case errors.As(err, &hang):
				return "", "", nil
			case errors.As(err, &fault):
				return fault.Kind.String(), "", nil
			case err == nil:
				return "does not hang", "", nil
			}
			return "", "", err
		}}
	s.mustPass(t) // the kernel itself leaves in good order
	return s
}

// newHanging is tiny, with some sizes changed.
func newHanging(t *testing.T, watchdog megakernel.Watchdog, sms, consumers, vocab int) *subject {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Intermediate, c.Vocab, c.BOS, c.EOS = 160, vocab, models.NoToken, nil
	mk, err := megakernel.Build(c, megakernel.Options{SMs: sms, Splits: 2, Consumers: consumers, Stages: 3, InFlight: 2,
		Unsplit: megakernel.UnsplitNone, Fault: megakernel.FaultLostArrival, Watchdog: watchdog})
	require.NoError(t, err)
	return hangingSubject(t, mk.IR, func(_ context.Context, sim *runtime.Sim) error {
		s, err := runtime.NewSequence(mk, sim, synth.NewWeights(1, mk.Config), 2, nil, 0)
		if err != nil {
			return err
		}
		s.HangTimeout = time.Minute // the executor knows a hang at once
		_, err = s.Generate([]int{5, 6}, 2)
		return err
	})
}

// newRaggedHanging is a ragged kernel that hangs, with splits, merges and new tokens.
func newRaggedHanging(t *testing.T, o megakernel.Options) *subject {
	t.Helper()
	o.Fault, o.Draws = megakernel.FaultLostArrival, true
	mk := raggedShape(t, 3, 1, 120, 96, o)
	p, x := newPlay(t, mk, 16, 40, 5)
	return hangingSubject(t, mk.IR, func(ctx context.Context, sim *runtime.Sim) error {
		s, err := p.open(ctx, sim)
		if err != nil {
			return err
		}
		s.HangTimeout = time.Minute
		_, err = s.Run(ctx, batch.StepRequest{Sequences: []batch.Sequence{x[0].feed(1, 0), x[1].feed(1, 0)}, Steps: 2})
		return err
	})
}

// The full watchdog's own synchronisation: no copy outlives its CTA.
func TestMutantsOfTheFullWatchdogAreReported(t *testing.T) {
	deep.Only(t)
	for name, s := range map[string]*subject{
		"one row": newHanging(t, megakernel.WatchAll, 3, 3, 160),
		"ragged": newRaggedHanging(t, megakernel.Options{SMs: 3, Tokens: 4, Page: 4, Consumers: 3, Stages: 3, InFlight: 2,
			StageBytes: 1024, Watchdog: megakernel.WatchAll}),
	} {
		var copies []mutant
		for _, m := range mutantsOf(s.ir) {
			if m.Region == "" && m.Role == "producer" && (m.Class == mutate.Remove || m.Class == mutate.Parity) &&
				strings.Contains(m.Name, "@full") {
				copies = append(copies, m)
			}
		}
		require.NotEmpty(t, copies, name)
		for _, o := range s.tryAll(t, copies, nil) {
			require.NotEmpty(t, o.Report, "%s: %s", name, o)
		}
	}
}
