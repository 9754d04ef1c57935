package runtime_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// raggedStep is how many tokens each of four sequences has in a step; 0: it has no part in it.
type raggedStep [4]int

// raggedSteps are prompts side by side, a prompt beside sequences that decode, first and last of all, and a step of one
// token each. The third sequence begins with the first one's pages.
var raggedSteps = []raggedStep{{37, 21, 0, 5}, {1, 30, 6, 1}, {0, 1, 1, 40}, {1, 1, 1, 1}}

// splitSteps are of sequences that see two blocks of attention in the end: a prompt, one beside it, and all of them.
var splitSteps = []raggedStep{{120, 5, 0, 2}, {1, 100, 20, 1}, {20, 30, 1, 1}}

// sharedTokens are those of the first sequence that the third one begins with: cached, where its first step begins.
const sharedTokens = 32

// raggedPrompts are tiny's float64 logits behind each token of the sequences, and their tokens.
func raggedPrompts(t *testing.T, c models.Config, steps []raggedStep,
	hooks reference.Hooks) (tokens [4][]int, logits [4][][]float64) {
	t.Helper()
	ref := reference.Synthetic(c, 1)
	for i := range tokens {
		n := 0
		for _, step := range steps {
			n += step[i]
		}
		tokens[i] = synth.Tokens(uint64(10+i), 0, n, c.Vocab)
		if i == 2 {
			tokens[i] = slices.Concat(tokens[0][:sharedTokens], tokens[i])
		}
		m, err := reference.NewModel(c, ref, hooks)
		require.NoError(t, err)
		for _, token := range tokens[i] {
			logits[i] = append(logits[i], m.Step(token))
		}
	}
	return tokens, logits
}

// Steps of several sequences, of prompts and of those that decode, give the float64 reference's logits behind each of
// them, whatever the pages, warpgroups and clusters, and also where one begins with another one's pages.
func TestAPrefillStepOfSeveralSequences(t *testing.T) {
	ofValues(t)
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	tokens, want := raggedPrompts(t, c, raggedSteps, reference.Hooks{})
	for i, x := range []struct {
		page int
		o    megakernel.PrefillOptions
	}{
		{16, megakernel.PrefillOptions{Tokens: 128, Groups: 1, Cluster: 2, Sequences: 4}},
		{1, megakernel.PrefillOptions{Tokens: 64, Groups: 1, Cluster: 1, Sequences: 5}},
		{4, megakernel.PrefillOptions{Tokens: 64, Groups: 2, Cluster: 1, Sequences: 4}},
		{8, megakernel.PrefillOptions{Tokens: 64, Groups: 1, Cluster: 2, Sequences: 16}},
		{32, megakernel.PrefillOptions{Tokens: 256, Groups: 2, Cluster: 2, Sequences: 4}},
	} {
		if !deep.On() && i > 1 {
			continue
		}
		t.Run(fmt.Sprintf("%d %+v", x.page, x.o), func(t *testing.T) {
			schedules := 1
			if i == 0 {
				schedules = deep.Count(len(interp.Policies()), 1)
			}
			for seed := range schedules {
				runRagged(t, c, raggedSteps, megakernel.Options{Page: x.page}, nil, x.o, uint64(seed+i), tokens, want)
			}
		})
	}
}

// So do steps that split keys and values, of sequences that see one part and of those that see two.
func TestAPrefillStepOfSeveralSequencesInParts(t *testing.T) {
	ofValues(t)
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	tokens, want := raggedPrompts(t, c, splitSteps, reference.Hooks{})
	for i, page := range deep.Most([]int{16, 2, 32}, 1) {
		o := megakernel.PrefillOptions{Tokens: 128, Groups: 1, Cluster: 1 + min(1, page/8), Sequences: 4}
		p := runRagged(t, c, splitSteps, megakernel.Options{Page: page}, nil, o, uint64(i), tokens, want)
		last := []megakernel.Sequence{{New: 20, Cached: 121}, {New: 30, Cached: 105}, {New: 1, Cached: 52},
			{New: 1, Cached: 3}}
		require.Equal(t, 2, p.Parts(last, p.SplitMost(last)))
	}
}

