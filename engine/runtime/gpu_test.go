//go:build cuda

package runtime_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/runtime/cuda"
	"github.com/stretchr/testify/require"
)

// fakeGPU is a GPU on the fake driver (scripts/build-cuda --fake), whose one
// kernel is called "kernel"; without it the test is skipped.
func fakeGPU(t *testing.T) *runtime.GPU {
	t.Helper()
	return fakeGPUOf(t, func(k *dsl.Kernel) { dsl.Global[dsl.U32](k, "x", 32).Store(k.Lane(), k.Lane()) })
}

// fakeGPUOf is fakeGPU with a kernel of one's own.
func fakeGPUOf(t *testing.T, body func(k *dsl.Kernel)) *runtime.GPU {
	t.Helper()
	dev, err := cuda.Open(0)
	if os.Getenv("MKGEN_FAKE_DRIVER") != "" {
		require.NoError(t, err)
	}
	if err != nil || dev.Name() != "mkgen fake GPU" {
		t.Skip("needs the fake driver: scripts/build-cuda --fake test ./engine/runtime/...")
	}
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	k := dsl.New("kernel", dsl.Options{Warps: 1, Grid: 1, SharedLimit: 1 << 10})
	body(k)
	built, err := k.Finish()
	require.NoError(t, err)
	gpu, err := runtime.NewGPU(built, dev, []byte("\x7fELF"))
	require.NoError(t, err)
	return gpu
}

