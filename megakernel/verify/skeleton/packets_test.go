package skeleton

import (
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/stretchr/testify/require"
)

// Lanes of a warp may ask for one packet together. The first of them must not ask for the same flag again.
func TestAWaitIsForAscendingFlags(t *testing.T) {
	p := newPackets(2)
	wait := func(lane int, flag uint32) error {
		return p.got(interp.Access{Warp: 1, Lane: lane, At: 7, Buffer: "b", Offset: 3 * packetBytes}, flag)
	}
	stored := func(flag uint32) {
		require.NoError(t, p.store(interp.Access{Buffer: "b", Offset: 3 * packetBytes}, flag))
	}
	stored(5)
	for _, lane := range []int{4, 9, 30} {
		require.NoError(t, wait(lane, 5))
	}
	require.ErrorContains(t, wait(4, 5), "waits for flag 5 of packet 3 of b, and has waited here for flag 5 before")
	stored(7)
	require.NoError(t, wait(9, 7))
	require.NoError(t, wait(4, 7))
	require.ErrorContains(t, wait(9, 7), "has waited here for flag 7 before")
	require.ErrorContains(t, wait(4, 5), "ends with flag 5, the packet was stored last with 7")
}
