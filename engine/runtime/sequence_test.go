package runtime_test

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// tinySession is a session of tiny on the executor with a cache of 4 pages.
func tinySession(t *testing.T, table []uint32) (*runtime.Sequence, error) {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 2})
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	return runtime.NewSequence(mk, sim, synth.NewWeights(1, c), 4, table, 0)
}

func TestPagesBeyondTheCacheAreRefused(t *testing.T) {
	_, err := tinySession(t, []uint32{0, 4})
	require.EqualError(t, err, "page table entry 1 is page 4, the cache has 4")
	s, err := tinySession(t, []uint32{2, 0})
	require.NoError(t, err)
	require.EqualError(t, s.SetTable([]uint32{3, 1<<32 - 1}), "page table entry 1 is page 4294967295, the cache has 4")
	require.EqualError(t, s.SetTable([]uint32{3}), "a page table of 1 pages, want 2")
	require.NoError(t, s.SetTable([]uint32{3, 1}))
	require.Equal(t, 32, s.Capacity())
}

func TestRewindOnlyGoesBack(t *testing.T) {
	s, err := tinySession(t, nil)
	require.NoError(t, err)
	require.EqualError(t, s.Rewind(1), "rewind to position 1, want 0 to 0")
	require.EqualError(t, s.Rewind(-1), "rewind to position -1, want 0 to 0")
	_, err = s.Step(320)
	require.EqualError(t, err, "token 320, want 0 to 319")
}

func TestGenerateOfMoreThanFitsIsRefused(t *testing.T) {
	s, err := tinySession(t, nil)
	require.NoError(t, err)
	for _, n := range []int{65, 1 << 40, math.MaxInt} {
		_, err = s.Generate([]int{1}, n)
		require.ErrorContains(t, err, "the KV cache is full: 0 tokens in 4 pages of 16", "%d to choose", n)
	}
}
