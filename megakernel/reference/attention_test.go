package reference

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAttentionByHand(t *testing.T) {
	// Scores are ln 1 and ln 3 after scaling by 1/sqrt(4).
	keys := [][]float64{{0, 0, 0, 0}, {2 * math.Log(3), 0, 0, 0}}
	values := [][]float64{{4, 0, 0, 0}, {8, 0, 0, 1}}
	got := Attention([]float64{1, 0, 0, 0}, keys, values, 1, 1)
	require.InDeltaSlice(t, []float64{7, 0, 0, 0.75}, got[0].Out, 1e-12)
	require.InDelta(t, math.Log(4), got[0].LSE, 1e-12)
}

func TestAttentionOverNoKeys(t *testing.T) {
	got := Attention([]float64{1, 2}, nil, nil, 2, 1)
	require.Equal(t, []State{{[]float64{0}, -inf}, {[]float64{0}, -inf}}, got)
}

func TestAttentionOfHugeScoresStaysFinite(t *testing.T) {
	got := Attention([]float64{1e4}, [][]float64{{1e3}, {-1e3}}, [][]float64{{5}, {7}}, 1, 1)
	require.Equal(t, []State{{[]float64{5}, 1e7}}, got)
}

func TestAttentionIgnoresMaskedKeys(t *testing.T) {
	got := Attention([]float64{1}, [][]float64{{-inf}, {2}}, [][]float64{{5}, {7}}, 1, 1)
	require.Equal(t, []State{{[]float64{7}, 2}}, got)
	require.Equal(t, -inf, Attention([]float64{1}, [][]float64{{-inf}}, [][]float64{{5}}, 1, 1)[0].LSE)
	require.True(t, math.IsNaN(Attention([]float64{1}, [][]float64{{nan}}, [][]float64{{5}}, 1, 1)[0].Out[0]))
}

func TestAttentionGroupsHeads(t *testing.T) {
	// One key: the output is the value of the head's own KV head.
	for _, c := range []struct {
		heads, kvHeads int
		want           []float64
	}{{6, 2, []float64{10, 10, 10, 20, 20, 20}}, {2, 2, []float64{10, 20}}, {4, 1, []float64{10, 10, 10, 10}}} {
		values := [][]float64{[]float64{10, 20}[:c.kvHeads]}
		got := Attention(make([]float64, c.heads), [][]float64{make([]float64, c.kvHeads)}, values, c.heads, c.kvHeads)
		require.Equal(t, c.want, Concat(got))
	}
	require.Panics(t, func() { Attention(make([]float64, 3), nil, nil, 3, 2) })
}

func TestMergeOfSplitsEqualsTheWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	vector := func(n int, scale float64) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = scale * rng.NormFloat64()
		}
		return v
	}
	const heads, kvHeads, dim, tokens = 6, 2, 8, 37
	var keys, values [][]float64
	for range tokens {
		keys, values = append(keys, vector(kvHeads*dim, 2)), append(values, vector(kvHeads*dim, 1))
	}
	q := vector(heads*dim, 2)
	whole := Attention(q, keys, values, heads, kvHeads)
	for _, cuts := range [][]int{{0, 37}, {0, 1, 37}, {0, 16, 16, 32, 37}, {0, 0, 5, 36, 37, 37}} {
		parts := make([][]State, heads)
		for i := 1; i < len(cuts); i++ {
			for h, s := range Attention(q, keys[cuts[i-1]:cuts[i]], values[cuts[i-1]:cuts[i]], heads, kvHeads) {
				parts[h] = append(parts[h], s)
			}
		}
		for h := range whole {
			got := MergeStates(dim, parts[h]...)
			require.InDeltaSlice(t, whole[h].Out, got.Out, 1e-13, "cuts %v", cuts)
			require.InDelta(t, whole[h].LSE, got.LSE, 1e-13, "cuts %v", cuts)
		}
	}
}

func TestMergeOfEmptyState(t *testing.T) {
	empty, garbage := State{[]float64{0}, -inf}, State{[]float64{nan}, -inf}
	require.Equal(t, empty, MergeStates(1))
	require.Equal(t, empty, MergeStates(1, garbage, empty))
	full := State{[]float64{3}, -700}
	require.Equal(t, full, MergeStates(1, garbage, full, empty))
}

func TestMergeByHand(t *testing.T) {
	got := MergeStates(1, State{[]float64{4}, math.Log(1)}, State{[]float64{8}, math.Log(3)})
	require.InDelta(t, 7, got.Out[0], 1e-12)
	require.InDelta(t, math.Log(4), got.LSE, 1e-12)
	far := MergeStates(1, State{[]float64{4}, 1000}, State{[]float64{8}, -1000})
	require.Equal(t, State{[]float64{4}, 1000}, far)
}

func TestMergePassesNaNOn(t *testing.T) {
	for _, s := range []State{{[]float64{nan}, 0}, {[]float64{1}, nan}, {[]float64{1}, inf}} {
		require.True(t, math.IsNaN(MergeStates(1, s, State{[]float64{1}, 0}).Out[0]), "%v", s)
	}
}
