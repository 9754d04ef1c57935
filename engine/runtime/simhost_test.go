package runtime

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The kernel says that it is stuck before it takes what the host has poked in the meantime.
func TestAKernelThatHasNotTakenAPokeDoesNotHang(t *testing.T) {
	s := &Sim{host: newSimHost()}
	s.host.stuck.Store(true)
	require.True(t, s.Stuck())
	s.host.poke("x", 0, []uint32{1})
	s.host.stuck.Store(true)
	require.False(t, s.Stuck())
	s.host.Turn(false, func(string, int64, uint32) {})
	require.True(t, s.Stuck())
}
