//go:build cuda

package cuda

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fake opens the device of the fake driver (testdata/fakedriver.c), or skips: these tests count on its sizes and on its
// one kernel. scripts/build-cuda --fake test runs them, and then they do not skip.
func fake(t *testing.T) *Device {
	t.Helper()
	dev, err := Open(0)
	if os.Getenv("MKGEN_FAKE_DRIVER") != "" {
		require.NoError(t, err)
	}
	if err != nil || dev.Name() != "mkgen fake GPU" {
		t.Skip("needs the fake driver: scripts/build-cuda --fake test ./engine/runtime/cuda")
	}
	t.Cleanup(func() { require.NoError(t, dev.Close()) }) // the fake fails it when anything is left
	return dev
}

// kernel loads the fake's kernel, which adds 1 to the first word of its params block.
func kernel(t *testing.T, dev *Device) *Function {
	t.Helper()
	module, err := dev.LoadModule([]byte("\x7fELF"))
	require.NoError(t, err)
	f, err := module.Function("kernel")
	require.NoError(t, err)
	return f
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	fake(t)
	_, err := Open(1)
	require.EqualError(t, err, "cuda: GPU 1 asked for, there are 1, counted from 0")
	_, err = Open(-1)
	require.ErrorContains(t, err, "GPU -1 asked for")
	t.Setenv("MKGEN_FAKE_INIT", "100")
	_, err = Open(0)
	require.ErrorContains(t, err, "no usable NVIDIA driver and GPU here: cuInit: CUDA_ERROR_NO_DEVICE (100, ")
	var driver *DriverError
	require.ErrorAs(t, err, &driver)
	require.Equal(t, 100, driver.Code)
}

func TestOpenWithoutADriverSaysSo(t *testing.T) {
	_, err := Open(0)
	var driver *DriverError
	if !errors.As(err, &driver) || driver.Name != "CUDA_ERROR_STUB_LIBRARY" {
		t.Skip("needs a machine without the NVIDIA driver: there is one, or a fake one")
	}
	require.EqualError(t, err, "cuda: no usable NVIDIA driver and GPU here: cuInit: CUDA_ERROR_STUB_LIBRARY "+
		"(34, no libcuda.so.1 of an NVIDIA driver, or one without this function)")
}

func TestOpenReadsTheFacts(t *testing.T) {
	dev := fake(t)
	require.Equal(t, Facts{Name: "mkgen fake GPU", Driver: 13000, ComputeMajor: 9, SMs: 4, SharedOptin: 232448,
		SharedPerSM: 233472, L2: 1 << 20, Memory: 1 << 30, ClockKHz: 1000000, Cooperative: true}, dev.Facts())
	require.NoError(t, dev.Check(Needs{Arch: "sm_90a", Driver: 13000, SMs: 4, Shared: 232448}))
	require.Error(t, dev.Check(Needs{SMs: 5}))
}

func TestMemoryRoundTripWithOffsets(t *testing.T) {
	dev := fake(t)
	m, err := dev.Alloc(10)
	require.NoError(t, err)
	require.NoError(t, m.Set(7))
	require.NoError(t, m.Upload(3, []byte{1, 2}))
	require.NoError(t, m.Upload(10, nil))
	got := make([]byte, 4)
	require.NoError(t, m.Download(got, 2))
	require.Equal(t, []byte{7, 1, 2, 7}, got)
	require.EqualError(t, m.Upload(9, []byte{1, 2}), "cuda: upload: bytes 9 to 11 of memory of 10")
	require.EqualError(t, m.Download(got, -1), "cuda: download: bytes -1 to 3 of memory of 10")
}

func TestAllocationErrorsAreInNumbers(t *testing.T) {
	dev := fake(t)
	_, err := dev.Alloc(0)
	require.EqualError(t, err, "cuda: allocate 0 bytes: want at least 1")
	_, err = dev.Alloc(1 << 40)
	require.EqualError(t, err, "cuda: allocate 1099511627776 bytes: CUDA_ERROR_OUT_OF_MEMORY (2, a fake driver's text): "+
		"1073741824 of 1073741824 bytes are free on GPU 0 (mkgen fake GPU)")
	_, err = dev.AllocHost(-1)
	require.ErrorContains(t, err, "want at least 1")
	free, total, err := dev.MemInfo()
	require.NoError(t, err)
	require.Equal(t, []int64{1 << 30, 1 << 30}, []int64{free, total})
}

func TestFreeingTwiceIsHarmlessAndUseAfterwardsAnError(t *testing.T) {
	dev := fake(t)
	m, err := dev.Alloc(4)
	require.NoError(t, err)
	s, err := dev.NewStream()
	require.NoError(t, err)
	h, err := dev.AllocHost(8)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, m.Free())
		require.NoError(t, s.Close())
		require.NoError(t, h.Free())
	}
	require.ErrorIs(t, m.Set(0), ErrClosed)
	require.ErrorIs(t, m.Upload(0, []byte{1}), ErrClosed)
	require.ErrorIs(t, s.Sync(), ErrClosed)
	require.ErrorIs(t, h.Store32(0, 1), ErrClosed)
	require.Nil(t, h.Bytes())
}

