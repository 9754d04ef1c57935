//go:build cuda

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/runtime"
	"github.com/mkgen/mkgen/megakernel/runtime/bench"
	"github.com/mkgen/mkgen/megakernel/runtime/cuda"
)

// openBenchMachine opens GPU 0, or the executor.
func openBenchMachine(device string) (bench.Machine, func() error, error) {
	if device == deviceExecutor {
		return bench.Executor{Seed: 1}, func() error { return nil }, nil
	}
	dev, err := cuda.Open(0)
	if err != nil {
		return nil, nil, err
	}
	return &gpuMachine{dev: dev, compile: compileCubin}, dev.Close, nil
}

// gpuMachine is the Machine that is a GPU.
type gpuMachine struct {
	dev     *cuda.Device
	compile func(ctx context.Context, k *ir.Kernel) (cubin []byte, err error)
}

func (m *gpuMachine) Facts() bench.Facts {
	f := m.dev.Facts()
	return bench.Facts{GPU: f.Name, Driver: cuda.DriverRelease(), CUDA: fmt.Sprintf("%d.%d", f.Driver/1000, f.Driver%1000/10), SMs: f.SMs, L2: f.L2}
}

func (m *gpuMachine) Free() (int64, error) {
	free, _, err := m.dev.MemInfo()
	return free, err
}

func (m *gpuMachine) Load(ctx context.Context, k *ir.Kernel) (bench.Loaded, error) {
	if err := m.dev.Check(cuda.Needs{Arch: benchArch, SMs: k.Grid, Shared: k.SharedBytes}); err != nil {
		return nil, err
	}
	cubin, err := m.compile(ctx, k)
	if err != nil {
		return nil, err
	}
	gpu, err := runtime.NewGPU(k, m.dev, cubin)
	if err != nil {
		return nil, err
	}
	return &gpuLoaded{GPU: gpu, compile: m.compile}, nil
}

// gpuLoaded is a kernel on a GPU.
type gpuLoaded struct {
	*runtime.GPU
	compile func(ctx context.Context, k *ir.Kernel) ([]byte, error)
}

func (g *gpuLoaded) Plant(ctx context.Context, k *ir.Kernel) (func(), error) {
	cubin, err := g.compile(ctx, k)
	if err != nil {
		return nil, err
	}
	return g.Swap(cubin)
}

const benchArch = "sm_90a"

// compileCubin prints a kernel and compiles it with nvcc.
func compileCubin(ctx context.Context, k *ir.Kernel) ([]byte, error) {
	target, err := emit.TargetFor(benchArch)
	if err != nil {
		return nil, err
	}
	src, err := emit.Print(k, target, megakernel.EmitOptions())
	if err != nil {
		return nil, err
	}
	compiler, err := nvcc.Find("")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mkgen-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cu, cubin := filepath.Join(dir, k.Name+".cu"), filepath.Join(dir, k.Name+".cubin")
	if err := os.WriteFile(cu, src.Text, 0o600); err != nil {
		return nil, err
	}
	if _, err := compiler.Compile(ctx, cu, cubin, nvcc.Options{Arch: benchArch}); err != nil {
		return nil, err
	}
	return os.ReadFile(cubin)
}
