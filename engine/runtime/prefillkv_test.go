package runtime_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

// ownScales are of tiny's cache: they differ by layer, head, keys and values.
var ownScales = []float32{0.125, 0.0625, 0.03125, 0.1, 0.25, 0.125, 0.0625, 0.05}

// A prompt goes through the prefill kernel into an e4m3 cache: logits are those of the float64 reference with such a
// cache, behind the first step and behind those that read what is cached, also of the decode kernel that reads the
// prompt's last token again; and not those of a bf16 cache.
func TestAPromptThroughThePrefillKernelIntoAnE4M3Cache(t *testing.T) {
	ofValues(t)
	for i, x := range []struct {
		page, pages int
		o           megakernel.PrefillOptions
	}{
		{16, 12, megakernel.PrefillOptions{Tokens: 128}},
		{1, 101, megakernel.PrefillOptions{Tokens: 64, Groups: 1}},
		{8, 16, megakernel.PrefillOptions{Tokens: 64, Groups: 1, Cluster: 2}},
		{4, 27, megakernel.PrefillOptions{Tokens: 128, Groups: 2}},
	} {
		if !deep.On() && i > 1 {
			continue
		}
		tokens := synth.Tokens(3, 0, 96, 320)
		r, s, wide, _, mk := prefillWith(t, megakernel.Options{SMs: 4, Page: x.page, KV: attention.KVE4M3},
			runtime.Options{KVScales: ownScales}, x.o, x.pages)
		ref := func(hooks reference.Hooks) (want [][]float64) {
			m, err := reference.NewModel(mk.Config, reference.Synthetic(mk.Config, 1), hooks)
			require.NoError(t, err)
			for _, token := range tokens {
				want = append(want, m.Step(token))
			}
			return want
		}
		plain := reference.AsKernel(mk.Config)
		want, other := ref(reference.WithE4M3Cache(plain, mk.Config, ownScales)), ref(plain)
		table := make([]uint32, x.pages-1)
		for i := range table {
			table[i] = uint32((5*i + 3) % x.pages)
		}
		got := make([]float32, mk.Config.Vocab)
		schedules := 1
		if i == 0 {
			schedules = deep.Count(len(interp.Policies()), 1)
		}
		for seed := range schedules {
			wide.Reseed(uint64(seed + i))
			cached := 0
			for _, n := range []int{50, 17, len(tokens) - 67} {
				_, err := r.Run(t.Context(), tokens[cached:cached+n], cached, table, false)
				require.NoError(t, err)
				cached += n
				require.NoError(t, r.Logits(0, got))
				apart := relative(want[cached-1:cached], [][]float64{widened(got)})
				change := relative(other[cached-1:cached], [][]float64{widened(got)})
				t.Logf("page %d, %d tokens: %.3g from the reference, %.3g from that of bf16", x.page, cached, apart, change)
				require.Less(t, apart, 0.03)
				require.Greater(t, change, 1.5*apart)
			}
		}
		require.NoError(t, s.Skip(len(tokens)-1))
		_, err := s.Step(tokens[len(tokens)-1])
		require.NoError(t, err)
		require.NoError(t, s.Logits(got))
		require.Less(t, relative(want[len(tokens)-1:], [][]float64{widened(got)}), 0.03)
	}
}

// Steps of several sequences copy a page that two of them have once.
func TestAPrefillStepOfSeveralSequencesOfAnE4M3Cache(t *testing.T) {
	deep.Only(t)
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	tokens, want := raggedPrompts(t, c, raggedSteps, reference.WithE4M3Cache(reference.AsKernel(c), c, ownScales))
	for seed, page := range []int{16, 4} {
		runRagged(t, c, raggedSteps, megakernel.Options{Page: page, KV: attention.KVE4M3}, ownScales,
			megakernel.PrefillOptions{Tokens: 128, Groups: 1, Cluster: max(1, page/8), Sequences: 4}, uint64(seed), tokens, want)
	}
}