func TestCloseReleasesWhatIsLeftAndRefusesUse(t *testing.T) {
	dev := fake(t)
	f := kernel(t, dev)
	m, err := dev.Alloc(4)
	require.NoError(t, err)
	h, err := dev.AllocHost(4)
	require.NoError(t, err)
	s, err := dev.NewStream()
	require.NoError(t, err)
	e, err := dev.NewEvent()
	require.NoError(t, err)
	require.NoError(t, dev.Close()) // the fake driver refuses to end the context while objects are left
	require.NoError(t, dev.Close())
	require.NoError(t, m.Free())
	require.NoError(t, e.Close())
	for _, err := range []error{m.Set(1), s.Sync(), e.Record(s), f.SetDynamicShared(1),
		f.LaunchCooperative(s, 1, 32, 0, Pointer(m.Addr()))} {
		require.ErrorIs(t, err, ErrClosed)
	}
	_, err = dev.Alloc(4)
	require.ErrorIs(t, err, ErrClosed)
	_, err = h.Load32(0)
	require.ErrorIs(t, err, ErrClosed)
	require.Equal(t, "mkgen fake GPU", dev.Name())
}

func TestLaunchPassesTheParamsBlock(t *testing.T) {
	dev := fake(t)
	f := kernel(t, dev)
	params, err := dev.Alloc(64)
	require.NoError(t, err)
	require.NoError(t, params.Set(0))
	s, err := dev.NewStream()
	require.NoError(t, err)
	require.NoError(t, f.SetDynamicShared(100000))
	for range 3 {
		require.NoError(t, f.LaunchCooperative(s, 8, 288, 100000, Pointer(params.Addr())))
	}
	require.NoError(t, s.Sync())
	word := make([]byte, 4)
	require.NoError(t, params.Download(word, 0))
	require.EqualValues(t, 3, binary.LittleEndian.Uint32(word))
}

func TestLaunchRefusesAGridThatCannotBeResident(t *testing.T) {
	dev := fake(t)
	f := kernel(t, dev)
	s, err := dev.NewStream()
	require.NoError(t, err)
	require.NoError(t, f.SetDynamicShared(200000))
	require.EqualError(t, f.LaunchCooperative(s, 5, 288, 200000, Pointer(0)),
		"cuda: launch kernel: 5 blocks of 288 threads with 200000 bytes of "+
			"dynamic shared memory cannot all be resident: 1 per SM on 4 SMs makes 4")
	require.ErrorContains(t, f.LaunchCooperative(s, 4, 513, 0, Pointer(0)), "1 to 512 threads")
	require.ErrorContains(t, f.LaunchCooperative(s, 0, 32, 0, Pointer(0)), "want at least 1 block")
	require.EqualError(t, f.SetDynamicShared(232448),
		"cuda: kernel kernel: 232448 bytes of dynamic shared memory beside 1024 static: "+
			"want 0 to 231424 (232448 per block)")
}

func TestModuleErrors(t *testing.T) {
	dev := fake(t)
	_, err := dev.LoadModule([]byte("// PTX"))
	require.EqualError(t, err, "cuda: load a module: 6 bytes that are no cubin (an ELF file)")
	module, err := dev.LoadModule([]byte("\x7fELF"))
	require.NoError(t, err)
	_, err = module.Function("absent")
	require.ErrorContains(t, err, "cuda: kernel absent: the module has no kernel of this name")
	require.NoError(t, module.Close())
	_, err = module.Function("kernel")
	require.ErrorIs(t, err, ErrClosed)
	t.Setenv("MKGEN_FAKE_LOAD", "209")
	_, err = dev.LoadModule([]byte("\x7fELF"))
	require.ErrorContains(t, err, "the cubin is not for compute capability 9.0 of mkgen fake GPU")
}

func TestStreamReportsAFaultAndUnfinishedWork(t *testing.T) {
	dev := fake(t)
	s, err := dev.NewStream()
	require.NoError(t, err)
	done, err := s.Done()
	require.NoError(t, err)
	require.True(t, done)
	t.Run("fault", func(t *testing.T) {
		t.Setenv("MKGEN_FAKE_SYNC", "700")
		require.EqualError(t, s.Sync(), "cuda: wait for the stream: CUDA_ERROR_ILLEGAL_ADDRESS (700, a fake driver's text)")
		_, err := s.Done()
		require.Error(t, err)
	})
	t.Run("unfinished", func(t *testing.T) {
		t.Setenv("MKGEN_FAKE_SYNC", "600")
		done, err := s.Done()
		require.NoError(t, err)
		require.False(t, done)
	})
}

func TestEventsGiveTheTimeBetween(t *testing.T) {
	dev := fake(t)
	s, err := dev.NewStream()
	require.NoError(t, err)
	a, err := dev.NewEvent()
	require.NoError(t, err)
	b, err := dev.NewEvent()
	require.NoError(t, err)
	require.NoError(t, a.Record(s))
	require.NoError(t, b.Record(s))
	require.NoError(t, b.Sync())
	took, err := b.Since(a)
	require.NoError(t, err)
	require.Equal(t, 1500*time.Microsecond, took)
	require.NoError(t, a.Close())
	_, err = b.Since(a)
	require.ErrorIs(t, err, ErrClosed)
}

