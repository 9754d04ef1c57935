package megakernel

import (
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Keys and values are split where a step of 8B has fewer tiles than 132 SMs have clusters and many cached tokens before
// them, and not where parts would leave the busiest cluster as much.
func TestStepsOfFewTilesBehindManyTokensAreSplit(t *testing.T) {
	c, err := models.Lookup("llama3-8b")
	require.NoError(t, err)
	mk, err := Build(c, Options{Tokens: 16})
	require.NoError(t, err)
	all, err := BuildPrefills(mk, 1024, "")
	require.NoError(t, err)
	for _, p := range all {
		require.Equal(t, all[0].States(), p.States(), "kernels share the states' buffer")
	}
	decoding := make([]Sequence, 15)
	for i := range decoding {
		decoding[i] = Sequence{New: 1, Cached: 350}
	}
	small, medium, large := all[2], all[1], all[0]
	for _, x := range []struct {
		p     *Prefill
		of    []Sequence
		parts int
	}{
		{small, []Sequence{{New: 100, Cached: 500}}, 1},
		{small, []Sequence{{New: 100, Cached: 2048}}, 4},
		{small, []Sequence{{New: 100, Cached: 32000}}, 4},
		{medium, []Sequence{{New: 200, Cached: 32000}}, 2},
		{medium, []Sequence{{New: 400, Cached: 32000}}, 1}, // 56 tiles for 66 clusters
		{large, []Sequence{{New: 1024, Cached: 32000}}, 1},
		{medium, append(decoding, Sequence{New: 241, Cached: 7000}), 2},
	} {
		blocks := x.p.Split(x.of)
		assert.Equal(t, x.parts, max(1, x.p.Parts(x.of, blocks)), "%v", x.of)
		assert.True(t, x.p.fit(x.of, blocks))
		most := x.p.SplitMost(x.of)
		assert.True(t, x.p.fit(x.of, most))
		assert.True(t, most == 1 || !x.p.fit(x.of, most-1))
	}
	// 64 tokens have a tile beside them that pads the step. Its turns come first, one for each part.
	of := []Sequence{{New: 64, Cached: 32000}}
	busiest, _ := small.busiest(of, small.Split(of))
	eight, _ := small.busiest(of, 32)
	assert.InDelta(t, 35.5, busiest, 1)
	assert.Greater(t, eight, 60.0)
}
