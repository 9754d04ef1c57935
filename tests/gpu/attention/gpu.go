//go:build cuda

package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/runtime/cuda"
	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/tests/gpu/attention/record"
)

// run runs the cases and writes their outputs and times.
func run(ctx context.Context, f *flags) (err error) {
	dev, err := cuda.Open(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	m := &machine{dev: dev, kernels: f.kernels}
	y, err := bench.OpenYardstick(ctx, m, 0, func(what string) { log.Print(what) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, y.Close()) }()
	facts := m.Facts()
	r := &record.Record{GPU: facts.GPU, Driver: facts.Driver, CUDA: facts.CUDA, Commit: revision.String(),
		Cases: []record.Case{}}
	var failed []error
	for _, j := range f.jobs() {
		c, err := m.measure(ctx, j, y, f)
		if err != nil {
			failed = append(failed, fmt.Errorf("case %s: %w", j.c.Name, err))
			log.Print(failed[len(failed)-1])
			if ctx.Err() != nil {
				break
			}
			continue
		}
		r.Options = record.Options{Compiler: m.compiler, SMs: m.grid, Heads: j.c.Heads, KVHeads: j.c.KVHeads,
			HeadDim: j.c.HeadDim}
		r.Cases = append(r.Cases, c)
		log.Printf("%s: %.2f µs a layer, %.0f GB/s, share %.3f of %.0f; same bits again: %v", c.Name, c.Micros, c.GBps,
			c.Share, c.CeilingGB, c.Gate.Identical)
		if err := r.Save(filepath.Join(f.dir, measurements)); err != nil {
			return err
		}
		if !f.trace || !j.timed {
			continue
		}
		p, err := build(j.c, traced)
		if err != nil {
			return err
		}
		p.Limits.Costs = kv.Costs(f.costs)
		text, err := traceJob(ctx, m, p, j, f.dir)
		if err != nil {
			return fmt.Errorf("case %s: %w", j.c.Name, err)
		}
		log.Print(text)
	}
	return errors.Join(append(failed, r.WriteTable(os.Stdout))...)
}

// machine is the GPU as bench sees it.
type machine struct {
	dev      *cuda.Device
	kernels  string // directory of cubins
	compiler string // of the kernel loaded last
	grid     int    // its CTAs
}

func (m *machine) measure(ctx context.Context, j job, y *bench.Yardstick, f *flags) (record.Case, error) {
	p, err := build(j.c, f.ring)
	if err != nil {
		return record.Case{}, err
	}
	p.Limits.Costs = kv.Costs(f.costs)
	c, err := measure(ctx, m, p, j, y.Measure, method{f.rounds, f.round}, f.dir)
	m.grid = p.IR.Grid
	return c, err
}

func (m *machine) Facts() bench.Facts {
	f := m.dev.Facts()
	return bench.Facts{GPU: f.Name, Driver: cuda.DriverRelease(),
		CUDA: fmt.Sprintf("%d.%d", f.Driver/1000, f.Driver%1000/10), Compiler: m.compiler, SMs: f.SMs, L2: f.L2}
}

func (m *machine) Free() (int64, error) {
	free, _, err := m.dev.MemInfo()
	return free, err
}

// Load takes the kernel's cubin from the directory, or compiles it.
func (m *machine) Load(ctx context.Context, k *ir.Kernel) (bench.Loaded, error) {
	if err := m.dev.Check(cuda.Needs{Arch: arch, SMs: k.Grid, Shared: k.SharedBytes}); err != nil {
		return nil, err
	}
	src, err := compile.SourceOfKernel(k.Name, k, arch)
	if err != nil {
		return nil, err
	}
	code, err := os.ReadFile(filepath.Join(m.kernels, cubin(src)))
	if err == nil {
		if by, err := os.ReadFile(filepath.Join(m.kernels, compilerFile)); err == nil {
			m.compiler = string(by)
		}
	} else {
		log.Printf("no %s in %s: compiling", cubin(src), m.kernels)
		r, err := compile.Kernel(ctx, src, compile.Options{})
		if err != nil {
			return nil, err
		}
		code, m.compiler = r.Cubin, r.Compiler
	}
	gpu, err := runtime.NewGPU(k, m.dev, code)
	if err != nil {
		return nil, err
	}
	return gpuLoaded{gpu}, nil
}

// gpuLoaded is a kernel on the GPU; nothing is planted in it.
type gpuLoaded struct{ *runtime.GPU }

func (gpuLoaded) Plant(context.Context, *ir.Kernel) (func(), error) {
	return nil, errors.New("no faults are planted in attention kernels")
}
