//go:build cuda

package runtime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/runtime/cuda"
)

// GPU is the Device that runs a kernel's cubin on one GPU.
type GPU struct {
	k      *ir.Kernel
	dev    *cuda.Device
	stream *cuda.Stream
	fn     *cuda.Function
	graph  *gpuGraph // is launched instead of fn, unless nil
	block  []byte    // the params block
	mem    map[string]*cuda.Mem
	host   map[string]*cuda.Host // buffers for the host to read while a kernel runs
	lent   map[string]bool       // those of mem that are another GPU's
	done   chan struct{}
	err    error
	begin  *cuda.Event
	end    *cuda.Event

	ahead   ahead
	modules []*cuda.Module // fn's, and those swapped in

	// Last is the device time of the last launch.
	Last time.Duration
}

// NewGPU loads the cubin of kernel k on a GPU that the caller opened and closes.
func NewGPU(k *ir.Kernel, dev *cuda.Device, cubin []byte) (*GPU, error) {
	g, err := newGPU(k, dev)
	if err != nil {
		return nil, err
	}
	g.fn, err = g.function(k, cubin)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// newGPU is a GPU without code.
func newGPU(k *ir.Kernel, dev *cuda.Device) (*GPU, error) {
	g := &GPU{k: k, dev: dev, mem: map[string]*cuda.Mem{}, host: map[string]*cuda.Host{}, lent: map[string]bool{}}
	var err error
	if g.stream, err = dev.NewStream(); err != nil {
		return nil, err
	}
	if g.begin, err = dev.NewEvent(); err != nil {
		return nil, err
	}
	if g.end, err = dev.NewEvent(); err != nil {
		return nil, err
	}
	_, size := k.ParamsLayout()
	g.block = make([]byte, size)
	return g, nil
}

func (g *GPU) function(k *ir.Kernel, cubin []byte) (*cuda.Function, error) {
	m, err := g.dev.LoadModule(cubin)
	if err != nil {
		return nil, err
	}
	g.modules = append(g.modules, m)
	fn, err := m.Function(k.Name)
	if err != nil {
		return nil, err
	}
	return fn, fn.SetDynamicShared(k.SharedBytes)
}

// Swap runs another cubin on the same buffers until restore is called. It must
// be of a kernel with the same params block and shared memory.
func (g *GPU) Swap(cubin []byte) (restore func(), err error) {
	fn, err := g.function(g.k, cubin)
	if err != nil {
		return nil, err
	}
	old := g.fn
	g.fn = fn
	return func() { g.fn = old }, nil
}

// SwapKernel is Swap for a kernel of any params block and shared memory, all of whose
// buffers must be allocated.
func (g *GPU) SwapKernel(k *ir.Kernel, cubin []byte) (restore func(), err error) {
	fn, err := g.function(k, cubin)
	if err != nil {
		return nil, err
	}
	_, size := k.ParamsLayout()
	oldKernel, oldFn, oldBlock := g.k, g.fn, g.block
	g.k, g.fn, g.block = k, fn, make([]byte, size)
	return func() { g.k, g.fn, g.block = oldKernel, oldFn, oldBlock }, nil
}

func (g *GPU) buffer(name string) (*cuda.Mem, error) {
	m := g.mem[name]
	if m == nil {
		return nil, fmt.Errorf("no buffer %q", name)
	}
	return m, nil
}

// Alloc reserves device memory, or mapped host memory for what the host reads
// while a kernel runs or keeps. A name can be given once.
func (g *GPU) Alloc(name string, bytes int64) error {
	if g.mem[name] != nil || g.host[name] != nil {
		return fmt.Errorf("buffer %q is there already", name)
	}
	for _, b := range g.k.Globals() {
		if b.Name == name && (b.Host == ir.HostReads || b.Host == ir.HostKeeps) {
			h, err := g.dev.AllocHost(int(bytes))
			if err != nil {
				return err
			}
			g.host[name] = h
			return nil
		}
	}
	m, err := g.dev.Alloc(bytes)
	if err != nil {
		return err // and no entry: Close frees what is there
	}
	g.mem[name] = m
	return nil
}

// Borrow makes a buffer of another kernel on the same GPU this one's, see Borrower.
func (g *GPU) Borrow(name string, from Device) error {
	f, ok := from.(interface{ onGPU() *GPU })
	if !ok || f.onGPU().dev != g.dev {
		return fmt.Errorf("a GPU borrows from itself, not from a %T", from)
	}
	m, err := f.onGPU().buffer(name)
	if err != nil {
		return err
	}
	g.mem[name], g.lent[name] = m, true
	return nil
}

func (g *GPU) onGPU() *GPU { return g }

// span is n bytes of mapped host memory; nil where name is in device memory.
func (g *GPU) span(name string, offset int64, n int) ([]byte, error) {
	h := g.host[name]
	if h == nil {
		return nil, nil
	}
	raw := h.Bytes()
	if offset < 0 || offset+int64(n) > int64(len(raw)) {
		return nil, fmt.Errorf("bytes %d to %d of buffer %s, which has %d", offset, offset+int64(n), name, len(raw))
	}
	return raw[offset : offset+int64(n)], nil
}

// Write copies to device memory. Not for what a running kernel touches.
func (g *GPU) Write(name string, offset int64, src []byte) error {
	if raw, err := g.span(name, offset, len(src)); raw != nil || err != nil {
		copy(raw, src)
		return err
	}
	m, err := g.buffer(name)
	if err != nil {
		return err
	}
	return m.Upload(offset, src)
}

// Zero clears a buffer.
func (g *GPU) Zero(name string) error {
	if h := g.host[name]; h != nil {
		clear(h.Bytes())
		return nil
	}
	m, err := g.buffer(name)
	if err != nil {
		return err
	}
	return m.Set(0)
}

// Read copies from device memory.
func (g *GPU) Read(name string, offset int64, dst []byte) error {
	if raw, err := g.span(name, offset, len(dst)); raw != nil || err != nil {
		copy(dst, raw)
		return err
	}
	m, err := g.buffer(name)
	if err != nil {
		return err
	}
	return m.Download(dst, offset)
}

// Peek reads a word that a kernel, perhaps still running, has written.
func (g *GPU) Peek(name string, i int) (uint32, error) {
	h := g.host[name]
	if h == nil {
		return 0, fmt.Errorf("no buffer %q for the host to read", name)
	}
	return h.Load32(4 * i)
}

// Poke writes words of device memory beside a running kernel. It returns when they are there.
func (g *GPU) Poke(name string, i int, values ...uint32) error {
	if len(values) == 0 {
		return nil
	}
	// As they are in memory: hosts of these GPUs are little-endian, and masks of many rows are to be there soon.
	return g.Write(name, 4*int64(i), unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values)))
}

