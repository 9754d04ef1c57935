package runtime_test

import (
	"context"
	"testing"
	"time"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// members are kernels of tiny of n rows each, on executors.
func members(t *testing.T, o megakernel.Options, rows ...int) (all []runtime.Member) {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, n := range rows {
		o.SMs, o.Tokens = 2, n
		mk, err := megakernel.Build(c, o)
		require.NoError(t, err)
		sim, err := runtime.NewSim(mk.IR, 1)
		require.NoError(t, err)
		all = append(all, runtime.Member{Kernel: mk, Device: sim})
	}
	return all
}

func openBundle(t *testing.T, all []runtime.Member, o runtime.Options) (*runtime.Bundle, error) {
	t.Helper()
	o.Pages, o.Guard = 12, 11
	return runtime.OpenBundle(t.Context(), all, runtime.FromTensors(synth.NewWeights(1, all[0].Kernel.Config),
		runtime.LoadOptions{}), o)
}

// ran is whether a member's device has run a launch since the last call.
func ran(m runtime.Member) bool {
	sim := m.Device.(*runtime.Sim)
	was := sim.Last != nil
	sim.Last = nil
	return was
}

// A launch takes the kernel with the fewest rows that fits; all read and write one cache, and
// choose what a kernel of one row chooses alone.
func TestABundleTakesTheNarrowestKernel(t *testing.T) {
	ofValues(t)
	prompt := []int{5, 6, 7, 8, 9, 10, 11, 12, 13}
	want := chosenAlone(t, 5, prompt)[0]
	all := members(t, megakernel.Options{Page: 4}, 2, 1, 8)
	b, err := openBundle(t, all, runtime.Options{Steps: 4})
	require.NoError(t, err)
	require.NoError(t, b.SetEnds(nil))
	b.SetHangTimeout(time.Minute)
	require.Equal(t, 8, b.Rows())
	require.ErrorContains(t, b.Logits(0, nil), "logits before the first launch")
	_, err = b.Scores()
	require.ErrorContains(t, err, "before the first launch")
	logits, pages := make([]float32, 320), []uint32{6, 2, 9, 4}
	launch := func(steps, cached int, quiet bool, feed ...int) [][]int {
		got, err := b.Run(t.Context(),
			batch.StepRequest{Sequences: []batch.Sequence{{New: feed, Cached: cached, Pages: pages}}, Steps: steps,
				Quiet: quiet})
		require.NoError(t, err)
		return got
	}
	only := func(which int) {
		t.Helper()
		for i, m := range all {
			require.Equal(t, i == which, ran(m), "kernel of %d rows", m.Kernel.Options.Tokens)
		}
	}
	require.Equal(t, [][]int{{batch.NoToken}}, launch(1, 0, true, prompt[:6]...))
	only(2)
	require.Equal(t, [][]int{{batch.NoToken}}, launch(1, 6, true, prompt[6]))
	only(1)
	require.Equal(t, want[0], launch(1, 7, false, prompt[7:]...)[0][0])
	only(0)
	require.NoError(t, b.Logits(0, logits))
	got := launch(4, 9, false, want[0])
	only(1)
	require.Equal(t, [][]int{{want[1]}, {want[2]}, {want[3]}, {want[4]}}, got)
	require.NoError(t, b.Logits(0, logits))
	require.ErrorContains(t, b.Logits(1, logits), "logits of sequence 1, the last launch had 1")
	two := batch.StepRequest{Steps: 1, Sequences: []batch.Sequence{{New: []int{want[0]}, Cached: 9, Pages: pages[:3]},
		{New: []int{3}, Pages: []uint32{0}}}}
	together, err := b.Run(t.Context(), two)
	require.NoError(t, err)
	only(0)
	require.Equal(t, want[1], together[0][0])
	require.NoError(t, b.Logits(1, logits))
}

// Beside a kernel without draws one that draws runs the launches in which a sequence draws, of one row and of several,
// and takes the highest logit for the others. Tokens are what the host draws from the logits.
func TestABundleDrawsInKernelsThatCan(t *testing.T) {
	ofValues(t)
	all := append(members(t, megakernel.Options{Page: 4}, 2, 1),
		members(t, megakernel.Options{Page: 4, Draws: true}, 2, 1)...)
	b, err := openBundle(t, all, runtime.Options{Steps: 4})
	require.NoError(t, err)
	sampled := sampling.Params{Temperature: 2, TopK: 40, TopP: 0.9, Seed: 5}
	logits := make([]float32, 320)
	for _, c := range []struct {
		rows []sampling.Params
		ran  int
	}{{[]sampling.Params{{}}, 1}, {[]sampling.Params{sampled}, 3}, {make([]sampling.Params, 2), 0},
		{[]sampling.Params{{}, sampled}, 2}} {
		q := batch.StepRequest{Steps: 1}
		for i, p := range c.rows {
			q.Sequences = append(q.Sequences, batch.Sequence{New: []int{7 + i}, Pages: []uint32{uint32(i)},
				Draw: p.Rule(&sampling.Penalties{}, nil, nil, 0)})
		}
		got, err := b.Run(t.Context(), q)
		require.NoError(t, err)
		for i, m := range all {
			require.Equal(t, i == c.ran, ran(m), "kernel %d", i)
		}
		for i, p := range c.rows {
			require.NoError(t, b.Logits(i, logits))
			want, err := sampling.Sample(logits, p, 1)
			require.NoError(t, err)
			require.Equal(t, want, got[0][i])
		}
	}
}

// What one launch is told while it runs holds in a kernel of one row as in the others.
func TestABundlesLaunchOfOneRowCanBeEnded(t *testing.T) {
	ofValues(t)
	all := members(t, megakernel.Options{Page: 4}, 1, 2)
	b, err := openBundle(t, all, runtime.Options{Steps: 8})
	require.NoError(t, err)
	q := batch.StepRequest{Sequences: []batch.Sequence{{New: []int{5}, Pages: []uint32{1, 2, 3}}}, Steps: 8}
	seen := 0
	q.Each = func([]int) bool { seen++; return seen < 2 }
	got, err := b.Run(t.Context(), q)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(got), 2)
	require.Less(t, len(got), 8)
	require.Equal(t, 2, seen)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.Run(ctx, q)
	require.ErrorIs(t, err, context.Canceled)
}

