package calibrate

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/stretchr/testify/require"
)

// All of it on the executor, whose figures are none, but a file that can be read.
func TestASuiteMeasuresOnTheExecutor(t *testing.T) {
	var said []string
	s := &Suite{Machine: bench.Executor{Seed: 1}, Commit: "unknown", Date: "2026-01-02",
		Progress: func(what string) { said = append(said, what) }}
	m, err := s.Run(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Check())
	require.True(t, m.Executor)
	require.Equal(t, []any{"executor", 2, 2, 1024, 4}, []any{m.GPU, m.SMs, m.Consumers, m.StageBytes, m.Stages})
	require.Len(t, m.Copies, 3)
	var of [][2]int
	for _, e := range m.Exchanges {
		of = append(of, [2]int{e.InFlight, e.VectorBytes})
		require.Equal(t, e.InFlight > 0, e.Unhidden != nil)
		require.Equal(t, e.VectorBytes > 0, e.Read.Median > 0)
		require.Equal(t, e.VectorBytes == 0, e.Count != nil)
		for _, w := range []*machine.Way{e.Counted, e.Words} {
			require.Equal(t, e.VectorBytes > 0, w != nil)
			require.True(t, w == nil || w.Took.Median > 0 && e.InFlight > 0 == (w.Unhidden != nil))
		}
	}
	require.Equal(t, [][2]int{{0, 0}, {0, 512}, {2, 0}, {2, 512}, {3, 0}, {3, 512}}, of)
	require.Contains(t, said, "3 in flight: exchanges")
	require.Contains(t, m.About(), "the executor")
}

func TestAnEndedContextEndsASuite(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &Suite{Machine: bench.Executor{Seed: 1}, Commit: "unknown", Date: "2026-01-02"}
	s.Progress = func(what string) {
		if what == "nothing in flight" {
			cancel()
		}
	}
	_, err := s.Run(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// gpu is a device that claims to be a GPU and does nothing but answer reads.
type gpu struct {
	bench.Loaded
	done  chan struct{}
	words map[string][]uint32
}

func (g *gpu) Zero(string) error             { return nil }
func (g *gpu) Start(map[string]uint64) error { return nil }
func (g *gpu) Wait() error                   { return nil }
func (g *gpu) Done() <-chan struct{}         { return g.done }
func (g *gpu) Elapsed() time.Duration        { return time.Millisecond }
func (g *gpu) Read(name string, _ int64, dst []byte) error {
	for i, w := range g.words[name] {
		if 4*i < len(dst) {
			binary.LittleEndian.PutUint32(dst[4*i:], w)
		}
	}
	return nil
}

// ended is one whose launches have ended at once.
func ended(words map[string][]uint32) *Session {
	g := &gpu{done: make(chan struct{}), words: words}
	close(g.done)
	return &Session{dev: g, shape: Shape{SMs: 2, K: 4096, StageBytes: 16384}, bytes: 1 << 30, patience: time.Minute}
}

func TestALaunchThatDoesNotEndIsGivenUp(t *testing.T) {
	s := &Session{dev: &gpu{done: make(chan struct{})}, shape: Shape{SMs: 1}, patience: time.Millisecond}
	_, err := s.Launch(t.Context(), Launch{Phases: 1})
	require.EqualError(t, err, "calibrate: a launch has not ended after 1ms: the GPU hangs, or something else uses it")
	require.NoError(t, s.Close(), "without waiting for the GPU")
}

func TestAWrongVectorAndProbesOutsideOfTheStreamAreErrors(t *testing.T) {
	wrong := make([]uint32, 2*headWords)
	wrong[headWords+headWrong] = 3
	_, err := ended(map[string][]uint32{bufferHeads: wrong}).Launch(t.Context(), Launch{})
	require.EqualError(t, err,
		"calibrate: SM 1 found 3 elements of vectors that were not what was written: the sync does not hold")

	heads := make([]uint32, 2*headWords)
	heads[headEnd], heads[headWords+headEnd] = 5, 5
	late := map[string][]uint32{bufferHeads: heads, bufferProbes: {1, 5, 1, 6}}
	_, err = ended(late).Launch(t.Context(), Launch{Phases: 1, Tiles: 1, Probes: 1})
	require.EqualError(t, err, "calibrate: requests of SM 1 went on after the stream that they were to be measured in")
	_, err = ended(late).Launch(t.Context(), Launch{Probes: 1})
	require.NoError(t, err, "there is no stream")
}

// Figures of words that are known: 2 SMs of 2 clocks a nanosecond.
func TestFiguresFollowFromTheWords(t *testing.T) {
	heads := make([]uint32, 2*headWords)
	for sm := range 2 {
		heads[sm*headWords+headBegin], heads[sm*headWords+headEnd] = 1<<32-500, 1500 // the clock wraps
		heads[sm*headWords+headBeginTime], heads[sm*headWords+headEndTime] = 7, 1007
	}
	stamps := make([]uint32, maxPhases*2*stampWords)
	for i := 0; i < len(stamps); i += stampWords {
		stamps[i+stampWait], stamps[i+stampRead], stamps[i+stampDrain] = 4000+1000*uint32(i/stampWords%2), 600, 2000
	}
	k := ended(map[string][]uint32{bufferHeads: heads, bufferStamps: stamps, bufferProbes: {8000, 0, 8800, 0}})
	s := &Suite{size: size{launches: 2, tiles: 16, probes: 10, idle: 5, drains: 5}}
	r := &runs{s: s, k: k, ctx: t.Context()}
	require.Equal(t, machine.Figure{Median: 1073.7, Min: 1073.7, Max: 1073.7}, r.stream(), "1 GiB in a millisecond")
	require.Equal(t, 0.5, r.nsPerClock)
	require.Equal(t, machine.Latency{Load: machine.Figure{Median: .42, Min: .4, Max: .44},
		Atomic: machine.Figure{Median: .42, Min: .4, Max: .44}}, r.latency(Launch{}, 10))
	e := r.exchange(3, 16)
	require.NoError(t, r.err)
	require.Equal(t, machine.Figure{Median: 2.25, Min: 2.25, Max: 2.25}, e.Wait)
	require.Equal(t, machine.Figure{Median: .3, Min: .3, Max: .3}, e.Read)
	require.Equal(t, machine.Figure{}, *e.Unhidden, "both launches took the same time")
	launched := func(inFlight, bytes int) int {
		before := k.launches
		x := r.exchange(inFlight, bytes)
		require.NoError(t, r.err)
		require.Equal(t, inFlight > 0, x.Unhidden != nil)
		return int(k.launches - before)
	}
	require.Equal(t, 3*(3+2), launched(3, 16), "each way: one that warms up and two, and two without syncs beside them")
	require.Equal(t, 3+2+3, launched(3, 0), "a count has none beside it")
	require.Equal(t, 3+3, launched(0, 0))
}
