package calibrate

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/internal/nvcc/nvcctest"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/stretchr/testify/require"
)

func small(inFlight int) Shape {
	return Shape{SMs: 2, Consumers: 2, StageBytes: 1024, Stages: 4, InFlight: inFlight, K: 128, VectorBytes: 512}
}

func open(t *testing.T, shape Shape, seed uint64, bytes int64) *Session {
	t.Helper()
	s, err := OpenSession(t.Context(), bench.Executor{Seed: seed}, shape, bytes)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// Every kind of launch, in several interleavings, without race, and one after another on
// the same buffers.
func TestEveryLaunchRunsOnTheExecutor(t *testing.T) {
	for seed := range uint64(3) {
		for _, shape := range []Shape{small(1), small(3), {SMs: 3, Consumers: 3, StageBytes: 512, Stages: 3, InFlight: 2,
			K: 96, VectorBytes: 256}} {
			s := open(t, shape, 7*seed, 1<<16)
			for _, l := range []Launch{
				{Phases: 1, Tiles: 6},
				{Phases: 1, Tiles: 6, Probes: 5},
				{Phases: 1, Tiles: 6, Probes: 5, Atomic: true},
				{Probes: 7},
				{Phases: 4, Tiles: 2, Work: true},
				{Phases: 5, Tiles: 2, Work: true, Sync: Barrier, VectorBytes: shape.VectorBytes},
				{Phases: 5, Sync: Barrier, VectorBytes: 48},
				{Phases: 3, Sync: Barrier},
				{Phases: 3, Sync: Count},
				{Phases: 5, Tiles: 2, Work: true, Sync: Counted, VectorBytes: shape.VectorBytes},
				{Phases: 3, Sync: Counted, VectorBytes: 48},
				{Phases: 5, Tiles: 2, Work: true, Sync: Words, VectorBytes: shape.VectorBytes},
				{Phases: 6, Sync: Words, VectorBytes: 48},
				{Phases: 2, Sync: Barrier, VectorBytes: 48},
				{Phases: 4, Tiles: 1, Work: true, Ready: 2},
			} {
				f, err := s.Launch(t.Context(), l)
				require.NoError(t, err, "%+v", l)
				require.Len(t, f.Stamps, l.Phases)
				for _, phase := range f.Stamps {
					for _, x := range phase {
						require.True(t, l.Sync == Words || l.Sync != None == (x[stampWait] > 0), "%+v", l)
						require.Equal(t, l.Sync != None, x[stampRead] > 0)
						require.Positive(t, x[stampDrain])
					}
				}
				for _, p := range f.Probes {
					require.Equal(t, l.Probes > 0, p[probeTook] > 0)
				}
			}
		}
	}
}

// A tag that an earlier launch had lets its words pass: what is written differs from
// launch to launch, so that they are found, and the session gives each launch other tags.
func TestWordsOfAnEarlierLaunchAreFound(t *testing.T) {
	l := Launch{Phases: 1, Sync: Words, VectorBytes: 512}
	stale := uint32(0)
	for seed := range uint64(8) {
		s := open(t, small(1), seed, 1<<16)
		for range 3 {
			_, err := s.Launch(t.Context(), l)
			require.NoError(t, err)
		}
		again := l.scalars()
		again[scalarTag], again[scalarSalt] = 1+2*maxPhases, 12345 // the third launch's tag
		require.NoError(t, s.run(again))
		raw := make([]byte, 4*headWords*s.shape.SMs)
		require.NoError(t, s.dev.Read(bufferHeads, 0, raw))
		for sm := range s.shape.SMs {
			stale += binary.LittleEndian.Uint32(raw[4*(sm*headWords+headWrong):])
		}
	}
	require.NotZero(t, stale)
}

// print is the emitted text of the kernel for a GPU.
func print(t *testing.T, inFlight int) []byte {
	t.Helper()
	shape := onGPU(132)
	shape.InFlight = inFlight
	k, err := Kernel(shape)
	require.NoError(t, err)
	target, err := emit.TargetFor("sm_90a")
	require.NoError(t, err)
	src, err := emit.Print(k, target, emit.Options{ParamsByValue: true})
	require.NoError(t, err)
	return src.Text
}

func TestTheKernelIsOneKernelForAGPU(t *testing.T) {
	text := print(t, 3)
	require.Equal(t, 1, bytes.Count(text, []byte("__global__")))
	require.NotEqual(t, text, print(t, 2))
}

func TestTheKernelCompilesWithoutSpills(t *testing.T) {
	compiler := nvcctest.Need(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "k.cu"), print(t, 3), 0o666))
	report, err := compiler.Compile(t.Context(), filepath.Join(dir, "k.cu"), filepath.Join(dir, "k.cubin"),
		nvcc.Options{Arch: "sm_90a"})
	require.NoError(t, err)
	stores, loads := report.Spills()
	require.Zero(t, stores+loads)
	t.Logf("%d registers, %d bytes, %v", report.Functions[0].Registers, report.CubinBytes, report.Took)
}
