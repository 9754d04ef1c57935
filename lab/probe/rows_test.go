package probe_test

import (
	"math"
	"os"
	"testing"

	"github.com/mkgen/mkgen/lab/probe"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// torchRows is the file of rows that tests/gpu/reference.py --config tiny.json --seed 2 wrote of a
// sequence of 40 tokens.
const torchRows, torchTokens = "testdata/tiny-rows.f16", 40

// floatRows are the rows of tiny in float64 for these tokens from first on.
func floatRows(t *testing.T, first int) (layers []*probe.Rows) {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	m, err := reference.NewModel(c, reference.Synthetic(c, 2), reference.Hooks{})
	require.NoError(t, err)
	for _, id := range synth.Tokens(2, 0, torchTokens, c.Vocab) {
		m.Step(id)
	}
	for l := range c.Layers {
		r := &probe.Rows{From: first, Tokens: torchTokens - first, Heads: c.KVHeads, D: c.HeadDim}
		keys, values := m.Cache(l)
		for v, all := range [][][]float64{keys, values} {
			for _, token := range all[first:] {
				for _, x := range token {
					r.Of[v] = append(r.Of[v], float32(x))
				}
			}
		}
		layers = append(layers, r)
	}
	return layers
}

func compared(t *testing.T, layers []*probe.Rows) (f probe.Figures) {
	t.Helper()
	want, err := os.ReadFile(torchRows)
	require.NoError(t, err)
	size := probe.RowsBytes(layers[0].Heads, torchTokens)
	require.Len(t, want, size*len(layers))
	for l, rows := range layers {
		probe.CompareRows(&f, l, rows, want[l*size:], torchTokens)
	}
	return f
}

func TestRowsOfFloat64AreThoseOfTorch(t *testing.T) {
	for _, first := range []int{0, 13} {
		f := compared(t, floatRows(t, first))
		require.Len(t, f, 2)
		require.Less(t, f[0].Worst, 1e-3, "half precision has 2⁻¹¹")
		require.Less(t, f[1].Worst, 1e-4)
		require.Equal(t, 2*2*2*(torchTokens-first), f[0].Count)
	}
}

func TestARowOfAnotherTokenIsNamed(t *testing.T) {
	layers := floatRows(t, 5)
	copy(layers[1].Row(1, 20, 1), layers[1].Row(1, 19, 1))
	f := compared(t, layers)
	require.Equal(t, "layer 1, KV head 1, value of position 25", f[0].Where)
	require.NotEmpty(t, f.Problems())
}

func TestASmallFactorOfAHeadIsSeen(t *testing.T) {
	layers := floatRows(t, 0)
	for token := range torchTokens {
		for i := range layers[0].Row(0, token, 1) {
			layers[0].Row(0, token, 1)[i] *= 1.01
		}
	}
	f := compared(t, layers)
	require.Equal(t, "layer 0, KV head 1, keys, times 1.0100", f[1].Where)
	require.Len(t, f.Problems(), 1)
}

func TestARowThatIsNoNumberIsBeyondEveryLimit(t *testing.T) {
	layers := floatRows(t, 0)
	layers[0].Row(0, 3, 0)[7] = float32(math.NaN())
	f := compared(t, layers)
	require.Equal(t, []float64{1e300, 1e300}, []float64{f[0].Worst, f[1].Worst})
}

// Where roundings alone take a row further than the usual limit, as the reference says, a kernel may be as far; others
// that are joined keep that.
func TestLimitsAreRaised(t *testing.T) {
	var f, g probe.Figures
	f.Join(probe.Figures{{What: probe.CacheRow, Worst: 0.21, Limit: 0.2, Where: "here", Count: 3}})
	require.Len(t, f.Problems(), 1)
	f.Raise(probe.CacheRow, 0.1)
	require.Len(t, f.Problems(), 1)
	f.Raise(probe.CacheRow, 0.3)
	require.Empty(t, f.Problems())
	g.Join(f)
	require.Equal(t, f, g)
}
