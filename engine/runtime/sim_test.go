package runtime_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/stretchr/testify/require"
)

func TestAForkHasBuffersOfItsOwn(t *testing.T) {
	s, err := runtime.NewSim(&ir.Kernel{Name: "k", Warps: 1, Body: &ir.Block{}}, 1)
	require.NoError(t, err)
	require.NoError(t, s.Alloc("x", 8))
	require.NoError(t, s.Poke("x", 0, 5))
	f := s.Fork()
	require.NoError(t, f.Poke("x", 1, 7))
	require.NoError(t, s.Poke("x", 0, 6))
	read := func(s *runtime.Sim) (words [2]uint32) {
		for i := range words {
			words[i], err = s.Peek("x", i)
			require.NoError(t, err)
		}
		return words
	}
	require.Equal(t, [2]uint32{5, 7}, read(f))
	require.Equal(t, [2]uint32{6, 0}, read(s))
	require.EqualValues(t, 8, f.Size("x"))
}
