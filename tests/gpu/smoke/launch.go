//go:build cuda

package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/mkgen/mkgen/engine/runtime/cuda"
)

// block is the threads per block, as in smoke.cu.
const block = 256

// buffers are the kernel's memory, in the order of Params.
type buffers struct {
	a, b, sum, reversed, arrived, params *cuda.Mem
	host                                 *cuda.Host
	n                                    int
}

// launch runs the kernel on every SM and checks all it did.
func launch(dev *cuda.Device, cubin []byte, shared int, r *report) error {
	module, err := dev.LoadModule(cubin)
	if err != nil {
		return err
	}
	kernel, err := module.Function("smoke")
	if err != nil {
		return err
	}
	if err := kernel.SetDynamicShared(shared); err != nil {
		return err
	}
	r.Registers, r.Local = kernel.Registers, kernel.Local
	r.Grid, r.Block, r.Shared = dev.SMs(), block, shared
	if r.PerSM, err = kernel.PerSM(block, shared); err != nil {
		return err
	}
	bufs, err := allocate(dev, r.Grid*shared/4-5) // the last block's share is not full
	if err != nil {
		return err
	}
	if err := bufs.fill(shared / 4); err != nil {
		return err
	}
	stream, err := dev.NewStream()
	if err != nil {
		return err
	}
	refused := kernel.LaunchCooperative(stream, r.PerSM*r.Grid+1, block, shared, cuda.Pointer(bufs.params.Addr()))
	if refused == nil {
		return fmt.Errorf("a grid of %d blocks was launched, %d fit", r.PerSM*r.Grid+1, r.PerSM*r.Grid)
	}
	r.TooLarge = refused.Error()
	if r.Micros, err = timed(dev, stream, bufs.host, func() error {
		return kernel.LaunchCooperative(stream, r.Grid, block, shared, cuda.Pointer(bufs.params.Addr()))
	}); err != nil {
		return err
	}
	saw, err := bufs.host.Load32(8)
	if err != nil {
		return err
	}
	if saw != 1 {
		return fmt.Errorf("the kernel did not see the host's answer while it ran: it read %d", saw)
	}
	r.Answered, r.Values = true, 2*bufs.n
	return bufs.check()
}

// timed launches between two events, answers the kernel's call, waits for it and returns the microseconds between the
// events.
func timed(dev *cuda.Device, stream *cuda.Stream, host *cuda.Host, start func() error) (float64, error) {
	var events [2]*cuda.Event
	for i := range events {
		var err error
		if events[i], err = dev.NewEvent(); err != nil {
			return 0, err
		}
	}
	if err := events[0].Record(stream); err != nil {
		return 0, err
	}
	if err := start(); err != nil {
		return 0, err
	}
	if err := events[1].Record(stream); err != nil {
		return 0, err
	}
	if err := answer(stream, host); err != nil {
		return 0, err
	}
	if err := stream.Sync(); err != nil {
		return 0, err
	}
	took, err := events[1].Since(events[0])
	return float64(took) / float64(time.Microsecond), err
}

// answer waits until the kernel calls and answers it; a kernel that ends or faults without calling is an error.
func answer(stream *cuda.Stream, host *cuda.Host) error {
	for {
		called, err := host.Load32(4)
		if err != nil {
			return err
		}
		if called == 1 {
			return host.Store32(0, 1)
		}
		done, err := stream.Done()
		if err != nil {
			return err
		}
		if late, err := host.Load32(4); done && (err != nil || late == 0) {
			return fmt.Errorf("the kernel ended without calling the host")
		}
	}
}

// allocate takes the memory for n values.
func allocate(dev *cuda.Device, n int) (*buffers, error) {
	b := &buffers{n: n}
	for _, m := range []struct {
		to    **cuda.Mem
		bytes int64
	}{{&b.a, int64(4 * n)}, {&b.b, int64(4 * n)}, {&b.sum, int64(4 * n)}, {&b.reversed, int64(4 * n)}, {&b.arrived, 4},
		{&b.params, 56}} {
		var err error
		if *m.to, err = dev.Alloc(m.bytes); err != nil {
			return nil, err
		}
	}
	var err error
	b.host, err = dev.AllocHost(12)
	return b, err
}

// values are a's and b's: small integers, so that sums are exact.
func values(i int) (a, b float32) { return float32(i % 4099), float32(i * 7 % 5003) }

// fill writes inputs, the barrier's counter and the params block, and poisons the outputs.
func (b *buffers) fill(sharedFloats int) error {
	left, right := make([]byte, 4*b.n), make([]byte, 4*b.n)
	for i := range b.n {
		x, y := values(i)
		binary.LittleEndian.PutUint32(left[4*i:], math.Float32bits(x))
		binary.LittleEndian.PutUint32(right[4*i:], math.Float32bits(y))
	}
	var params []byte
	for _, address := range []uint64{b.a.Addr(), b.b.Addr(), b.sum.Addr(), b.reversed.Addr(), b.arrived.Addr(),
		b.host.Addr()} {
		params = binary.LittleEndian.AppendUint64(params, address)
	}
	params = binary.LittleEndian.AppendUint32(params, uint32(b.n))
	params = binary.LittleEndian.AppendUint32(params, uint32(sharedFloats))
	for _, step := range []func() error{
		func() error { return b.a.Upload(0, left) },
		func() error { return b.b.Upload(0, right) },
		func() error { return b.params.Upload(0, params) },
		func() error { return b.sum.Set(0xff) }, // NaN
		func() error { return b.reversed.Set(0xff) },
		func() error { return b.arrived.Set(0) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// check compares every output with the sums.
func (b *buffers) check() error {
	sum, reversed := make([]byte, 4*b.n), make([]byte, 4*b.n)
	if err := b.sum.Download(sum, 0); err != nil {
		return err
	}
	if err := b.reversed.Download(reversed, 0); err != nil {
		return err
	}
	at := func(from []byte, i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(from[4*i:])) }
	for i := range b.n {
		x, y := values(i)
		if got := at(sum, i); got != x+y {
			return fmt.Errorf("sum[%d] is %v, want %v", i, got, x+y)
		}
		if got := at(reversed, b.n-1-i); got != x+y {
			return fmt.Errorf("reversed[%d] is %v, want %v", b.n-1-i, got, x+y)
		}
	}
	return nil
}
