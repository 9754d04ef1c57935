//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"gorgonia.org/cu"
)

// Device is one open GPU. It holds the GPU's primary context; Close gives it back.
type Device struct {
	facts  Facts
	device cu.Device
	ctx    cu.CUContext
	copies cu.Stream // of the copies that wait for their end

	closing atomic.Bool
	mu      sync.RWMutex // held for reading by every call into the driver, for writing by Close
	closed  bool

	handleMu sync.Mutex
	handles  map[*handle]struct{} // all that is not released yet
}

// Open opens the GPU with this ordinal, from 0. Its errors say what is missing: driver, GPU, or that ordinal.
func Open(ordinal int) (*Device, error) {
	if err := initDriver(); err != nil {
		return nil, fmt.Errorf("cuda: no usable NVIDIA driver and GPU here: cuInit: %w", err)
	}
	count, err := cu.NumDevices()
	if err != nil {
		return nil, fmt.Errorf("cuda: count the GPUs: %w", fromCu(err))
	}
	if ordinal < 0 || ordinal >= count {
		return nil, fmt.Errorf("cuda: GPU %d asked for, there are %d, counted from 0", ordinal, count)
	}
	device, err := cu.GetDevice(ordinal)
	if err != nil {
		return nil, fmt.Errorf("cuda: GPU %d: %w", ordinal, fromCu(err))
	}
	facts, err := factsOf(ordinal, device)
	if err != nil {
		return nil, fmt.Errorf("cuda: facts of GPU %d: %w", ordinal, fromCu(err))
	}
	ctx, err := device.RetainPrimaryCtx()
	if err != nil {
		return nil, fmt.Errorf("cuda: context on GPU %d (%s): %w", ordinal, facts.Name, fromCu(err))
	}
	d := &Device{facts: facts, device: device, ctx: ctx, handles: map[*handle]struct{}{}}
	err = d.do("open", func() error {
		d.copies, err = cu.MakeStream(cu.NonBlocking)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, fromCu(device.ReleasePrimaryCtx()))
	}
	return d, nil
}

// factsOf asks the driver about a device; no context is needed.
func factsOf(ordinal int, device cu.Device) (Facts, error) {
	f := Facts{Ordinal: ordinal, Driver: cu.Version()}
	var err error
	if f.Name, err = device.Name(); err != nil {
		return f, err
	}
	if f.ComputeMajor, err = device.Attribute(cu.ComputeCapabilityMajor); err != nil {
		return f, err
	}
	if f.ComputeMinor, err = device.Attribute(cu.ComputeCapabilityMinor); err != nil {
		return f, err
	}
	if f.Memory, err = device.TotalMem(); err != nil {
		return f, err
	}
	return f, attributes(device, &f)
}

// Facts are the GPU's; they stay readable after Close.
func (d *Device) Facts() Facts { return d.facts }

// Name is the GPU's product name.
func (d *Device) Name() string { return d.facts.Name }

// SMs is the number of multiprocessors.
func (d *Device) SMs() int { return d.facts.SMs }

// ComputeCapability is 9, 0 for Hopper.
func (d *Device) ComputeCapability() (major, minor int) {
	return d.facts.ComputeMajor, d.facts.ComputeMinor
}

// SharedOptin is the most shared memory in bytes that a block may ask for.
func (d *Device) SharedOptin() int { return d.facts.SharedOptin }

// DriverVersion is the newest CUDA version of the driver, 13000 for 13.0.
func (d *Device) DriverVersion() int { return d.facts.Driver }

// Check is [Facts.Check] for this GPU.
func (d *Device) Check(n Needs) error { return d.facts.Check(n) }

// MemInfo returns the free and the total bytes of the GPU's memory, now.
func (d *Device) MemInfo() (free, total int64, err error) {
	err = d.do("memory info", func() error {
		free, total, err = cu.MemInfo()
		return err
	})
	return free, total, err
}

// Close releases everything that came from the device and then its context. It waits for calls in flight, so a kernel
// that runs until it is told to must be told before. A second Close does nothing. After a kernel has faulted, every
// call fails with that fault, Close included, but the context is gone afterwards and the GPU can be opened again.
func (d *Device) Close() error {
	if !d.closing.CompareAndSwap(false, true) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	first := fromCu(cu.SetCurrentContext(d.ctx))
	note := func(err error) {
		if first == nil {
			first = fromCu(err)
		}
	}
	d.handleMu.Lock()
	for h := range d.handles {
		h.mu.Lock()
		h.gone = true
		note(h.free())
		h.mu.Unlock()
	}
	d.handles = nil
	d.handleMu.Unlock()
	note(d.copies.Destroy())
	note(d.device.ReleasePrimaryCtx())
	if first != nil {
		return fmt.Errorf("cuda: close GPU %d: %w", d.facts.Ordinal, first)
	}
	return nil
}

// Abandon makes every later call fail, and Close return at once, without waiting for a kernel that does not end:
// nothing is released before the process ends.
func (d *Device) Abandon() { d.closing.Store(true) }

// do calls f on a thread that has the device's context, and names the operation in its error. Locks are taken in the
// order device, handle.
func (d *Device) do(op string, f func() error) error {
	if d.closing.Load() { // not left to wait behind Close, which waits for others
		return fmt.Errorf("cuda: %s: device %w", op, ErrClosed)
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return fmt.Errorf("cuda: %s: device %w", op, ErrClosed)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.ctx); err != nil {
		return fmt.Errorf("cuda: %s: context: %w", op, fromCu(err))
	}
	if err := f(); err != nil {
		return fmt.Errorf("cuda: %s: %w", op, fromCu(err))
	}
	return nil
}
