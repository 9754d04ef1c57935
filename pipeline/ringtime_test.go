package pipeline_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// ringTime is memory that brings a byte in 1 s, copies that take 30 s, and consumers that
// take no time.
func ringTime(stages, inFlight int) pipeline.RingTime {
	return pipeline.RingTime{Stages: stages, InFlight: inFlight, BytesPerSecond: 1, CopySeconds: 30,
		DrainSeconds: func(int) float64 { return 0 }}
}

func TestARingStreamsAtTheBandwidthOrWhatItsCopiesBring(t *testing.T) {
	chunks := slices.Repeat([]int{10}, 100)
	for inFlight, want := range map[int]float64{1: 30 * 100, 2: 30*50 + 10, 3: 30 + 990, 4: 30 + 990} {
		c := pipeline.NewRingClock(ringTime(8, inFlight), chunks)
		c.Drain(100, 1)
		require.InDelta(t, want, c.Now(), 1e-9, "%d in flight", inFlight)
	}
}

func TestAStallIsFreeUpToWhatTheRingHolds(t *testing.T) {
	chunks := slices.Repeat([]int{10}, 100)
	run := func(stall float64) (end, waited float64, full bool) {
		tm := ringTime(8, 4)
		tm.DrainSeconds = func(bytes int) float64 { return float64(bytes) / 5 }
		c := pipeline.NewRingClock(tm, chunks)
		c.Drain(50, 1)
		c.Until(c.Now() + stall)
		full = c.Full()
		waited = c.Drain(50, 1)
		return c.Now(), waited, full
	}
	end, waited, full := run(0)
	require.False(t, full)
	require.InDelta(t, 50*8, waited, 1e-9)
	late, less, full := run(40)
	require.InDelta(t, end, late, 1e-9, "8 stages of 10 s, 3 of them to keep memory busy")
	require.InDelta(t, waited-40, less, 1e-9)
	require.False(t, full)
	later, _, full := run(160)
	require.True(t, full)
	// The ring, 8 chunks, was full 80 s after the stall began. The first freed stage's copy takes 30 s, with
	// 8 to drain at 2 s each meanwhile.
	require.Greater(t, later, end+160-80)
	require.Less(t, later, end+160-80+30)
}

// The formulas of RingClock, written down as they are.
func TestTheClockIsItsFormulas(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		stages := 1 + random.IntN(6)
		tm := pipeline.RingTime{Stages: stages, InFlight: 1 + random.IntN(stages), BytesPerSecond: 2,
			CopySeconds: 5 * random.Float64(), DrainSeconds: func(bytes int) float64 { return float64(bytes) / 3 }}
		chunks := make([]int, 40)
		for i := range chunks {
			chunks[i] = 1 + random.IntN(9)
		}
		c := pipeline.NewRingClock(tm, chunks)
		var landed, freed []float64
		now, waited := 0.0, 0.0
		at := func(times []float64, i int) float64 {
			if i < 0 {
				return 0
			}
			return times[i]
		}
		for n, bytes := range chunks {
			if random.IntN(4) == 0 {
				now += 9 * random.Float64()
				c.Until(now)
			}
			issued := max(at(freed, n-stages), at(landed, n-tm.InFlight))
			landed = append(landed, max(at(landed, n-1)+float64(bytes)/2, issued+tm.CopySeconds))
			wait := max(0, landed[n]-now)
			now += wait + float64(bytes)/3
			freed = append(freed, now)
			waited += wait
			require.InDelta(t, wait, c.Drain(1, 1), 1e-9)
			require.InDelta(t, now, c.Now(), 1e-9)
		}
		require.True(t, c.Full(), "nothing is to come")
	}
}

func TestAnEvenPlanIsEven(t *testing.T) {
	p, err := pipeline.New(pipeline.Request{SMs: 2, Layers: 3, Layer: []pipeline.Matrix{{Name: "w", Rows: 32, K: 64}},
		SharedLimit: 65536})
	require.NoError(t, err)
	require.Equal(t, 1.0, p.Efficiency().Step)
	require.Equal(t, 1.0, p.Efficiency().Final)
}
