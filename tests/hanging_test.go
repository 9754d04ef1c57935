package tests

import (
	"errors"
	"strings"
	"testing"
	"time"

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

// hanging is tiny with a lost arrival at a grid barrier, so that every launch is
// given up: what a kernel does then is all that differs from other subjects.
type hanging struct {
	mk    *megakernel.Kernel
	seeds uint64
}

func newHanging(t *testing.T, watchdog megakernel.Watchdog, sms, consumers, vocab int) *hanging {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Intermediate, c.Vocab, c.BOS, c.EOS = 160, vocab, models.NoToken, nil
	mk, err := megakernel.Build(c, megakernel.Options{SMs: sms, Splits: 2, Consumers: consumers, Stages: 3, InFlight: 2, Fault: megakernel.FaultLostArrival, Watchdog: watchdog})
	require.NoError(t, err)
	h := &hanging{mk: mk, seeds: 2 * mutantSeeds}
	for seed := range h.seeds {
		report, err := h.run(mk.IR, seed)
		require.NoError(t, err)
		require.Empty(t, report)
	}
	return h
}

// run launches k; a report is what shows that it is broken: it does not leave,
// or it touches what it must not when it leaves.
func (h *hanging) run(k *ir.Kernel, seed uint64) (report string, err error) {
	sim, err := runtime.NewSim(k, seed)
	if err != nil {
		return "", err
	}
	s, err := runtime.NewSession(h.mk, sim, synth.NewWeights(1, reference.ShapeOf(h.mk.Config).Dims()), 2, nil, 0)
	if err != nil {
		return "", err
	}
	s.HangTimeout = time.Minute // the executor knows a hang at once
	_, err = s.Generate([]int{5, 6}, 2)
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
	return "does not leave", nil
}

// tryAgain runs what survived elsewhere and redundant does not explain.
func (h *hanging) tryAgain(t *testing.T, outcomes []outcome) {
	t.Helper()
	here := map[string]mutate.Mutation{}
	for _, m := range mutantsOf(h.mk.IR) {
		here[m.id] = m.Mutation
	}
	for i, o := range outcomes {
		m, ok := here[o.id]
		if !ok || o.Report != "" || explain(t, o.Mutation) != nil {
			continue
		}
		k, err := mutate.Apply(h.mk.IR, m)
		require.NoError(t, err)
		for seed := range h.seeds {
			if outcomes[i].Report, err = h.run(k, seed); err != nil || outcomes[i].Report != "" {
				outcomes[i].Seed = seed
				break
			}
		}
		require.NoError(t, err)
	}
}

// The full watchdog's own synchronisation: no copy outlives its CTA.
func TestMutantsOfTheFullWatchdogAreReported(t *testing.T) {
	h := newHanging(t, megakernel.WatchAll, 3, 3, 160)
	tried := 0
	for _, m := range mutantsOf(h.mk.IR) {
		if m.Region != "" || m.Role != "producer" || m.Class != mutate.Remove && m.Class != mutate.Parity || !strings.Contains(m.Name, "@full") {
			continue
		}
		tried++
		o := []outcome{{mutant: m}}
		h.tryAgain(t, o)
		require.NotEmpty(t, o[0].Report, m.String())
	}
	require.Positive(t, tried)
}
