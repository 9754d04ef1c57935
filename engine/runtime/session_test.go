package runtime_test

import (
	"context"
	"testing"
	"time"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// raggedOnSim is a session of several rows of tiny on the executor with 12 pages of 4.
func raggedOnSim(t *testing.T, tokens int, o runtime.Options) (*runtime.Session, *runtime.Sim) {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Tokens: tokens, Page: 4})
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	o.Pages, o.Guard = 12, 11
	s, err := runtime.Open(t.Context(), mk, sim, runtime.FromTensors(synth.NewWeights(1, c), runtime.LoadOptions{}), o)
	require.NoError(t, err)
	return s, sim
}

// chosenAlone is what a kernel of one row chooses.
func chosenAlone(t *testing.T, n int, prompts ...[]int) [][]int {
	t.Helper()
	var out [][]int
	for _, p := range prompts {
		s, _ := onSim(t, megakernel.Options{SMs: 2})
		chosen, err := s.Generate(p, n)
		require.NoError(t, err)
		out = append(out, chosen)
	}
	return out
}

// run is a launch that goes well.
func run(t *testing.T, r *runtime.Session, steps int, qs ...batch.Sequence) [][]int {
	t.Helper()
	got, err := r.Run(t.Context(), batch.StepRequest{Sequences: qs, Steps: steps})
	require.NoError(t, err)
	return got
}

// ofValues skips with -short what tests the executor's values alone: CI's race
// detector sees one goroutine there, and takes minutes for it.
func ofValues(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("values of long runs on the executor, with -short")
	}
}

// A quiet launch leaves the cache as one that chooses does, and has no logits.
func TestAQuietLaunchFeedsAndChoosesNothing(t *testing.T) {
	ofValues(t)
	prompt := []int{5, 6, 7, 8, 9, 10, 11}
	want := chosenAlone(t, 3, prompt)[0]
	r, _ := raggedOnSim(t, 4, runtime.Options{Steps: 8})
	s := batch.Sequence{New: prompt[:4], Pages: []uint32{6, 2, 9}}
	quiet := batch.StepRequest{Sequences: []batch.Sequence{s}, Steps: 1, Quiet: true}
	got, err := r.Run(t.Context(), quiet)
	require.NoError(t, err)
	require.Equal(t, [][]int{{batch.NoToken}}, got)
	require.ErrorContains(t, r.Logits(0, make([]float32, 320)), "logits of a launch that made none")
	require.ErrorContains(t, r.RowLogits(0, make([]float32, 320)), "logits of a launch that made none")
	s.New, s.Cached = prompt[4:], 4
	require.Equal(t, want[0], run(t, r, 1, s)[0][0])
	require.NoError(t, r.Logits(0, make([]float32, 320)))
	quiet.Steps = 2
	_, err = r.Run(t.Context(), quiet)
	require.ErrorContains(t, err, "2 steps of which nobody wants the tokens, want 1")
}

// A sequence fed in pieces beside another one chooses what it chooses alone, a
// token a step.
func TestRowsOfTwoSequencesChooseWhatEachChoosesAlone(t *testing.T) {
	ofValues(t)
	prompts := [][]int{{5, 6, 7, 8, 9, 10, 11}, {40, 42}}
	want := chosenAlone(t, 6, prompts...)
	r, _ := raggedOnSim(t, 4, runtime.Options{Steps: 8})
	a, b := batch.Sequence{New: prompts[0][:3], Pages: []uint32{6, 2, 9}},
		batch.Sequence{New: prompts[1][:1], Pages: []uint32{1, 3}}
	run(t, r, 1, a, b)
	a.New, a.Cached, b.New, b.Cached = prompts[0][3:6], 3, prompts[1][1:], 1
	got := run(t, r, 1, b, a)
	require.Equal(t, want[1][0], got[0][0])
	logits := make([]float32, 320)
	require.NoError(t, r.Logits(0, logits))
	for _, x := range logits {
		require.LessOrEqual(t, x, logits[want[1][0]])
	}
	require.EqualError(t, r.Logits(2, logits), "logits of sequence 2, the last launch had 2")
	a.New, a.Cached, b.New, b.Cached = prompts[0][6:], 6, want[1][:1], 2
	heard := 0
	got, err := r.Run(t.Context(), batch.StepRequest{Sequences: []batch.Sequence{a, b}, Steps: 5,
		Each: func(chosen []int) bool {
			require.Equal(t, []int{want[0][heard], want[1][heard+1]}, chosen)
			heard++
			return true
		}})
	require.NoError(t, err)
	require.Len(t, got, 5)
	require.Equal(t, 5, heard)
}