func TestKernelsThatCannotShareAreRefused(t *testing.T) {
	for _, c := range []struct {
		all  []runtime.Member
		o    runtime.Options
		want string
	}{
		{nil, runtime.Options{}, "a bundle of no kernel, want at least one"},
		{members(t, megakernel.Options{}, 2, 2), runtime.Options{}, "two kernels of 2 rows in a bundle, want one"},
		{members(t, megakernel.Options{}, 4, 2), runtime.Options{Pin: 32},
			"parts pinned at multiples of 32 tokens in a bundle of 2 kernels, the widest of 4 rows; want one, of several rows"},
		{append(members(t, megakernel.Options{Page: 4}, 1), members(t, megakernel.Options{}, 2)...), runtime.Options{},
			"want one model and one cache"},
		{append(members(t, megakernel.Options{MLP: megakernel.MLPFused}, 1), members(t, megakernel.Options{}, 2)...),
			runtime.Options{}, "packed"},
	} {
		_, err := runtime.OpenBundle(t.Context(), c.all, nil, c.o)
		require.ErrorContains(t, err, c.want)
	}
}

// One kernel of one row is a bundle, which has no room for a second sequence.
func TestABundleOfOneRow(t *testing.T) {
	b, err := openBundle(t, members(t, megakernel.Options{Page: 4}, 1), runtime.Options{Steps: 2})
	require.NoError(t, err)
	require.Equal(t, 1, b.Rows())
	require.Positive(t, b.Loaded().Bytes)
	_, err = b.Run(t.Context(),
		batch.StepRequest{Steps: 1, Sequences: []batch.Sequence{{New: []int{3}, Pages: []uint32{0}},
			{New: []int{4}, Pages: []uint32{1}}}})
	require.ErrorContains(t, err, "2 sequences with 2 tokens to feed, want 1: there is no kernel of several rows")

	// A launch feeds many tokens of a prompt, as launches of a token each do.
	alone := func(steps ...int) []float32 {
		cached, dst := 0, make([]float32, 320)
		tokens := []int{3, 4, 5, 6, 7}
		for i, n := range steps {
			q := batch.StepRequest{Steps: 1, Quiet: i < len(steps)-1,
				Sequences: []batch.Sequence{{New: tokens[cached : cached+n], Cached: cached,
					Pages: []uint32{1, 0}[:(cached+n+3)/4]}}}
			_, err := b.Run(t.Context(), q)
			require.NoError(t, err)
			cached += n
		}
		require.NoError(t, b.Logits(0, dst))
		return dst
	}
	want := alone(1, 1, 1, 1, 1)
	require.Equal(t, want, alone(4, 1))
	require.Equal(t, want, alone(5))
}

// A launch of a prompt takes the smallest prefill kernel that holds its tokens, whatever order they were added in.
func TestABundleTakesTheSmallestPrefillKernel(t *testing.T) {
	ofValues(t)
	all := members(t, megakernel.Options{Page: 16}, 2)
	b, err := openBundle(t, all, runtime.Options{Steps: 1})
	require.NoError(t, err)
	var long []runtime.Member
	for _, tokens := range []int{128, 64} {
		p, err := megakernel.BuildPrefill(all[0].Kernel, megakernel.PrefillOptions{Tokens: tokens, Groups: 1})
		require.NoError(t, err)
		sim, err := runtime.NewSim(p.IR, 3)
		require.NoError(t, err)
		require.NoError(t, b.AddPrefill(p, sim))
		long = append(long, runtime.Member{Device: sim})
	}
	for _, c := range []struct {
		tokens int
		large  bool
	}{{40, false}, {64, false}, {65, true}, {100, true}} {
		_, err := b.Run(t.Context(), batch.StepRequest{Steps: 1, Quiet: true,
			Sequences: []batch.Sequence{{New: synth.Tokens(5, 0, c.tokens, 320), Pages: []uint32{6, 2, 9, 4, 0, 1, 3}}}})
		require.NoError(t, err)
		require.Equal(t, []bool{c.large, !c.large}, []bool{ran(long[0]), ran(long[1])}, "%d tokens", c.tokens)
	}
	require.False(t, ran(all[0]))
}
