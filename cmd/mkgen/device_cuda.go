//go:build cuda

package main

import (
	"context"
	"errors"

	"github.com/mkgen/mkgen/dsl/ir"
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

// loadKernel compiles a kernel, or takes it from the cache, and loads it.
func loadKernel(ctx context.Context, mk *megakernel.Kernel, gpu *cuda.Device, o deviceOptions) (*runtime.GPU, error) {
	g, _, err := loadOn(gpu, o.arch, mk.IR, func() (*compile.Result, error) {
		source, err := compile.SourceOf(mk, o.arch)
		if err != nil {
			return nil, err
		}
		r, err := compile.Kernel(ctx, source, o.compile)
		if err == nil {
			o.compiled(r)
		}
		return r, err
	})
	return g, err
}

// loadOn loads what made makes of k on a GPU, if that can run it.
func loadOn(gpu *cuda.Device, arch string, k *ir.Kernel, made func() (*compile.Result, error)) (*runtime.GPU, *compile.Result, error) {
	if err := gpu.Check(cuda.Needs{Arch: arch, SMs: k.Grid, Shared: k.SharedBytes}); err != nil {
		return nil, nil, err
	}
	r, err := made()
	if err != nil {
		return nil, nil, err
	}
	if err := gpu.Check(cuda.Needs{Driver: r.Driver()}); err != nil {
		return nil, nil, err
	}
	g, err := runtime.NewGPU(k, gpu, r.Cubin)
	return g, r, err
}