// Sequences whose page lists begin alike read the same pages. The prefix has a
// chunk, so the planner makes a unit of it unless it must not.
func TestSequencesOnSharedPagesChooseWhatTheyChooseAlone(t *testing.T) {
	deep.Only(t)
	ofValues(t)
	var prompt []int
	shared := []uint32{4, 2, 10, 0, 7, 6, 9, 5}
	for i := range 4 * len(shared) {
		prompt = append(prompt, 3*i)
	}
	ends := []int{200, 201}
	var prompts [][]int
	for _, end := range ends {
		prompts = append(prompts, append(prompt[:len(prompt):len(prompt)], end))
	}
	want := chosenAlone(t, 2, prompts...)
	for name, o := range map[string]runtime.Options{"shared": {Steps: 2}, "single": {Steps: 2, Single: true},
		"pinned": {Steps: 2, Pin: 128}} {
		t.Run(name, func(t *testing.T) {
			r, _ := raggedOnSim(t, 16, o)
			for i := 0; i < len(prompt); i += 16 {
				run(t, r, 1, batch.Sequence{New: prompt[i : i+16], Cached: i, Pages: shared[:(i+16)/4]})
			}
			var qs []batch.Sequence
			for i, end := range ends {
				qs = append(qs, batch.Sequence{New: []int{end}, Cached: len(prompt), Pages: append(shared[:8:8], uint32(3-2*i))})
			}
			got := run(t, r, 2, qs...)
			for i := range ends {
				require.Equal(t, want[i], []int{got[0][i], got[1][i]}, "sequence %d", i)
			}
		})
	}
}

// An end token of one sequence, a listener and a context end a launch after a whole
// step, and the session goes on.
func TestARaggedLaunchCanBeEnded(t *testing.T) {
	prompts := [][]int{{5}, {40}}
	want := chosenAlone(t, 12, prompts...)
	fresh := []batch.Sequence{{New: prompts[0], Pages: []uint32{0, 1, 2, 3, 4}},
		{New: prompts[1], Pages: []uint32{9, 8, 7, 6, 5}}}
	r, _ := raggedOnSim(t, 2, runtime.Options{Steps: 12})
	check := func(got [][]int) {
		t.Helper()
		for step, chosen := range got {
			require.Equal(t, []int{want[0][step], want[1][step]}, chosen)
		}
	}
	end := 4
	require.NotContains(t, append(want[0][:end:end], want[1][:end+1]...), want[0][end])
	require.NoError(t, r.SetEnds([]int{300, want[0][end]}))
	got := run(t, r, 12, fresh...)
	require.Len(t, got, end+1)
	check(got)
	require.NoError(t, r.SetEnds(nil))

	got, err := r.Run(t.Context(), batch.StepRequest{Sequences: fresh, Steps: 12, Each: func([]int) bool { return false }})
	require.NoError(t, err)
	require.Less(t, len(got), 12)
	check(got)

	ctx, cancel := context.WithCancel(t.Context())
	got, err = r.Run(ctx, batch.StepRequest{Sequences: fresh, Steps: 12, Each: func([]int) bool { cancel(); return true }})
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, len(got), 12)
	check(got)
	got, err = r.Run(ctx, batch.StepRequest{Sequences: fresh, Steps: 12})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, got)
	got = run(t, r, 12, fresh...)
	require.Len(t, got, 12)
	check(got)
	times, err := r.Times(0, 12)
	require.NoError(t, err)
	require.Len(t, times, 12)
}

