package ceiling

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/internal/nvcc/nvcctest"
	"github.com/stretchr/testify/require"
)

var cu = flag.String("cu", "", "file to write the emitted kernel for 132 SMs to")

// executor is the Device that executes the kernel on the CPU; a launch takes as
// many microseconds as it has copied bytes.
type executor struct {
	program *interp.Program
	mem     *interp.Memory
	seed    uint64
	spoil   func(*executor) // called before a launch that streams
}

func newExecutor(t *testing.T, k *ir.Kernel, seed uint64) *executor {
	t.Helper()
	p, err := interp.Load(k)
	require.NoError(t, err)
	return &executor{program: p, mem: interp.NewMemory(), seed: seed}
}

func (e *executor) Alloc(name string, bytes int64) error {
	e.mem.Bind(name, make([]byte, bytes))
	e.mem.MarkUninit(name)
	return nil
}

func (e *executor) Zero(name string) error {
	b := e.mem.Bytes(name)
	clear(b)
	e.mem.MarkInit(name, 0, int64(len(b)))
	return nil
}

func (e *executor) Read(name string, offset int64, dst []byte) error {
	copy(dst, e.mem.Bytes(name)[offset:])
	return nil
}

func (e *executor) Wait() error { return nil }

func (e *executor) Start(scalars map[string]uint64) error {
	if e.spoil != nil && scalars[scalarFill] == 0 {
		e.spoil(e)
	}
	e.seed++
	_, err := e.program.Run(e.mem, interp.Options{Seed: e.seed, Params: scalars})
	return err
}

func (e *executor) Elapsed() time.Duration { return time.Millisecond }

const testSMs = 3

func open(t *testing.T, seed uint64) (*Stream, *executor) {
	t.Helper()
	k, err := Kernel(testSMs)
	require.NoError(t, err)
	e := newExecutor(t, k, seed)
	s, err := Open(e, testSMs, testSMs*320<<10+48<<10) // a tail that no variant reads
	require.NoError(t, err)
	return s, e
}

func TestTheFillIsWhatTheHostExpects(t *testing.T) {
	_, e := open(t, 1)
	data := e.mem.Bytes(bufferData)
	for i := range uint32(len(data) / 4) {
		require.Equal(t, Word(i), binary.LittleEndian.Uint32(data[4*i:]), "word %d", i)
	}
}

// Every variant, in several interleavings, without race, and every chunk's words
// are those of the buffer. The ring goes round where the buffer is long enough.
func TestEveryVariantStreamsAllChunks(t *testing.T) {
	for seed := range uint64(3) {
		s, _ := open(t, 100*seed)
		for _, v := range Variants() {
			require.NoError(t, s.Check(v), v)
			_, err := s.Once(v)
			require.NoError(t, err, v)
			require.LessOrEqual(t, s.Bytes(v), s.bytes)
			require.Greater(t, s.Bytes(v), s.bytes*7/10, v)
		}
	}
}

func TestFewerChunksThanStages(t *testing.T) {
	k, err := Kernel(2)
	require.NoError(t, err)
	s, err := Open(newExecutor(t, k, 5), 2, 128<<10)
	require.NoError(t, err)
	for _, v := range Variants() {
		require.NoError(t, s.Check(v), v)
	}
}

func TestACopyOfSomethingElseIsNoticed(t *testing.T) {
	s, e := open(t, 1)
	e.spoil = func(e *executor) { e.mem.Bytes(bufferData)[96<<10] ^= 1 }
	v := Variant{StageBytes: 32 << 10, Stages: 6}
	require.ErrorContains(t, s.Check(v), "what it copied is not the buffer")
}

func TestChunksThatDidNotLandAreNoticed(t *testing.T) {
	s, e := open(t, 1)
	s.dev = deaf{e}
	_, err := s.Once(Variants()[0])
	require.ErrorContains(t, err, "0 chunks landed on SM 0, want 42")
}

// deaf is a device whose launches do nothing.
type deaf struct{ *executor }

func (deaf) Start(map[string]uint64) error { return nil }

// Each synchronisation is needed: without it, or weaker, or with other counts,
// the executor reports a fault or the check fails.
func TestMutantsOfTheKernelAreReported(t *testing.T) {
	if testing.Short() {
		t.Skip("runs many kernels")
	}
	k, err := Kernel(2)
	require.NoError(t, err)
	all := mutate.List(k)
	require.Greater(t, len(all), 5)
	for _, m := range all {
		mutant, err := mutate.Apply(k, m)
		require.NoError(t, err)
		err = tryOut(t, mutant)
		if harmless := m.Class == mutate.Later && strings.HasPrefix(m.String(), "later mbar.expect"); harmless {
			// The phase waits for this arrival, so it may come after the copy has
			// begun, or even landed: the transaction count may be below zero.
			require.NoError(t, err, m)
			continue
		}
		require.Error(t, err, m)
	}
}

