package gate

import (
	"slices"
	"testing"

	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/stretchr/testify/require"
)

// A launch counts as mixed where a sequence that has cached tokens brings one beside another one's several.
func TestLaunchesOfPrefillKernelsAreCountedByKind(t *testing.T) {
	l := PrefillLaunches{Sequences: 3}
	for _, step := range [][]Part{{{0, 0, 20}}, {{0, 20, 70}}, {{0, 0, 30}, {1, 30, 31}, {2, 5, 6}},
		{{0, 0, 30}, {1, 0, 1}}, {{0, 0, 10}, {1, 7, 20}}} {
		l.Count(step)
	}
	require.Equal(t, PrefillLaunches{One: 2, Several: 3, Mixed: 1, Tokens: 50, Sequences: 3}, l)
	require.Empty(t, l.Problems())
}

// A record lacks launches where its kernels take several sequences and none has them, and does not pass then.
func TestARecordWithoutMixedLaunchesDoesNotPass(t *testing.T) {
	for _, c := range []struct {
		l    PrefillLaunches
		want string
	}{
		{PrefillLaunches{One: 1, Sequences: 1}, ""},
		{PrefillLaunches{One: 1, Several: 2, Mixed: 1, Sequences: 2}, ""},
		{PrefillLaunches{Several: 2, Mixed: 1, Sequences: 2}, "no launch of a prefill kernel has one sequence"},
		{PrefillLaunches{One: 1, Sequences: 2}, "no launch of a prefill kernel has several sequences, of up to 2"},
		{PrefillLaunches{One: 1, Several: 2, Sequences: 2},
			"no launch of a prefill kernel has sequences that decode beside a prompt"},
	} {
		r := Record{Passed: true}
		r.withLaunches(&c.l)
		require.Equal(t, c.want == "", r.Passed)
		if c.want != "" {
			require.Len(t, r.Reasons, 1)
			require.Contains(t, r.Reasons[0], c.want)
		}
		require.Equal(t, &c.l, r.Launches)
	}
	r := Record{Passed: true}
	r.withLaunches(nil)
	require.Equal(t, Record{Passed: true}, r)
}

// The steps that a gate feeds of the figures' sequences have chunks of all three sizes, launches of several sequences
// and mixed ones.
func TestStepsOfPromptsHaveLaunchesOfAllKinds(t *testing.T) {
	ref := &Reference{}
	for _, n := range append(slices.Repeat([]int{256}, 8), 2304, 1920) {
		ref.Sequences = append(ref.Sequences, Sequence{Length: n})
	}
	s := RaggedSubject{Kernel: &megakernel.Kernel{}, Rows: 1024, Prefill: true}
	steps, fed := s.steps(ref), PrefillLaunches{Sequences: MostAtOnce}
	for _, step := range steps {
		if rowsOf(step) > kv.MaxRows {
			fed.Count(step)
		}
	}
	require.Empty(t, fed.Problems())
	s.Launches = func() PrefillLaunches { return fed }
	l := s.launches(ref, steps)
	require.Equal(t, []int{17, 256, 512}, l.Chunks)
	t.Logf("%+v", *l)
}