// A launch of a graph runs it as often as asked, each node with scalars of its own; the
// fake's kernel adds 1 to the first word of its buffer.
func TestAGraphOnAGPURunsAsOftenAsAsked(t *testing.T) {
	gpu := fakeGPU(t)
	require.NoError(t, gpu.Close())
	dev, err := cuda.Open(0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	k := dsl.New("kernel", dsl.Options{Warps: 1, Grid: 1, SharedLimit: 1 << 10})
	dsl.Global[dsl.U32](k, "x", 1).Store(dsl.At(0), dsl.Scalar[dsl.U32](k, "layer", ""))
	built, err := k.Finish()
	require.NoError(t, err)
	node := func(layer uint64) ir.Node { return ir.Node{Scalars: map[string]uint64{"layer": layer}} }
	g := &ir.Graph{Kernels: []*ir.Kernel{built}, Nodes: []ir.Node{node(0), node(1), node(2)}, Dependent: true,
		Repeat: "steps"}
	_, err = runtime.NewGPUGraph(g, dev, nil)
	require.EqualError(t, err, "0 cubins of a graph of 1 kernels")
	gpu, err = runtime.NewGPUGraph(g, dev, [][]byte{[]byte("\x7fELF")})
	require.NoError(t, err)
	require.NoError(t, gpu.Alloc("x", 4))
	require.NoError(t, gpu.Zero("x"))
	launch := func(steps uint64, want byte) {
		require.NoError(t, runtime.Launch(gpu, map[string]uint64{"steps": steps}))
		got := make([]byte, 4)
		require.NoError(t, gpu.Read("x", 0, got))
		require.Equal(t, []byte{want, 0, 0, 0}, got)
		require.NotZero(t, gpu.Elapsed())
	}
	launch(2, 6)
	launch(1, 9)
	g.Steps = 2
	gpu2, err := runtime.NewGPUGraph(g, dev, [][]byte{[]byte("\x7fELF")})
	require.NoError(t, err)
	require.NoError(t, gpu2.Alloc("x", 4))
	require.NoError(t, gpu2.Zero("x"))
	require.NoError(t, runtime.Launch(gpu2, map[string]uint64{"steps": 5})) // twice two, and one
	got := make([]byte, 4)
	require.NoError(t, gpu2.Read("x", 0, got))
	require.Equal(t, []byte{15, 0, 0, 0}, got)
	require.NoError(t, gpu2.Close())
	restore, err := gpu.SwapGraph(&ir.Graph{Kernels: g.Kernels, Nodes: g.Nodes[:1], Repeat: "steps"},
		[][]byte{[]byte("\x7fELF")})
	require.NoError(t, err)
	launch(1, 10)
	restore()
	launch(1, 13)
	require.NoError(t, gpu.Close())
}

func TestABufferThatDoesNotFitLeavesTheGPUInOrder(t *testing.T) {
	gpu := fakeGPU(t)
	require.ErrorContains(t, gpu.Alloc("x", 1<<40), "CUDA_ERROR_OUT_OF_MEMORY")
	require.EqualError(t, gpu.Zero("x"), `no buffer "x"`)
	require.NoError(t, gpu.Alloc("x", 128))
	require.EqualError(t, gpu.Alloc("x", 128), `buffer "x" is there already`)
	require.NoError(t, gpu.Close())
}

func TestClosingAfterAFailedAllocation(t *testing.T) {
	gpu := fakeGPU(t)
	require.Error(t, gpu.Alloc("x", 1<<40))
	require.NoError(t, gpu.Close())
}

func TestWhatIsWrittenAheadIsThereWhenTheLaunchHasBegun(t *testing.T) {
	gpu := fakeGPU(t)
	const n = 5 << 20 // more than is under way at once
	require.NoError(t, gpu.Alloc("x", n+3))
	require.ErrorContains(t, gpu.WriteAhead("y", 0, []byte{1}), `no buffer "y"`)
	src, got := make([]byte, n), make([]byte, n)
	for round := range 3 {
		for i := range src {
			src[i] = byte(i>>12 + i + round)
		}
		require.NoError(t, gpu.WriteAhead("x", 3, src[:7]))
		require.NoError(t, gpu.WriteAhead("x", 10, src[7:]))
		want := bytes.Clone(src)
		clear(src) // may be used again at once
		require.NoError(t, gpu.Start(nil))
		require.NoError(t, gpu.WriteAhead("x", 0, []byte{9})) // for the next
		require.NoError(t, gpu.Wait())
		require.NoError(t, gpu.Read("x", 3, got))
		require.True(t, bytes.Equal(want, got), "round %d", round)
		copy(src, want)
	}
	require.Error(t, gpu.WriteAhead("x", n, []byte{1, 2, 3, 4}))
	require.NoError(t, gpu.Close())
	require.NoError(t, gpu.Close())
}

// What is written from memory that the GPU gave goes from there; other memory may be used again at once.
func TestWritingAheadFromTheGPUsOwnMemory(t *testing.T) {
	gpu := fakeGPU(t)
	require.NoError(t, gpu.Alloc("x", 128))
	first, err := gpu.Keep(64)
	require.NoError(t, err)
	second, err := gpu.Keep(128)
	require.NoError(t, err)
	other := make([]byte, 64)
	for i := range other {
		first[i], second[i], second[64+i], other[i] = byte(i), byte(100+i), byte(164+i), 7
	}
	for _, src := range [][]byte{first[8:40], second[:64], second[64:], other, first} {
		require.NoError(t, gpu.WriteAhead("x", 4, src))
		require.NoError(t, gpu.Start(nil))
		require.NoError(t, gpu.Wait())
		got := make([]byte, len(src))
		require.NoError(t, gpu.Read("x", 4, got))
		require.Equal(t, src, got)
	}
	require.Error(t, gpu.WriteAhead("x", 100, first))
	require.NoError(t, gpu.Close())
	require.NoError(t, gpu.Close())
}

func TestReadingAheadOfTheNextLaunch(t *testing.T) {
	gpu := fakeGPU(t)
	require.NoError(t, gpu.Alloc("x", 1000))
	_, err := gpu.ReadAhead("y", 0, 4)
	require.EqualError(t, err, `no buffer "y"`)
	_, err = gpu.ReadAhead("x", 990, 11)
	require.Error(t, err)
	src := make([]byte, 1000)
	for i := range src {
		src[i] = byte(i % 251)
	}
	require.NoError(t, gpu.Write("x", 0, src))
	for _, n := range []int{10, 900, 20} { // more and less than before
		wait, err := gpu.ReadAhead("x", 7, n)
		require.NoError(t, err)
		got, err := wait()
		require.NoError(t, err)
		require.Equal(t, src[7:7+n], got)
	}
	require.NoError(t, gpu.Close())
	require.NoError(t, gpu.Close())
}

// What the host keeps lies in its memory: it looks there without a copy.
func TestWhatTheHostKeepsIsInItsMemory(t *testing.T) {
	gpu := fakeGPUOf(t, func(k *dsl.Kernel) {
		dsl.Global[dsl.U32](k, "x", 32).Store(k.Lane(), k.Lane())
		dsl.Global[dsl.U32](k, "kept", 32, dsl.HostKeeps()).Store(k.Lane(), k.Lane())
	})
	for _, name := range []string{"x", "kept"} {
		require.NoError(t, gpu.Alloc(name, 128))
		require.NoError(t, gpu.Write(name, 4, []byte{7, 0, 0, 0}))
	}
	_, err := gpu.Peek("x", 1)
	require.Error(t, err)
	got, err := gpu.Peek("kept", 1)
	require.NoError(t, err)
	require.Equal(t, uint32(7), got)
	require.NoError(t, gpu.Close())
}
