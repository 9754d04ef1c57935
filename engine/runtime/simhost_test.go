package runtime

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What the host pokes may come before the kernel's word that no warp can go on without it. The kernel then goes on at
// once, and whoever asks is not told that it hangs.
func TestAPokeEndsThatAKernelIsStuckWheneverItComes(t *testing.T) {
	h := newSimHost()
	h.patience = time.Minute
	h.poke("masks_ready", 0, []uint32{2})
	got := map[string]uint32{}
	h.Turn(true, func(name string, _ int64, value uint32) { got[name] = value })
	require.Equal(t, map[string]uint32{"masks_ready": 2}, got)
	require.False(t, h.stuck.Load())
}
