package megakernel

import (
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

func TestEveryRegisteredModelBuilds(t *testing.T) {
	for _, c := range models.Checked() {
		for _, sms := range []int{1, 4, 132} {
			mk, err := Build(c, Options{SMs: sms})
			require.NoError(t, err, "%s on %d SMs", c.Name, sms)
			require.NotNil(t, mk.IR)
		}
	}
}

// Models have norms before, behind and on both sides of their blocks, and products of each kind of weights take inputs
// of all of them.
func TestEveryRegisteredModelBuildsInEveryFormat(t *testing.T) {
	formats := []pipeline.Format{"i4g128", "mxfp4", "i8", "e4m3", "e4m3b128", "i4", "nvfp4"}
	for i, c := range models.All() {
		if i%2 != 0 && !deep.On() {
			continue
		}
		for _, f := range deep.Most(formats, 1) {
			mk, err := Build(c, Options{SMs: 132, Weights: f})
			require.NoError(t, err, "%s in %s", c.Name, f)
			require.LessOrEqual(t, mk.Plan.Efficiency().Step, 1.0, "%s in %s", c.Name, f)
		}
	}
}

// A merge takes maxSplits states at most, and fewer where they would be more than 16.
func TestDefaultSplitsOfFewKVHeads(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for kvHeads, want := range map[int]map[int]int{1: {132: 88, 1024: maxSplits, 12: 12, 20: 16},
		3: {132: 29, 64: 16, 1: 1}} {
		c.KVHeads = kvHeads
		for sms, splits := range want {
			mk, err := Build(c, Options{SMs: sms})
			require.NoError(t, err)
			require.Equal(t, splits, mk.Options.Splits, "%d KV heads on %d SMs", kvHeads, sms)
		}
	}
}

// Where most layers' windows are a block a warp at most in 16 splits, 1792 tokens beside 7 warps, there are no more.
func TestDefaultSplitsOfShortWindows(t *testing.T) {
	for name, want := range map[string]int{"gemma-3-4b": 16, "gemma-2-2b": 22, "qwen2.5-7b": 22, "smollm3-3b": 22} {
		c, err := models.Lookup(name)
		require.NoError(t, err)
		mk, err := Build(c, Options{})
		require.NoError(t, err)
		require.Equal(t, want, mk.Options.Splits, name)
	}
	c, err := models.Lookup("gemma-3-4b")
	require.NoError(t, err)
	for attention, want := range map[string]int{"window=1792": 16, "window=1793": 22, "window=1024/causal": 22,
		"window=1024/window=1024/causal": 16, "causal": 22} {
		mk, err := Build(c, Options{Attention: attention})
		require.NoError(t, err)
		require.Equal(t, want, mk.Options.Splits, attention)
	}
}

// Layers that differ in their windows only share the code of attention, others do not.
func TestLayersOfSeveralWindowsHaveOneCodeOfAttention(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for attention, want := range map[string]int{"window=20/causal": 1, "window=20/window=40": 1,
		"window=20+softcap=30/softcap=30": 1, "window=20/softcap=30": 2, "window=20+sinks=2/causal": 2} {
		mk, err := Build(c, Options{Attention: attention})
		require.NoError(t, err)
		b := newBuilder(mk)
		vs, _ := newSingle(b).layerAttention()
		require.Len(t, vs, want, attention)
	}
}

// Nine warps leave a thread 168 registers, too few for these heads.
func TestWideHeadsGetFewerConsumersByDefault(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for headDim, want := range map[int]int{32: 8, 176: 8, 192: 7, 256: 7} {
		c.HeadDim = headDim
		mk, err := Build(c, Options{})
		require.NoError(t, err)
		require.Equal(t, want, mk.Options.Consumers, "head dimension %d", headDim)
	}
	mk, err := Build(c, Options{Consumers: 8})
	require.NoError(t, err)
	require.Equal(t, 8, mk.Options.Consumers, "what is asked for stays")
}

func TestAnInputThatSharedMemoryCannotHoldIsRefusedByItsField(t *testing.T) {
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	for want, change := range map[string]func(c *models.Config){
		"model tiny: hidden_size is 1048576, want less than 116224: such a vector takes 2097152 bytes of shared memory, a CTA has 232448": func(c *models.Config) { c.Hidden = 1 << 20 },
		"intermediate_size is 116224":               func(c *models.Config) { c.Intermediate = 116224 },
		"num_attention_heads × head_dim is 131072,": func(c *models.Config) { c.Heads, c.KVHeads = 4096, 4096 },
	} {
		c := tiny
		change(&c)
		_, err := Build(c, Options{})
		require.ErrorContains(t, err, want)
	}
}

// Angles of the rotary embedding are reduced exactly up to position 2²⁰.
func TestPositionsBeyondTheRotationsReductionAreRefused(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.MaxPositions = 1 << 20
	_, err = Build(c, Options{SMs: 2})
	require.NoError(t, err)
	c.MaxPositions++
	_, err = Build(c, Options{SMs: 2})
	require.EqualError(t, err,
		"model tiny: max_position_embeddings 1048577, want at most 1048576: beyond, angles of the rotary embedding are not reduced exactly")
}