// Start launches the kernel cooperatively. It must have been printed with its
// params block by value.
func (g *GPU) Start(scalars map[string]uint64) error {
	if g.graph != nil {
		return g.startGraph(scalars)
	}
	if err := g.fill(scalars); err != nil {
		return err
	}
	if err := g.begin.Record(g.stream); err != nil {
		return err
	}
	if err := g.fn.LaunchCooperative(g.stream, g.k.Grid, 32*g.k.Warps, g.k.SharedBytes, g.block); err != nil {
		return err
	}
	if err := g.end.Record(g.stream); err != nil {
		return err
	}
	g.await(func() error { return nil })
	return nil
}

// await queues what remains and waits for the end of the launch, beside the caller.
func (g *GPU) await(queue func() error) {
	g.ahead.begun()
	done := make(chan struct{})
	g.done = done
	go func() {
		defer close(done)
		queued := queue()
		if g.err = errors.Join(queued, g.stream.Sync()); g.err == nil {
			g.Last, g.err = g.end.Since(g.begin)
		}
	}()
}

// Done is closed when the kernel has ended.
func (g *GPU) Done() <-chan struct{} { return g.done }

// Wait waits for the kernel that was started last.
func (g *GPU) Wait() error {
	<-g.done
	g.ahead.ended()
	return g.err
}

// addr is a buffer's address on the GPU.
func (g *GPU) addr(name string) (uint64, error) {
	if h := g.host[name]; h != nil {
		return h.Addr(), nil
	}
	m, err := g.buffer(name)
	if err != nil {
		return 0, err
	}
	return m.Addr(), nil
}

func (g *GPU) fill(scalars map[string]uint64) error {
	fields, _ := g.k.ParamsLayout()
	for _, f := range fields {
		at := g.block[f.Offset:]
		if f.Buf != nil {
			if err := g.encode(f.Buf); err != nil {
				return err
			}
			addr, err := g.addr(f.Name)
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint64(at, addr)
			continue
		}
		v, ok := scalars[f.Name]
		if !ok {
			return fmt.Errorf("no value for parameter %q", f.Name)
		}
		if f.Type.Size() == 8 {
			binary.LittleEndian.PutUint64(at, v)
		} else {
			binary.LittleEndian.PutUint32(at, uint32(v))
		}
	}
	return nil
}

// ErrRunning says that a kernel does not end.
var ErrRunning = errors.New("a kernel still runs on the GPU; it ends with this process")

// Close frees what the device holds for this kernel; the GPU stays open. While a
// kernel runs, that has been given up and does not leave, nothing can be freed:
// Close abandons the GPU and says so.
func (g *GPU) Close() error {
	if g.done != nil {
		select {
		case <-g.done:
		default:
			g.dev.Abandon()
			return ErrRunning
		}
	}
	var errs []error
	if g.graph != nil {
		errs = append(errs, g.graph.close())
	}
	for name, m := range g.mem {
		if !g.lent[name] {
			errs = append(errs, m.Free())
		}
	}
	for _, h := range g.host {
		errs = append(errs, h.Free())
	}
	errs = append(errs, g.ahead.close(g.stream))
	errs = append(errs, g.begin.Close(), g.end.Close(), g.stream.Close())
	for _, m := range g.modules {
		errs = append(errs, m.Close())
	}
	g.modules = nil
	g.mem, g.host = map[string]*cuda.Mem{}, map[string]*cuda.Host{}
	return errors.Join(errs...)
}