func TestHostMemoryIsZeroMappedAndChecked(t *testing.T) {
	dev := fake(t)
	h, err := dev.AllocHost(10)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 10), h.Bytes())
	require.NotZero(t, h.Addr())
	require.NoError(t, h.Store32(4, 0x01020304))
	require.Equal(t, []byte{4, 3, 2, 1}, h.Bytes()[4:8])
	v, err := h.Load32(4)
	require.NoError(t, err)
	require.EqualValues(t, 0x01020304, v)
	for _, wrong := range []int{-4, 2, 8, 12} {
		_, err = h.Load32(wrong)
		require.ErrorContains(t, err, "want a multiple of 4 inside", "%d", wrong)
	}
}

func TestCopiesThroughPinnedMemory(t *testing.T) {
	dev := fake(t)
	s, err := dev.NewStream()
	require.NoError(t, err)
	h, err := dev.AllocHost(8)
	require.NoError(t, err)
	m, err := dev.Alloc(8)
	require.NoError(t, err)
	copy(h.Bytes(), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	require.NoError(t, s.CopyIn(m, 2, h, 4, 4))
	require.NoError(t, s.CopyOut(h, 0, m, 2, 4))
	require.NoError(t, s.Sync())
	require.Equal(t, []byte{5, 6, 7, 8}, h.Bytes()[:4])
	require.ErrorContains(t, s.CopyIn(m, 5, h, 0, 4), "bytes 5 to 9 of memory of 8")
	require.ErrorContains(t, s.CopyOut(h, 5, m, 0, 4), "bytes 5 to 9 of host memory of 8")
	require.NoError(t, h.Free())
	require.ErrorIs(t, s.CopyIn(m, 0, h, 0, 4), ErrClosed)
}

func TestADeviceServesManyGoroutinesWhileItIsClosed(t *testing.T) {
	dev := fake(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				m, err := dev.Alloc(16)
				if err != nil {
					assert.ErrorIs(t, err, ErrClosed)
					return
				}
				if err := m.Set(1); err != nil {
					assert.ErrorIs(t, err, ErrClosed)
				}
				assert.NoError(t, m.Free())
			}
		})
	}
	time.Sleep(time.Millisecond)
	require.NoError(t, dev.Close())
	group.Wait()
}

func TestAGraphMakesItsLaunchesAgain(t *testing.T) {
	dev := fake(t)
	f := kernel(t, dev)
	require.NoError(t, f.PreferShared())
	m, err := dev.Alloc(8)
	require.NoError(t, err)
	require.NoError(t, m.Set(0))
	launch := func(at uint64, dependent bool) GraphLaunch {
		return GraphLaunch{Function: f, Grid: 4, Block: 32, Params: Pointer(m.Addr() + at), Dependent: dependent}
	}
	g, err := dev.NewGraph([]GraphLaunch{launch(0, false), launch(4, true), launch(4, true)})
	require.NoError(t, err)
	s, err := dev.NewStream()
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, g.Launch(s))
	}
	require.NoError(t, s.Sync())
	got := make([]byte, 8)
	require.NoError(t, m.Download(got, 0))
	require.Equal(t, []byte{3, 0, 0, 0, 6, 0, 0, 0}, got)
	for range 2 {
		require.NoError(t, g.Close())
	}
	require.ErrorIs(t, g.Launch(s), ErrClosed)
}

func TestGraphsThatCannotBe(t *testing.T) {
	dev := fake(t)
	f := kernel(t, dev)
	m, err := dev.Alloc(8)
	require.NoError(t, err)
	at := Pointer(m.Addr())
	_, err = dev.NewGraph([]GraphLaunch{{Function: f, Grid: 1, Block: 1024, Params: at}})
	require.EqualError(t, err,
		"cuda: graph: launch 0: kernel: 1 blocks of 1024 threads with 0 bytes: want at least 1 block, 1 to 512 threads, at least 0 bytes")
	_, err = dev.NewGraph([]GraphLaunch{{Function: f, Grid: 1, Block: 32}})
	require.ErrorContains(t, err, "a parameter of 0 bytes")
	// The first launch has none before it that it could start beside.
	_, err = dev.NewGraph([]GraphLaunch{{Function: f, Grid: 1, Block: 32, Params: at, Dependent: true},
		{Function: f, Grid: 1, Block: 32, Params: at}})
	require.ErrorContains(t, err, "0 of 1 edges are programmatic, want 1")
	_, err = dev.NewGraph([]GraphLaunch{{Function: f, Grid: 1, Block: 32, Params: Pointer(8)}}) // no memory of its own
	require.ErrorContains(t, err, "launch 0 of kernel: CUDA_ERROR_ILLEGAL_ADDRESS")
	// the stream before captures no more
	g, err := dev.NewGraph([]GraphLaunch{{Function: f, Grid: 1, Block: 32, Params: at}})
	require.NoError(t, err)
	require.NoError(t, g.Close())
}
