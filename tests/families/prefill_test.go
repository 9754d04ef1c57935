package families

import (
	"slices"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// asPrefill is a case's model as wide as prefill kernels want.
func asPrefill(t *testing.T, c *Case) models.Config {
	t.Helper()
	config, err := c.Config(nil)
	require.NoError(t, err)
	config.Hidden, config.Intermediate, config.MaxPositions = 128, 160, max(config.MaxPositions, 128)
	return config
}

// wideHeads is a case's prefill model with heads of 256 dimensions, as Gemma and Falcon 3 have.
func wideHeads(t *testing.T, c *Case) models.Config {
	t.Helper()
	config := asPrefill(t, c)
	config.HeadDim, config.Heads, config.KVHeads = 256, 3, 1
	return config
}

// prefillPair is a case's decode kernel of one row and its prefill kernel.
func prefillPair(t *testing.T, config models.Config,
	fault megakernel.Fault) (*megakernel.Kernel, *megakernel.Prefill, error) {
	t.Helper()
	mk, err := megakernel.Build(config, megakernel.Options{SMs: 2, Page: 8, Fault: fault})
	require.NoError(t, err)
	p, err := megakernel.BuildPrefill(mk, megakernel.PrefillOptions{Tokens: 64, Groups: 1})
	return mk, p, err
}

// prefilled are the logits behind each of several steps of a prompt through the prefill kernel, and behind the token
// after them, which the decode kernel reads over the cache that these have filled.
func prefilled(t *testing.T, mk *megakernel.Kernel, p *megakernel.Prefill, w reference.Weights, tokens []int,
	steps ...int) (logits [][]float64) {
	t.Helper()
	pages := (len(tokens) + mk.KV.Page - 1) / mk.KV.Page
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	long, err := runtime.NewSim(p.IR, 2)
	require.NoError(t, err)
	faulty := p.Of.Options.Fault != megakernel.NoFault // only its values matter
	sim.Options.NoRaces, long.Options.NoRaces = faulty, faulty
	s, err := runtime.NewSequence(mk, sim, tensors(w), pages+1, backwards(pages), 0)
	require.NoError(t, err)
	r, err := runtime.OpenPrefill(p, long, sim, pages+1, 0)
	require.NoError(t, err)
	out, table, cached := make([]float32, mk.Config.Vocab), make([]uint32, pages), 0
	copy(table, backwards(pages))
	for _, n := range steps {
		_, err := r.Run(t.Context(), tokens[cached:][:n], cached, table, false)
		require.NoError(t, err, "%d tokens behind %d", n, cached)
		require.NoError(t, r.Logits(0, out))
		logits, cached = append(logits, wide(out)), cached+n
	}
	require.NoError(t, s.Skip(cached))
	_, err = s.Step(tokens[cached])
	require.NoError(t, err)
	require.NoError(t, s.Logits(out))
	return append(logits, wide(out))
}

// prompt is a case's weights and a prompt, and the reference's logits where prefilled has some: rounded as the kernel
// rounds, and not.
func prompt(t *testing.T, config models.Config,
	steps ...int) (w reference.Weights, tokens []int, want, exact [][]float64) {
	t.Helper()
	n := 1
	for _, step := range steps {
		n += step
	}
	w, tokens = reference.Synthetic(config, Seed), synth.Tokens(Seed, 0, n, config.Vocab)
	rounded, float := logitsOf(t, config, w, tokens, reference.AsKernel(config)),
		logitsOf(t, config, w, tokens, reference.Hooks{})
	at := -1
	for _, step := range append(steps, 1) {
		at += step
		want, exact = append(want, rounded[at]), append(exact, float[at])
	}
	return w, tokens, want, exact
}

// A prompt in steps of other lengths, each behind cached tokens but the first, through every family's prefill kernel.
func TestPrefillKernelsEqualTheReferenceForEveryFamily(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			equalsReference(t, asPrefill(t, &c))
		})
	}
}

// equalsReference runs a prompt in several steps.
func equalsReference(t *testing.T, config models.Config) {
	t.Helper()
	mk, p, err := prefillPair(t, config, megakernel.NoFault)
	require.NoError(t, err)
	steps := []int{13, 1, 22}
	if deep.On() {
		steps = []int{1, 64, 7, 30}
	}
	w, tokens, want, exact := prompt(t, config, steps...)
	own := distance(want, exact)
	got := distance(prefilled(t, mk, p, w, tokens, steps...), want)
	t.Logf("%.4f from the reference, whose roundings cost %.4f", got, own)
	require.Less(t, got, limit(own))
}

// The same with heads of 256 dimensions: of Gemma, with windows, soft caps and norms of each head, and of layers
// without RoPE.
func TestPrefillKernelsOfWideHeadsEqualTheReference(t *testing.T) {
	all := cases(t)
	for _, name := range []string{"gemma2", "gemma3", "smollm3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := slices.IndexFunc(all, func(c Case) bool { return c.Name == name })
			require.GreaterOrEqual(t, at, 0)
			equalsReference(t, wideHeads(t, &all[at]))
		})
	}
}

// A prefill kernel with a planted fault is not the model any more, beside a decode kernel without.
func TestFaultsOfFeaturesShowInPrefillKernels(t *testing.T) {
	all := cases(t)
	for _, f := range []struct {
		name  string
		fault megakernel.Fault
	}{{"qwen2", megakernel.FaultBias}, {"qwen3", megakernel.FaultQKNorm}, {"olmo2", megakernel.FaultQKNorm},
		{"gemma3", megakernel.FaultPlusOne}, {"gemma3", megakernel.FaultRopeBase}, {"gemma2", megakernel.FaultLogitCap},
		{"gemma2", megakernel.FaultPostNorm}, {"olmo2", megakernel.FaultPostNorm}, {"mistral", megakernel.FaultAttention},
		{"gemma2", megakernel.FaultAttention}, {"gemma2", megakernel.FaultWindow}, {"ministral3", megakernel.FaultGrowth},
		{"smollm3", megakernel.FaultDropToken}} {
		t.Run(f.name+" "+string(f.fault), func(t *testing.T) {
			t.Parallel()
			config := asPrefill(t, &all[slices.IndexFunc(all, func(c Case) bool { return c.Name == f.name })])
			mk, _, err := prefillPair(t, config, megakernel.NoFault)
			require.NoError(t, err)
			_, p, err := prefillPair(t, config, f.fault)
			require.NoError(t, err)
			w, tokens, want, exact := prompt(t, config, 15, 21)
			far, most := distance(prefilled(t, mk, p, w, tokens, 15, 21), want), limit(distance(want, exact))
			t.Logf("%.3f, limit %.3f", far, most)
			require.Greater(t, far, 1.5*most)
		})
	}
}
