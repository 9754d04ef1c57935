package runtime_test

import (
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/megakernel/runtime"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// Neither at the start nor later may a page table lead outside the cache.
func TestAPageTableThatLeavesTheCacheIsRefused(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 1})
	require.NoError(t, err)
	open := func(table []uint32) (*runtime.Session, error) {
		sim, err := runtime.NewSim(mk.IR, 1)
		require.NoError(t, err)
		return runtime.NewSession(mk, sim, synth.NewWeights(1, reference.ShapeOf(c).Dims()), 2, table, 0)
	}
	_, err = open([]uint32{0, 2})
	require.EqualError(t, err, "page table entry 1 is page 2, the cache has 2")
	s, err := open([]uint32{0, 1})
	require.NoError(t, err)
	require.EqualError(t, s.SetTable([]uint32{1<<32 - 1, 0}), "page table entry 0 is page 4294967295, the cache has 2")
	require.EqualError(t, s.SetTable([]uint32{0}), "a page table of 1 pages, want 2")
	require.NoError(t, s.SetTable([]uint32{1, 0}))
}
