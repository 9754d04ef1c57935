package reference

import (
	"slices"
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// little is a model small enough to try many; newLittle makes it with the given hooks.
var little = models.Config{
	Layers: 2, Hidden: 8, Intermediate: 12, Heads: 4, KVHeads: 2, HeadDim: 4, Vocab: 16, NormEps: 1e-5,
	Rope: models.Rope{Theta: 100}, MaxPositions: 64,
}

func newLittle(t *testing.T, h Hooks) *Model {
	t.Helper()
	m, err := NewModel(little, Synthetic(little, 3), h)
	require.NoError(t, err)
	return m
}

func TestNewModelNamesWhatIsMissing(t *testing.T) {
	for name := range Synthetic(little, 3) {
		w := Synthetic(little, 3)
		w[name] = w[name][1:]
		_, err := NewModel(little, w, Hooks{})
		require.ErrorContains(t, err, name+" has")
		delete(w, name)
		_, err = NewModel(little, w, Hooks{})
		require.ErrorContains(t, err, name+" has 0 elements, want")
	}
	s := little
	s.KVHeads = 3
	_, err := NewModel(s, nil, Hooks{})
	require.ErrorContains(t, err, "heads a multiple of KV heads")
}

func TestResetStartsAnew(t *testing.T) {
	m := newLittle(t, Hooks{})
	first := m.Step(5)
	require.NotEqual(t, first, m.Step(5), "the second token sees the first")
	require.Equal(t, 2, m.Len())
	m.Reset()
	require.Zero(t, m.Len())
	require.Equal(t, first, m.Step(5))
}

func TestCacheHoldsWhatTheHooksLeft(t *testing.T) {
	m := newLittle(t, KernelRounding())
	m.Step(1)
	m.Step(2)
	for l := range little.Layers {
		keys, values := m.Cache(l)
		require.Len(t, keys, 2)
		require.Len(t, values, 2)
		for _, v := range slices.Concat(keys[0], keys[1], values[0], values[1]) {
			require.Equal(t, RoundBF16(v), v)
		}
	}
}

func TestPointsComeInTheirOrder(t *testing.T) {
	type call struct {
		layer int
		point Point
		n     int
	}
	var got []call
	newLittle(t, Hooks{At: func(l int, p Point, v []float64) { got = append(got, call{l, p, len(v)}) }}).Step(0)
	want := []call{{0, Embedded, 8}}
	for l := range 2 {
		want = append(want,
			call{l, Normalised, 8}, call{l, AttnNorm, 8}, call{l, Query, 16}, call{l, Key, 8}, call{l, Value, 8},
			call{l, AttnOut, 16}, call{l, AttnProj, 8}, call{l, AttnResidual, 8}, call{l, Normalised, 8}, call{l, MLPNorm, 8},
			call{l, Gate, 12},
			call{l, Up, 12}, call{l, SiLUOut, 12}, call{l, Activated, 12}, call{l, MLPProj, 8}, call{l, MLPResidual, 8})
	}
	require.Equal(t, append(want, call{2, Normalised, 8}, call{2, FinalNorm, 8}, call{2, Logits, 16}), got)
}

// A framework's bf16 must be further from the exact logits than a kernel that rounds only what it stores.
func TestRoundingsDisturbAsExpected(t *testing.T) {
	run := func(h Hooks) (out []float64) {
		m := newLittle(t, h)
		for token := range 12 {
			out = append(out, m.Step(token)...)
		}
		return out
	}
	exact := run(Hooks{})
	kernel, framework := relativeError(run(KernelRounding()), exact), relativeError(run(FrameworkRounding(little)), exact)
	require.Greater(t, kernel, 1e-4)
	require.Greater(t, framework, kernel)
	require.Less(t, framework, 0.2)
}
