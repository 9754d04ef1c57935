//go:build cuda

package runtime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel/runtime/cuda"
)

// GPU is the Device that runs a kernel's cubin on one GPU.
type GPU struct {
	k      *ir.Kernel
	dev    *cuda.Device
	stream *cuda.Stream
	fn     *cuda.Function
	block  []byte // the params block
	mem    map[string]*cuda.Mem
	begin  *cuda.Event
	end    *cuda.Event

	// Last is the device time of the last launch.
	Last time.Duration
}

// NewGPU loads the cubin of kernel k on a GPU that the caller opened and closes.
func NewGPU(k *ir.Kernel, dev *cuda.Device, cubin []byte) (*GPU, error) {
	g := &GPU{k: k, dev: dev, mem: map[string]*cuda.Mem{}}
	var err error
	if g.fn, err = g.function(cubin); err != nil {
		return nil, err
	}
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

func (g *GPU) function(cubin []byte) (*cuda.Function, error) {
	m, err := g.dev.LoadModule(cubin)
	if err != nil {
		return nil, err
	}
	fn, err := m.Function(g.k.Name)
	if err != nil {
		return nil, err
	}
	return fn, fn.SetDynamicShared(g.k.SharedBytes)
}

// Swap runs another cubin on the same buffers until restore is called. It must
// be of a kernel with the same params block and shared memory.
func (g *GPU) Swap(cubin []byte) (restore func(), err error) {
	fn, err := g.function(cubin)
	if err != nil {
		return nil, err
	}
	old := g.fn
	g.fn = fn
	return func() { g.fn = old }, nil
}

func (g *GPU) buffer(name string) (*cuda.Mem, error) {
	m := g.mem[name]
	if m == nil {
		return nil, fmt.Errorf("no buffer %q", name)
	}
	return m, nil
}

// Alloc reserves device memory. A name can be given once.
func (g *GPU) Alloc(name string, bytes int64) error {
	if g.mem[name] != nil {
		return fmt.Errorf("buffer %q is there already", name)
	}
	m, err := g.dev.Alloc(bytes)
	if err != nil {
		return err // and no entry: Close frees what is there
	}
	g.mem[name] = m
	return nil
}

// Write copies to device memory.
func (g *GPU) Write(name string, offset int64, src []byte) error {
	m, err := g.buffer(name)
	if err != nil {
		return err
	}
	return m.Upload(offset, src)
}

// Zero clears a buffer.
func (g *GPU) Zero(name string) error {
	m, err := g.buffer(name)
	if err != nil {
		return err
	}
	return m.Set(0)
}

// Read copies from device memory.
func (g *GPU) Read(name string, offset int64, dst []byte) error {
	m, err := g.buffer(name)
	if err != nil {
		return err
	}
	return m.Download(dst, offset)
}

// Launch runs the kernel cooperatively and waits for it. The kernel must have
// been printed with its params block by value.
func (g *GPU) Launch(scalars map[string]uint64) error {
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
	if err := g.stream.Sync(); err != nil {
		return err
	}
	var err error
	g.Last, err = g.end.Since(g.begin)
	return err
}

func (g *GPU) fill(scalars map[string]uint64) error {
	fields, _ := g.k.ParamsLayout()
	for _, f := range fields {
		at := g.block[f.Offset:]
		if f.Buf != nil {
			m, err := g.buffer(f.Name)
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint64(at, m.Addr())
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

// Close frees what the device holds for this kernel; the GPU stays open.
func (g *GPU) Close() error {
	var errs []error
	for _, m := range g.mem {
		errs = append(errs, m.Free())
	}
	errs = append(errs, g.begin.Close(), g.end.Close(), g.stream.Close())
	g.mem = map[string]*cuda.Mem{}
	return errors.Join(errs...)
}
