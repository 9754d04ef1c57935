package verify

import (
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

// attentions are spellings of Options.Attention that together have every term.
func attentions() []string {
	return []string{"window=32/causal", "window=20+sinks=3", "softcap=1.5", "alibi", "sigmoid=-3", "head-scale",
		"streaming=40+sinks=4/causal", "streaming=24", "window=30+softcap=2+alibi/head-scale+sigmoid=-2"}
}

func TestAttentionOfLayersIsWhatItsSpellingMeans(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	all := attentions()
	for i, attention := range all {
		if !deep.On() && i > 0 && i < len(all)-1 { // the last has most terms
			continue
		}
		t.Run(attention, func(t *testing.T) {
			r, err := Check(t.Context(), Request{Config: c, Options: megakernel.Options{Attention: attention}, Seeds: 1,
				Steps: 2})
			require.NoError(t, err)
			require.NoError(t, r.Err())
		})
	}
}

// Parts of the cache that a mask hides have no token, whatever chunks they have.
func TestSplitsWithTokensAreThoseAMaskShows(t *testing.T) {
	shown := func(mask func(q, k attention.Place) bool) *attention.Variant {
		return &attention.Variant{Means: attention.Meaning{Mask: mask}}
	}
	chunked := shown(func(q, k attention.Place) bool { return k.Position/48 == q.Position/48 })
	odd := shown(func(q, k attention.Place) bool { return q.Head == 0 || k.Position > 40 })
	for _, test := range []struct {
		v                    *attention.Variant
		class                kv.Class
		cached, splits, want int
	}{
		{nil, kv.Class{}, 64, 4, 4},
		{chunked, kv.Class{}, 64, 4, 1}, // 48 to 63 are the last part's
		{chunked, kv.Class{}, 90, 4, 2},
		{odd, kv.Class{}, 64, 4, 2}, // of which the other head sees nothing
		{attention.SlidingWindow(20, 3), kv.Class{Window: 20, Sinks: 3}, 64, 2, 2},
	} {
		seen := test.class.Visible(16, test.cached, 0, test.cached)
		require.Equal(t, test.want, seenSplits(test.v, seen, test.splits, 16, test.cached, 2), "%+v", test)
	}
}

// A wide window is plain attention, and the check tells one attention from another.
func TestAnotherAttentionThanTheReferencesIsReported(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, attention := range attentions() {
		mk, err := megakernel.Build(c, megakernel.Options{Attention: attention, SMs: 2})
		require.NoError(t, err)
		trial, err := NewTrial(mk, 2)
		require.NoError(t, err)
		plain, err := megakernel.Build(c, megakernel.Options{SMs: 2})
		require.NoError(t, err)
		other, err := NewTrial(plain, 2)
		require.NoError(t, err)
		diff := Comparison{Tolerance: logitTolerance * trial.scale}
		for i := range trial.want {
			for j := range trial.want[i] {
				diff.see(trial.want[i][j], other.want[i][j], func() string { return "" })
			}
		}
		require.False(t, diff.OK(), "%s is off by %g from plain attention", attention, diff.MaxError)
	}
}

func TestAttentionOfWideAndOddHeads(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for headDim, o := range map[int]megakernel.Options{48: {Attention: "streaming=24+sinks=2"},
		80: {Attention: "streaming=40/head-scale+window=16", KV: attention.KVE4M3}} {
		if headDim != 80 && !deep.On() {
			continue
		}
		c.HeadDim = headDim
		r, err := Check(t.Context(), Request{Config: c, Options: o, Seeds: 1, Steps: 2})
		require.NoError(t, err)
		require.NoError(t, r.Err(), "head dimension %d", headDim)
	}
}

// Windows that leave one chunk or none, and one that leaves all.
func TestWindowsOfEverySize(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, attention := range deep.Most([]string{"window=1", "streaming=1000", "window=16+sinks=1", "window=1000+sinks=5"},
		1) {
		r, err := Check(t.Context(), Request{Config: c, Options: megakernel.Options{Attention: attention}, Seeds: 1,
			Steps: 2})
		require.NoError(t, err)
		require.NoError(t, r.Err(), attention)
	}
}

// Gemma 27B and Granite scale scores by another number than 1/sqrt(head dimension).
func TestAttentionHasTheModelsScale(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Traits.AttnScale = 0.4
	mk, err := megakernel.Build(c, megakernel.Options{Attention: "softcap=1.5"})
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	vector := func(n int) (v []float64) {
		for range n {
			v = append(v, rng.NormFloat64())
		}
		return v
	}
	q := vector(c.Heads * c.HeadDim)
	var keys, values [][]float64
	for range 5 {
		keys, values = append(keys, vector(c.KVHeads*c.HeadDim)), append(values, vector(c.KVHeads*c.HeadDim))
	}
	got := attend(mk, mk.LayerAttention(0, megakernel.Tables{}), attention.Place{Position: 4, First: 4}, q, places(5),
		keys,
		values, nil)
	want := reference.Concat(reference.AttentionOf(
		&models.Attn{Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Scale: 0.4, SoftCap: 1.5}, q, keys, values))
	require.InDeltaSlice(t, want, got, 1e-12)
}
