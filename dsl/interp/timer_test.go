package interp_test

import (
	"encoding/binary"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/stretchr/testify/require"
)

// The timer goes on from launch to launch in one memory; an SM's clock begins anew.
func TestTheTimerGoesOnFromLaunchToLaunch(t *testing.T) {
	k := dsl.New("timer", dsl.Options{Warps: 1, Grid: 1, SharedLimit: 1 << 10})
	out := dsl.Global[dsl.U64](k, "out", 2)
	k.If(k.Tid().EqC(0), func() {
		out.Store(dsl.At(0), k.GlobalTimer())
		out.Store(dsl.At(1), k.Clock())
	})
	kernel, err := k.Finish()
	require.NoError(t, err)
	p, err := interp.Load(kernel)
	require.NoError(t, err)
	m := interp.NewMemory()
	words := make([]byte, 16)
	m.Bind("out", words)
	var timers, clocks []uint64
	total := uint64(0)
	for range 3 {
		r, err := p.Run(m, interp.Options{})
		require.NoError(t, err)
		timer := binary.LittleEndian.Uint64(words)
		require.Greater(t, timer, total)
		total += uint64(r.Steps)
		require.Less(t, timer, total)
		timers, clocks = append(timers, timer), append(clocks, binary.LittleEndian.Uint64(words[8:]))
	}
	require.Equal(t, []uint64{clocks[0], clocks[0], clocks[0]}, clocks)
	require.IsIncreasing(t, timers)
}
