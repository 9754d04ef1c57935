package tests

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// stepsOf feeds tokens one a launch and then lets a launch choose more; it returns the
// logits of the steps fed and all tokens chosen.
func stepsOf(t *testing.T, mk *megakernel.Kernel, seed, weightSeed uint64, tokens []int,
	more int) (logits [][]float32, chosen []int) {
	t.Helper()
	var sim *runtime.Sim
	var err error
	if mk.Graph != nil {
		sim, err = runtime.NewSimGraph(mk.Graph, seed)
	} else {
		sim, err = runtime.NewSim(mk.IR, seed)
	}
	require.NoError(t, err)
	pages := (len(tokens)+more+mk.KV.Page-1)/mk.KV.Page + 1
	s, err := runtime.NewSequence(mk, sim, synth.NewWeights(weightSeed, mk.Config), pages, nil, 0)
	require.NoError(t, err)
	for _, id := range tokens {
		next, err := s.Step(id)
		require.NoError(t, err, "seed %d, position %d", seed, s.Pos())
		row := make([]float32, mk.Config.Vocab)
		require.NoError(t, s.Logits(row))
		logits, chosen = append(logits, row), append(chosen, next)
	}
	if more > 0 {
		last, err := s.Generate([]int{chosen[len(chosen)-1]}, more)
		require.NoError(t, err)
		chosen = append(chosen, last...)
	}
	require.NoError(t, sim.Close())
	return logits, chosen
}

// A graph of the phases' kernels makes the same bits as the single kernel with the same
// sizes, which passes queries and states in words, whenever a kernel lets the next one start.
func TestAGraphOfKernelsComputesWhatTheSingleKernelDoes(t *testing.T) {
	g, c := readGolden(t, "tiny_hf.json")
	tokens := g.Tokens[:min(19, len(g.Tokens))]
	base := megakernel.Options{SMs: 3, Splits: 2, StageBytes: 2048, Stages: 5, InFlight: 2, Consumers: 3,
		Vectors: string(megakernel.SyncBarrier)} // packets round the residual vector
	one, err := megakernel.Build(c, base)
	require.NoError(t, err)
	wantLogits, want := stepsOf(t, one, 1, g.Seed, tokens, 3)
	for i, dependents := range deep.Most(megakernel.AllDependents(), 2) {
		t.Run(string(dependents), func(t *testing.T) {
			t.Parallel()
			o := base
			o.Launch, o.Dependents = megakernel.LaunchGraph, dependents
			mk, err := megakernel.Build(c, o)
			require.NoError(t, err)
			logits, got := stepsOf(t, mk, uint64(10+i), g.Seed, tokens, 3)
			require.Equal(t, want, got)
			require.Equal(t, wantLogits, logits)
		})
	}
}

// The same for attention that is not plain, a float8 cache, heads of other sizes with rows
// and columns to pad, an LM head of its own, and SMs without work.
func TestGraphsOfOtherKernelsComputeWhatTheSingleOnesDo(t *testing.T) {
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	odd := tiny
	odd.Name, odd.Hidden, odd.Intermediate, odd.Heads, odd.KVHeads, odd.HeadDim, odd.Vocab = "odd", 104, 296, 3, 1, 48, 333
	odd.TieEmbeddings, odd.Rope.Scaling = false, nil
	for name, test := range map[string]struct {
		c models.Config
		o megakernel.Options
	}{
		"window in turns, head scales": {tiny,
			megakernel.Options{SMs: 2, Splits: 2, Attention: "window=6+sinks=2+head-scale/head-scale", Consumers: 2}},
		"streaming, alibi, e4m3": {tiny, megakernel.Options{SMs: 3, KV: "e4m3", Attention: "streaming=9+alibi", Consumers: 2,
			Page: 1}},
		"odd": {odd, megakernel.Options{SMs: 25, Consumers: 2}},
	} {
		if !deep.On() && name != "streaming, alibi, e4m3" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.o.Unsplit, test.o.Vectors = megakernel.UnsplitNone, string(megakernel.SyncBarrier) // as in graphs
			one, err := megakernel.Build(test.c, test.o)
			require.NoError(t, err)
			o := one.Options
			o.Launch, o.Queries, o.Merge, o.Vectors, o.Leads, o.Held = megakernel.LaunchGraph, "", "", "", "", 0
			graph, err := megakernel.Build(test.c, o)
			require.NoError(t, err)
			tokens := []int{1, 5, 300, 2, 7, 7, 11, 90, 4, 8, 250, 3}
			wantLogits, want := stepsOf(t, one, 1, 5, tokens, 2)
			logits, got := stepsOf(t, graph, 2, 5, tokens, 2)
			require.Equal(t, want, got)
			require.Equal(t, wantLogits, logits)
		})
	}
}

