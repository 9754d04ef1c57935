package megakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Zeros for idle lanes are there where weights are widened, and never take the ring a stage.
func TestZerosOfIdleLanesTakeNoStage(t *testing.T) {
	for _, c := range []struct {
		model string
		o     Options
		bytes int // as many as a chunk of 2048 columns is long
	}{
		{"llama3-8b", Options{Weights: "e4m3"}, 4096},
		{"llama3-8b", Options{Weights: "e4m3b128"}, 4096},
		{"llama3.2-1b", Options{Weights: "e4m3"}, 4096},
		{"llama3-8b", Options{}, 0},
		{"llama3-8b", Options{Weights: "i8"}, 0},
		{"llama3-8b", Options{Weights: "e4m3", Tokens: 8}, 0},
		{"llama3-8b", Options{Weights: "e4m3", Launch: LaunchGraph}, 0},
	} {
		mk := build(t, c.model, c.o)
		require.Equal(t, c.bytes, mk.idle, "%s, %+v", c.model, c.o)
		if c.bytes == 0 {
			continue
		}
		require.LessOrEqual(t, mk.Plan.SharedBytes, mk.Plan.SharedLimit)
		stages, end := mk.Plan.Stages, mk.Plan.Region(regionInput).Bytes/4
		require.Equal(t, end, mk.firstIdle()+mk.idle/4, "zeros are the region's last")
		mk.idle = 0
		require.NoError(t, mk.planRing())
		require.Equal(t, stages, mk.Plan.Stages, "%s, %+v", c.model, c.o)
	}
}

// Where only a stage less would make room for them there are none.
func TestNoZerosOfIdleLanesWithoutRoom(t *testing.T) {
	o := Options{Weights: "e4m3"}
	ample := build(t, "llama3.2-1b", o)
	for more, want := range map[int]int{16: ample.idle, -16: 0} {
		o.SharedLimit = ample.Plan.SharedBytes + more
		mk := build(t, "llama3.2-1b", o)
		require.Equal(t, ample.Plan.Stages, mk.Plan.Stages)
		require.Equal(t, want, mk.idle)
		require.Equal(t, want > 0, mk.idleAt(mk.matrix(0)) > 0)
		require.LessOrEqual(t, mk.Plan.SharedBytes, o.SharedLimit)
	}
}
