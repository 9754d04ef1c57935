//go:build cuda

package main

import (
	"context"
	"errors"
	"sync"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/runtime/cuda"
	"github.com/mkgen/mkgen/megakernel"
)

const (
	hasCUDA       = true
	defaultDevice = deviceCUDA
)

// openDevices opens a device for each kernel: executors, or the first GPU with the kernels
// compiled for it. Closing the first device, which must be the last to be closed, closes the GPU
// too.
func openDevices(ctx context.Context, kernels []*megakernel.Kernel, o deviceOptions) ([]runtime.Device, error) {
	if o.name == deviceSim {
		return openSims(kernels)
	}
	gpu, err := cuda.Open(0)
	if err != nil {
		return nil, err
	}
	first := &gpuDevice{gpu: gpu}
	devices := []runtime.Device{first}
	loaded, err := loadKernels(ctx, kernels, gpu, o)
	if err != nil {
		return nil, errors.Join(err, gpu.Close())
	}
	first.GPU = loaded[0]
	for _, g := range loaded[1:] {
		devices = append(devices, g)
	}
	return devices, nil
}

// loadKernels compiles kernels, all at a time, or takes them from the cache, and loads them.
func loadKernels(ctx context.Context, kernels []*megakernel.Kernel, gpu *cuda.Device,
	o deviceOptions) ([]*runtime.GPU, error) {
	for _, mk := range kernels {
		if err := gpu.Check(cuda.Needs{Arch: o.arch, SMs: mk.IR.Grid, Shared: mk.IR.SharedBytes}); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results, errs := make([]*compile.Result, len(kernels)), make([]error, len(kernels))
	var wg sync.WaitGroup
	for i, mk := range kernels {
		wg.Go(func() {
			source, err := compile.SourceOf(mk, o.arch)
			if err == nil {
				results[i], err = compile.Kernel(ctx, source, o.compile)
			}
			if errs[i] = err; err != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	if err := firstCause(errs); err != nil {
		return nil, err
	}
	var all []*runtime.GPU
	for i, mk := range kernels {
		err := o.compiled(results[i])
		var g *runtime.GPU
		if err == nil {
			g, _, err = loadOn(gpu, o.arch, mk.IR, func() (*compile.Result, error) { return results[i], nil })
		}
		if err != nil {
			for _, g := range all {
				err = errors.Join(err, g.Close())
			}
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

// openPrefill opens a device for a prefill kernel: an executor, or the GPU that first is on.
func openPrefill(ctx context.Context, p *megakernel.Prefill, first runtime.Device,
	o deviceOptions) (runtime.Device, error) {
	on, ok := first.(*gpuDevice)
	if !ok {
		return simPrefill(p)
	}
	g, r, err := loadOn(on.gpu, o.arch, p.IR, func() (*compile.Result, error) {
		source, err := compile.SourceOfKernel(p.Of.Config.Name+"-prefill", p.IR, o.arch)
		if err != nil {
			return nil, err
		}
		return compile.Kernel(ctx, source, o.compile)
	})
	if err != nil {
		return nil, err
	}
	if err := o.compiled(r); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// firstCause is the first error that is not only of another one's having ended the context.
func firstCause(errs []error) error {
	var ended error
	for _, err := range errs {
		if errors.Is(err, context.Canceled) {
			ended = err
		} else if err != nil {
			return err
		}
	}
	return ended
}

// gpuDevice is a kernel on a GPU that nothing else uses.
type gpuDevice struct {
	*runtime.GPU
	gpu *cuda.Device
}

func (d *gpuDevice) Close() error { return errors.Join(d.GPU.Close(), d.gpu.Close()) }

// loadOn loads what made makes of k on a GPU, if that can run it.
func loadOn(gpu *cuda.Device, arch string, k *ir.Kernel,
	made func() (*compile.Result, error)) (*runtime.GPU, *compile.Result, error) {
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
