package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// hashed allows a few tokens that depend on all tokens before: with another step's mask an answer is another one.
type hashed struct {
	vocab int
	hash  uint64
}

func (h *hashed) allows(token int) bool {
	x := (h.hash + uint64(token) + 1) * 0x9e3779b97f4a7c15
	return (x^x>>29)%16 == 0 || token == int(h.hash%uint64(h.vocab))
}

func (h *hashed) Mask(allowed []uint32) {
	clear(allowed)
	for token := range h.vocab {
		if h.allows(token) {
			allowed[token/32] |= 1 << (token % 32)
		}
	}
}

func (h *hashed) Accept(token int) error {
	if !h.allows(token) {
		return fmt.Errorf("token %d, which the mask of its step does not allow", token)
	}
	h.hash = (h.hash ^ uint64(token)) * 0x100000001b3
	return nil
}

// launches counts those of a device, and how often their logits were read.
type launches struct {
	*runtime.Sim
	n      int
	logits int // how often logits were read
}

func (l *launches) Read(name string, offset int64, dst []byte) error {
	if strings.Contains(name, "logits") {
		l.logits++
	}
	return l.Sim.Read(name, offset, dst)
}

func (l *launches) Start(scalars map[string]uint64) error {
	l.n++
	return l.Sim.Start(scalars)
}

// A launch of many tokens has the mask of each step while it runs: the tokens are those of a launch a token, beside
// others without a mask, with penalties, with log-probabilities, which come later than the host needs the tokens for
// masks, and where the host ends a launch for something new.
func TestMaskedTokensOfALaunchAreThoseOfOneALaunch(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, rows := range deep.Most([]int{3, 1}, 1) {
		answers := func(perLaunch int, late bool) (all []engine.Result, ran int) {
			mk, err := megakernel.Build(c, megakernel.Options{SMs: 3, Tokens: rows, Draws: true})
			require.NoError(t, err)
			sim, err := runtime.NewSim(mk.IR, 5)
			require.NoError(t, err)
			device, pin := &launches{Sim: sim}, 0
			if rows > 1 {
				pin = 2 * mk.ChunkTokens()
			}
			e, err := engine.New(t.Context(), engine.Options{Kernel: mk, Device: device, KVTokens: 192, Ends: []int{}, Pin: pin,
				TokensPerLaunch: perLaunch, Weights: runtime.FromTensors(synth.NewWeights(1, c), runtime.LoadOptions{})})
			require.NoError(t, err)
			defer func() { require.NoError(t, e.Close()) }()
			var streams []*engine.Stream
			ask := func(i int) {
				r := engine.Request{Tokens: synth.Tokens(uint64(i), 0, 5, c.Vocab), MaxTokens: deep.Count(24, 12),
					Sampling: draws[i%4]}
				if i != 1 {
					r.Mask = &hashed{c.Vocab, uint64(i)}
				}
				if i > 1 {
					r.Penalties = penalties
				}
				if r.Logprobs = i%2 == 0; r.Logprobs {
					r.TopLogprobs = 2
				}
				s, err := e.Submit(t.Context(), r)
				require.NoError(t, err)
				streams = append(streams, s)
			}
			for i := range rows {
				ask(i)
			}
			if late {
				for range 2 {
					streams[0].Next()
				}
			}
			ask(rows)
			for _, s := range streams {
				got, err := s.Wait()
				require.NoError(t, err)
				all = append(all, got)
			}
			return all, device.n
		}
		want, each := answers(1, false)
		for _, late := range []bool{false, true} {
			got, ran := answers(16, late)
			require.Less(t, ran, each/2, "launches")
			for i := range want {
				require.Equal(t, want[i].Tokens, got[i].Tokens, "request %d", i)
				require.Equal(t, want[i].Logprobs, got[i].Logprobs, "request %d", i)
			}
		}
	}
}

// Without the wait for a step's masks, or with a weaker one, a launch chooses with masks of the step before.
func TestMutantsOfTheWaitForMasksAreReported(t *testing.T) {
	deep.Only(t)
	start := time.Now()
	// so large a vocabulary that a thread has several loads of masks: of its first logits, and ahead in the loop
	first := playSubject(t, 1, 120, 832, 0, megakernel.Options{SMs: 2, Tokens: 8, Consumers: 3, StageBytes: 1024,
		Draws: true})
	var chosen []mutant
	for _, m := range mutantsOf(first.ir) {
		if strings.Contains(m.Name, "masks") {
			chosen = append(chosen, m)
		}
	}
	require.Len(t, chosen, 11, "5 of the wait, 2 of each of the 3 loads behind it")
	judge(t, "mutants of masks", first.tryAll(t, chosen, nil), nil, nil, start)
}

// A mask that is no mask ends the launch with an error, and the session goes on; as does one whose listener wants no
// more.
func TestALaunchThatWaitsForMasksEnds(t *testing.T) {
	p, x := newPlay(t, raggedShape(t, 3, 1, 120, 96, megakernel.Options{SMs: 2, Tokens: 8, Consumers: 3, StageBytes: 1024,
		Draws: true}), 32, 70)
	sim, err := runtime.NewSim(p.mk.IR, 1)
	require.NoError(t, err)
	s, err := p.open(t.Context(), sim)
	require.NoError(t, err)
	s.HangTimeout = time.Minute
	q := batch.StepRequest{Sequences: []batch.Sequence{x[0].feed(1, 0)}, Steps: 4}
	q.Sequences[0].Draw.SetMask(maskOf(p.mk, 0, 0))
	q.Mask = func(int) []uint32 { return maskOf(p.mk, 0, 0)[:1] }
	_, err = s.Run(t.Context(), q)
	require.ErrorContains(t, err, "row 0: a mask of 1 words, want 3")
	steps := 0
	q.Mask = func(int) []uint32 { return maskOf(p.mk, steps, 0) }
	q.Each = func([]int) bool { steps++; return steps < 2 }
	got, err := s.Run(t.Context(), q)
	require.NoError(t, err)
	require.Len(t, got, 2, "the steps that had a mask")
	for i, tokens := range got {
		require.Equal(t, i, tokens[0]%4)
	}
	q.Sequences[0].Draw.SetTops(3)
	steps = 0
	got, err = s.Run(t.Context(), q)
	require.NoError(t, err)
	require.Len(t, got, 2)
	scores, err := s.Scores()
	require.NoError(t, err)
	for i, tokens := range got {
		l, err := scores(0, i, tokens[0])
		require.NoError(t, err)
		require.Len(t, l.Top, 3)
	}
}