// tryOut runs a kernel for 2 SMs with a ring that goes round several times.
func tryOut(t *testing.T, k *ir.Kernel) error {
	for seed := range uint64(3) {
		s, err := Open(newExecutor(t, k, 10*seed), 2, 2*128<<10)
		if err == nil {
			err = s.Check(Variant{StageBytes: 16 << 10, Stages: 3, Interleaved: seed == 1})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestBuffersThatDoNotFitAreRefused(t *testing.T) {
	for _, bytes := range []int64{0, 64<<10 - 16, MaxBytes + 16, 1<<20 + 8} {
		_, err := Open(nil, 1, bytes)
		require.ErrorContains(t, err, "for 1 SMs, want 65536 to 8589934592, a multiple of 16")
	}
	s := &Stream{}
	for _, v := range []Variant{{StageBytes: 4 << 10, Stages: 1}, {StageBytes: 64 << 10, Stages: 4}, {StageBytes: 8 << 10},
		{StageBytes: 8200, Stages: 2}} {
		_, err := s.Once(v)
		require.ErrorContains(t, err, "together at most 196608")
	}
}

// timed answers launches with given times.
type timed struct {
	deaf
	chunks uint32
	took   []time.Duration
}

func (d *timed) Start(map[string]uint64) error {
	d.took = d.took[1:]
	return nil
}

func (d *timed) Elapsed() time.Duration    { return d.took[0] }
func (d *timed) Zero(name string) error    { return nil }
func (d *timed) Alloc(string, int64) error { return nil }
func (d *timed) Read(_ string, _ int64, dst []byte) error {
	for i := 0; i < len(dst); i += 8 {
		binary.LittleEndian.PutUint32(dst[i:], d.chunks)
	}
	return nil
}

func TestMeasureIsTheMedianWithoutTheFirstLaunch(t *testing.T) {
	v := Variant{StageBytes: 64 << 10, Stages: 3}
	d := &timed{chunks: 1, took: []time.Duration{0, 99, 64, 128, 32}}
	s := &Stream{dev: d, sms: 1, bytes: 64 << 10}
	m, err := s.Measure(context.Background(), v, 3)
	require.NoError(t, err)
	require.Equal(t, Measured{v, 1024, 512, 2048}, m)

	d.took = []time.Duration{0, 1, 0}
	_, err = s.Measure(context.Background(), v, 1)
	require.ErrorContains(t, err, "took 0s")
}

func TestBestIsTheVariantWithTheGreatestMedian(t *testing.T) {
	a, b := Variant{StageBytes: 64 << 10, Stages: 3}, Variant{StageBytes: 64 << 10, Stages: 1}
	s := &Stream{sms: 1, bytes: 64 << 10, dev: &timed{chunks: 1, took: []time.Duration{0, 9, 64, 9, 32}}}
	m, err := s.Best(context.Background(), []Variant{a, b}, 1)
	require.NoError(t, err)
	require.Equal(t, b, m.Variant)
	_, err = s.Best(context.Background(), nil, 1)
	require.EqualError(t, err, "ceiling: no variants to measure")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = s.Best(ctx, []Variant{a}, 1)
	require.True(t, errors.Is(err, context.Canceled))
}

func TestVariantsCoverTheSpecifiedStages(t *testing.T) {
	stages := map[int]int{}
	for _, v := range Variants() {
		require.NoError(t, v.fits())
		stages[v.StageBytes>>10]++
	}
	require.Equal(t, map[int]int{8: 6, 16: 6, 32: 6, 64: 6}, stages)
	require.Equal(t, "24 × 8 KiB, interleaved", Variants()[0].String())
}

// The emitted text, for -cu and for the toolchain tests.
func TestKernelPrints(t *testing.T) {
	k, err := Kernel(132)
	require.NoError(t, err)
	target, err := emit.TargetFor("sm_90a")
	require.NoError(t, err)
	src, err := emit.Print(k, target, emit.Options{ParamsByValue: true})
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(src.Text, []byte("__global__")))
	require.Equal(t, 1, bytes.Count(src.Text, []byte("cp.async.bulk.shared")))
	if *cu != "" {
		require.NoError(t, os.WriteFile(*cu, src.Text, 0o666))
	}
}

func TestKernelCompilesWithoutSpills(t *testing.T) {
	compiler := nvcctest.Need(t)
	k, err := Kernel(132)
	require.NoError(t, err)
	target, err := emit.TargetFor("sm_90a")
	require.NoError(t, err)
	src, err := emit.Print(k, target, emit.Options{ParamsByValue: true})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "k.cu"), src.Text, 0o666))
	report, err := compiler.Compile(t.Context(), filepath.Join(dir, "k.cu"), filepath.Join(dir, "k.cubin"),
		nvcc.Options{Arch: "sm_90a"})
	require.NoError(t, err)
	stores, loads := report.Spills()
	require.Zero(t, stores+loads)
	t.Logf("%d registers, %d bytes, %v", report.Functions[0].Registers, report.CubinBytes, report.Took)
}
