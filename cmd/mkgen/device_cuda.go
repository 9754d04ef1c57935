//go:build cuda

package main

import (
	"context"
	"errors"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/runtime"
	"github.com/mkgen/mkgen/megakernel/runtime/compile"
	"github.com/mkgen/mkgen/megakernel/runtime/cuda"
)

const (
	hasCUDA       = true
	defaultDevice = deviceCUDA
)

// openDevice opens a device for a kernel: the executor, or the first GPU with the
// kernel compiled for it. Closing the device closes the GPU too.
func openDevice(ctx context.Context, mk *megakernel.Kernel, o deviceOptions) (runtime.Device, error) {
	if o.name == deviceSim {
		return openSim(mk)
	}
	gpu, err := cuda.Open(0)
	if err != nil {
		return nil, err
	}
	d := &gpuDevice{gpu: gpu}
	if d.GPU, err = loadKernel(ctx, mk, gpu, o); err != nil {
		return nil, errors.Join(err, gpu.Close())
	}
	return d, nil
}

// gpuDevice is a kernel on a GPU that nothing else uses.
type gpuDevice struct {
	*runtime.GPU
	gpu *cuda.Device
}

func (d *gpuDevice) Close() error { return errors.Join(d.GPU.Close(), d.gpu.Close()) }

// loadKernel compiles a kernel, or takes it from the cache, and loads it, if the
// GPU can run it.
func loadKernel(ctx context.Context, mk *megakernel.Kernel, gpu *cuda.Device, o deviceOptions) (*runtime.GPU, error) {
	if err := gpu.Check(cuda.Needs{Arch: o.arch, SMs: mk.IR.Grid, Shared: mk.IR.SharedBytes}); err != nil {
		return nil, err
	}
	source, err := compile.SourceOf(mk, o.arch)
	if err != nil {
		return nil, err
	}
	r, err := compile.Kernel(ctx, source, o.compile)
	if err != nil {
		return nil, err
	}
	o.compiled(r)
	if err := gpu.Check(cuda.Needs{Driver: r.Driver()}); err != nil {
		return nil, err
	}
	return runtime.NewGPU(mk.IR, gpu, r.Cubin)
}