// An end token and the host's stop end a launch: what is queued behind changes nothing,
// and the session goes on from there.
func TestALaunchOfAGraphEndsEarly(t *testing.T) {
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(tiny, megakernel.Options{SMs: 2, Consumers: 2, Launch: megakernel.LaunchGraph})
	require.NoError(t, err)
	open := func() (*runtime.Sequence, *runtime.Sim) {
		sim, err := runtime.NewSimGraph(mk.Graph, 1)
		require.NoError(t, err)
		s, err := runtime.NewSequence(mk, sim, synth.NewWeights(3, tiny), 4, nil, 0)
		require.NoError(t, err)
		return s, sim
	}
	whole, _ := open()
	all, err := whole.Generate([]int{1, 2, 3}, 12)
	require.NoError(t, err)
	require.Len(t, all, 12)
	end := slices.IndexFunc(all, func(id int) bool { return id != all[0] })
	require.Positive(t, end)
	s, _ := open()
	require.NoError(t, s.SetEnds([]int{all[end]}))
	got, err := s.Generate([]int{1, 2, 3}, 12)
	require.NoError(t, err)
	require.Equal(t, all[:end+1], got)
	require.Equal(t, 3+end, s.Pos())
	require.NoError(t, s.SetEnds(nil))
	rest, err := s.Generate(got[end:], 12-end-1)
	require.NoError(t, err)
	require.Equal(t, all[end+1:], rest)

	stopped, _ := open()
	some, err := stopped.Stream(t.Context(), []int{1, 2, 3}, 12, func(int) bool { return false })
	require.NoError(t, err)
	require.Equal(t, all[:len(some)], some)
	require.Equal(t, 2+len(some), stopped.Pos())
}

func TestASessionWantsADeviceOfItsKind(t *testing.T) {
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(tiny, megakernel.Options{SMs: 2, Launch: megakernel.LaunchGraph})
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	_, err = runtime.NewSequence(mk, sim, synth.NewWeights(3, tiny), 4, nil, 0)
	require.ErrorContains(t, err, "a step that is a graph of kernels and a device that is loaded with one kernel")
}

// Removing any kernel's wait for the kernel before is reported, and so is what breaks the
// last SM's choice of the token.
func TestMutantsOfAGraphAreReported(t *testing.T) {
	deep.Only(t)
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Intermediate, c.Vocab, c.BOS, c.EOS = 160, 48, models.NoToken, nil
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 3, Splits: 2, Consumers: 2, Stages: 3, InFlight: 2,
		Launch: megakernel.LaunchGraph})
	require.NoError(t, err)
	run := func(g *ir.Graph, seed uint64) error {
		sim, err := runtime.NewSimGraph(g, seed)
		require.NoError(t, err)
		s, err := runtime.NewSequence(mk, sim, synth.NewWeights(3, c), 2, nil, 0)
		require.NoError(t, err)
		chosen, err := s.Generate([]int{1, 2}, 2)
		if err == nil && len(chosen) != 2 {
			err = &runtime.ResultError{Text: "tokens are missing"}
		}
		return err
	}
	waits, survivors := 0, []string{}
	for i, k := range mk.Graph.Kernels {
		for _, m := range mutate.List(k) {
			wait := m.Name == "remove griddep.wait"
			if !wait && (m.Region != "choose" || m.Class == mutate.Earlier || m.Class == mutate.Later) {
				continue
			}
			if wait {
				waits++
			}
			broken, err := mutate.Apply(k, m)
			require.NoError(t, err)
			g := *mk.Graph
			g.Kernels = slices.Clone(g.Kernels)
			g.Kernels[i] = broken
			reported := false
			for seed := uint64(1); seed <= 8 && !reported; seed++ {
				err := run(&g, seed)
				var fault *interp.Fault
				var wrong *runtime.ResultError
				reported = errors.As(err, &fault) || errors.As(err, &wrong)
				require.True(t, reported || err == nil, "%v", err)
			}
			if !reported {
				survivors = append(survivors, fmt.Sprintf("%s: %s", k.Name, m.Name))
			}
		}
	}
	require.Equal(t, len(mk.Graph.Kernels), waits)
	// The count is cleared by the SM that found it complete, and is next used behind this
	// kernel's end, which orders any store.
	require.Equal(t, []string{"mkgen_lm_head: weaken st @finished: relaxed to weak",
		"mkgen_lm_head: weaken st @finished: scope gpu to cta"}, survivors)
}