// runRagged runs the steps under a schedule.
func runRagged(t *testing.T, c models.Config, steps []raggedStep, of megakernel.Options, scales []float32,
	o megakernel.PrefillOptions, seed uint64, tokens [4][]int, want [4][][]float64) *megakernel.Prefill {
	t.Helper()
	page, limit := of.Page, 0.03
	if scales != nil {
		limit = 0.05 // some codes are rounded the other way; a cache of bf16 makes 0.07 to 0.13
	}
	of.SMs = 4
	mk, err := megakernel.Build(c, of)
	require.NoError(t, err)
	p, err := megakernel.BuildPrefill(mk, o)
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	wide, err := runtime.NewSim(p.IR, seed)
	require.NoError(t, err)
	pages := 3 * 176 / page
	_, err = runtime.OpenSequence(t.Context(), mk, sim,
		runtime.FromTensors(synth.NewWeights(1, c), runtime.LoadOptions{}),
		runtime.Options{Pages: pages, Table: []uint32{0}, KVScales: scales})
	require.NoError(t, err)
	r, err := runtime.OpenPrefill(p, wide, sim, pages, 0)
	require.NoError(t, err)
	var tables [4][]uint32
	next := uint32(0)
	for i := range tables {
		if i == 2 {
			tables[i] = slices.Clone(tables[0][:sharedTokens/page])
		}
		for len(tables[i])*page < len(tokens[i]) {
			tables[i] = append(tables[i], (7*next+3)%uint32(pages))
			next++
		}
	}
	require.LessOrEqual(t, int(next), pages)
	cached := [4]int{2: sharedTokens}
	logits := make([]float32, c.Vocab)
	for _, step := range steps {
		var of []batch.Sequence
		var who []int
		for i, n := range step {
			if n > 0 {
				of = append(of, batch.Sequence{New: tokens[i][cached[i]:][:n], Cached: cached[i],
					Pages: tables[i][:(cached[i]+n+page-1)/page]})
				who = append(who, i)
				cached[i] += n
			}
		}
		r.SplitMost = true // of sequences that see more than a block of attention
		chosen, err := r.RunAll(t.Context(), of, false)
		require.NoError(t, err, "%v, seed %d", step, seed)
		for k, i := range who {
			require.NoError(t, r.Logits(k, logits))
			require.Equal(t, slices.Index(logits, slices.Max(logits)), chosen[k])
			apart := relative([][]float64{want[i][cached[i]-1]}, [][]float64{widened(logits)})
			require.Less(t, apart, limit, "%v: sequence %d", step, i)
		}
	}
	return p
}

// In a bundle a launch of several sequences with more tokens than a step has rows goes through the prefill kernel, in
// which one that decodes and a prompt choose what each would alone, also drawn on the host.
func TestABundleTakesThePrefillKernelForSequencesBesideAPrompt(t *testing.T) {
	ofValues(t)
	decoding, prompt := synth.Tokens(5, 0, 17, 320), synth.Tokens(6, 0, 23, 320)
	want := chosenAlone(t, 2, decoding, prompt)
	all := members(t, megakernel.Options{Page: 4}, 2)
	b, err := openBundle(t, all, runtime.Options{Steps: 3})
	require.NoError(t, err)
	require.Equal(t, 1, b.PrefillSequences())
	p, err := megakernel.BuildPrefill(all[0].Kernel, megakernel.PrefillOptions{Tokens: 64, Groups: 1, Sequences: 2})
	require.NoError(t, err)
	sim, err := runtime.NewSim(p.IR, 3)
	require.NoError(t, err)
	require.NoError(t, b.AddPrefill(p, sim))
	require.NoError(t, b.SetEnds(nil))
	require.Equal(t, 2, b.PrefillSequences())
	launch := func(of ...batch.Sequence) []int {
		got, err := b.Run(t.Context(), batch.StepRequest{Sequences: of, Steps: 1})
		require.NoError(t, err)
		return got[0]
	}
	a := batch.Sequence{New: decoding, Pages: []uint32{6, 2, 9, 4, 0}}
	require.Equal(t, want[0][:1], launch(a))
	a.New, a.Cached = want[0][:1], len(decoding)
	c := batch.Sequence{New: prompt, Pages: []uint32{1, 3, 5, 7, 8, 10}}
	require.Equal(t, []int{want[0][1], want[1][0]}, launch(a, c))
	sampled := sampling.Params{Temperature: 5, Seed: 3}
	c.Draw = sampled.Rule(&sampling.Penalties{}, nil, nil, 0)
	logits := make([]float32, 320)
	drawn := launch(a, c)
	require.NoError(t, b.Logits(1, logits))
	token, err := sampling.Sample(logits, sampled, len(prompt))
	require.NoError(t, err)
	require.Equal(t, []int{want[0][1], token}, drawn)
	require.ErrorContains(t, b.Logits(2, logits), "logits of sequence 2, the last launch had 2")
	_, err = b.Run(t.Context(), batch.StepRequest{Sequences: []batch.Sequence{a, c, c}, Steps: 1})
	require.Error(t, err)
}
