//go:build cuda

package main

import (
	"context"
	"fmt"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/runtime/cuda"
	"github.com/mkgen/mkgen/lab/bench"
)

// openBenchMachine opens GPU 0, or the executor.
func openBenchMachine(device deviceName, arch string) (bench.Machine, func() error, error) {
	if device == deviceSim {
		return bench.Executor{Seed: 1}, func() error { return nil }, nil
	}
	dev, err := cuda.Open(0)
	if err != nil {
		return nil, nil, err
	}
	return &gpuMachine{dev: dev, arch: arch, compile: func(ctx context.Context, k *ir.Kernel) (*compile.Result, error) {
		source, err := compile.SourceOfKernel(k.Name, k, arch)
		if err != nil {
			return nil, err
		}
		return compile.Kernel(ctx, source, compile.Options{})
	}}, dev.Close, nil
}

// gpuMachine is the Machine that is a GPU.
type gpuMachine struct {
	dev      *cuda.Device
	arch     string
	compile  func(ctx context.Context, k *ir.Kernel) (*compile.Result, error)
	compiler string // of the kernel loaded last
}

func (m *gpuMachine) Facts() bench.Facts {
	f := m.dev.Facts()
	return bench.Facts{GPU: f.Name, Driver: cuda.DriverRelease(),
		CUDA: fmt.Sprintf("%d.%d", f.Driver/1000, f.Driver%1000/10), Compiler: m.compiler, SMs: f.SMs, L2: f.L2}
}

func (m *gpuMachine) Free() (int64, error) {
	free, _, err := m.dev.MemInfo()
	return free, err
}

func (m *gpuMachine) Load(ctx context.Context, k *ir.Kernel) (bench.Loaded, error) {
	gpu, code, err := loadOn(m.dev, m.arch, k, func() (*compile.Result, error) { return m.compile(ctx, k) })
	if err != nil {
		return nil, err
	}
	m.compiler = code.Compiler
	return &gpuLoaded{GPU: gpu, compile: m.compile}, nil
}

// LoadGraph compiles and loads the kernels.
func (m *gpuMachine) LoadGraph(ctx context.Context, g *ir.Graph) (bench.Loaded, error) {
	for _, k := range g.Kernels {
		if err := m.dev.Check(cuda.Needs{Arch: m.arch, SMs: k.Grid, Shared: k.SharedBytes}); err != nil {
			return nil, err
		}
	}
	cubins, code, err := compileGraph(ctx, g, m.compile)
	if err != nil {
		return nil, err
	}
	if err := m.dev.Check(cuda.Needs{Driver: code.Driver()}); err != nil {
		return nil, err
	}
	gpu, err := runtime.NewGPUGraph(g, m.dev, cubins)
	if err != nil {
		return nil, err
	}
	m.compiler = code.Compiler
	return &gpuLoaded{GPU: gpu, compile: m.compile}, nil
}

// compileGraph compiles a graph's kernels; the last one's result stands for all.
func compileGraph(ctx context.Context, g *ir.Graph,
	kernel func(ctx context.Context,
		k *ir.Kernel) (*compile.Result, error)) (cubins [][]byte, last *compile.Result, err error) {
	for _, k := range g.Kernels {
		if last, err = kernel(ctx, k); err != nil {
			return nil, nil, err
		}
		cubins = append(cubins, last.Cubin)
	}
	return cubins, last, nil
}

// gpuLoaded is a kernel on a GPU.
type gpuLoaded struct {
	*runtime.GPU
	compile func(ctx context.Context, k *ir.Kernel) (*compile.Result, error)
}

// Prepare compiles a kernel into the cache.
func (g *gpuLoaded) Prepare(ctx context.Context, k *ir.Kernel) error {
	_, err := g.compile(ctx, k)
	return err
}

func (g *gpuLoaded) Plant(ctx context.Context, k *ir.Kernel) (func(), error) {
	code, err := g.compile(ctx, k)
	if err != nil {
		return nil, err
	}
	return g.SwapKernel(k, code.Cubin)
}

func (g *gpuLoaded) PlantGraph(ctx context.Context, graph *ir.Graph) (func(), error) {
	cubins, _, err := compileGraph(ctx, graph, g.compile)
	if err != nil {
		return nil, err
	}
	return g.SwapGraph(graph, cubins)
}