func TestRaggedLaunchesThatCannotBeAreRefused(t *testing.T) {
	r, _ := raggedOnSim(t, 2, runtime.Options{Steps: 3})
	one := batch.Sequence{New: []int{1}, Pages: []uint32{0}}
	for want, q := range map[string]batch.StepRequest{
		"0 sequences and 1 steps, want at least 1 and 1 to 3": {Steps: 1},
		"1 sequences and 4 steps, want at least 1 and 1 to 3": {Steps: 4,
			Sequences: []batch.Sequence{one}},
		"sequence 0: no token to feed": {Steps: 1, Sequences: []batch.Sequence{{Pages: []uint32{0}}}},
		"sequence 1: token 320, want 0 to 319": {Steps: 1,
			Sequences: []batch.Sequence{one, {New: []int{320}, Pages: []uint32{1}}}},
		"kv: 3 query rows in 3 sequences, the kernel takes 2": {Steps: 1,
			Sequences: []batch.Sequence{one, one, one}},
		"kv: sequence 0: page 12, the cache has 12": {Steps: 1,
			Sequences: []batch.Sequence{{New: []int{1}, Pages: []uint32{12}}}},
		"kv: sequence 0: 1 pages of 4 tokens for 3 cached and 1 new ones, 1 after the first step; want 2 pages": {Steps: 2,
			Sequences: []batch.Sequence{{New: []int{1}, Cached: 3, Pages: []uint32{0}}}},
	} {
		_, err := r.Run(t.Context(), q)
		require.EqualError(t, err, want)
	}
	_, err := r.Run(t.Context(),
		batch.StepRequest{Steps: 1, Sequences: []batch.Sequence{{New: []int{1}, Cached: 1 << 20}}})
	require.ErrorContains(t, err, "sequence 0: position 1048576, the model was made for")
	require.Len(t, run(t, r, 1, one), 1)
}

// A kernel of one row takes one sequence a launch, one of several is no single sequence's, and the guard is a page.
func TestSessionsRefuseWhatTheirKernelCannot(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	weights := runtime.FromTensors(synth.NewWeights(1, c), runtime.LoadOptions{})
	for _, tokens := range []int{1, 2} {
		mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Tokens: tokens})
		require.NoError(t, err)
		sim, err := runtime.NewSim(mk.IR, 1)
		require.NoError(t, err)
		_, err = runtime.Open(t.Context(), mk, sim, weights, runtime.Options{Pages: 3, Guard: 3})
		require.EqualError(t, err,
			"a KV cache of 3 pages, guard 3, and 0 page table entries, want at least 1, a page of it, and at least 0")
		if tokens > 1 {
			_, err = runtime.OpenSequence(t.Context(), mk, sim, weights, runtime.Options{Pages: 3})
			require.EqualError(t, err, "a kernel of 2 query rows a step, want one of 1; others are for Open")
			continue
		}
		s, err := runtime.Open(t.Context(), mk, sim, weights, runtime.Options{Pages: 3, Guard: 2})
		require.NoError(t, err)
		_, err = s.Launch(t.Context(),
			kv.Request{Sequences: []kv.Sequence{{New: 1, Tokens: []uint32{1}, Pages: []uint32{0}}}}, nil)
		require.EqualError(t, err, "a launch of rows by a kernel of one, want Run")
		_, err = s.Choice(0, 0)
		require.ErrorContains(t, err, "after a launch of one row")
	}
}

// A launch that is given up, wherever it stands, is an error, and the next one chooses
// what it would have.
func TestARaggedLaunchThatIsGivenUpLeavesASessionThatGoesOn(t *testing.T) {
	r, sim := raggedOnSim(t, 3, runtime.Options{Steps: 4})
	r.HangTimeout = time.Minute
	qs := []batch.Sequence{{New: []int{5}, Pages: []uint32{3}}, {New: []int{40}, Pages: []uint32{9}}}
	want := run(t, r, 4, qs...)
	for _, at := range []int64{1000, 30000, 60000} {
		sim.ClaimStuck(at)
		_, err := r.Run(t.Context(), batch.StepRequest{Sequences: qs, Steps: 4})
		var hang *runtime.HangError
		require.ErrorAs(t, err, &hang, "after %d instructions", at)
		require.NotEmpty(t, hang.Stuck)
		require.Equal(t, want, run(t, r, 4, qs...))
	}
}
