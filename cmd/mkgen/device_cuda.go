//go:build cuda

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/runtime"
	"github.com/mkgen/mkgen/megakernel/runtime/cuda"
)

const (
	hasCUDA       = true
	defaultDevice = deviceCUDA
)

// openDevice opens a device for a kernel: the executor, or the first GPU with the
// kernel compiled for arch. Closing the device closes the GPU too.
func openDevice(ctx context.Context, mk *megakernel.Kernel, name deviceName, arch string) (runtime.Device, error) {
	if name == deviceSim {
		return openSim(mk)
	}
	gpu, err := cuda.Open(0)
	if err != nil {
		return nil, err
	}
	d := &gpuDevice{gpu: gpu}
	if d.GPU, err = loadKernel(ctx, mk, gpu, arch); err != nil {
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

// loadKernel compiles a kernel and loads it, if the GPU can run it.
func loadKernel(ctx context.Context, mk *megakernel.Kernel, gpu *cuda.Device, arch string) (*runtime.GPU, error) {
	if err := gpu.Check(cuda.Needs{Arch: arch, SMs: mk.IR.Grid, Shared: mk.IR.SharedBytes}); err != nil {
		return nil, err
	}
	cubin, err := compileKernel(ctx, mk, arch)
	if err != nil {
		return nil, err
	}
	return runtime.NewGPU(mk.IR, gpu, cubin)
}

// compileKernel prints a kernel and compiles it with nvcc.
func compileKernel(ctx context.Context, mk *megakernel.Kernel, arch string) ([]byte, error) {
	target, err := emit.TargetFor(arch)
	if err != nil {
		return nil, err
	}
	source, err := emit.Print(mk.IR, target, megakernel.EmitOptions())
	if err != nil {
		return nil, err
	}
	compiler, err := nvcc.Find("")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mkgen-run-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cu, cubin := filepath.Join(dir, "kernel.cu"), filepath.Join(dir, "kernel.cubin")
	if err := os.WriteFile(cu, source.Text, 0o600); err != nil {
		return nil, err
	}
	if _, err := compiler.Compile(ctx, cu, cubin, nvcc.Options{Arch: arch}); err != nil {
		return nil, err
	}
	return os.ReadFile(cubin)
}
