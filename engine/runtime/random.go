package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/engine/randomize"
	"github.com/mkgen/mkgen/megakernel"
)

// Companion is a Device that can run another kernel once on its buffers, which go
// by their names: all of that kernel's must be allocated, at their length at least.
// It waits for the end. cubin is the kernel compiled, which the executor ignores.
type Companion interface {
	RunOnce(k *ir.Kernel, cubin []byte, scalars map[string]uint64) error
}

// Random are the weights that package synth makes of seed, computed on the device
// by r, which must be of the same megakernel. Beside the weights three small
// buffers stay allocated.
func Random(seed uint64, r *randomize.Kernel, cubin []byte) Weights {
	return &random{seed, r, cubin}
}

// RandomCompiled is Random for a GPU of an architecture ("sm_90a"): the kernel that
// makes the weights is built, and compiled or taken from the cache.
func RandomCompiled(ctx context.Context, mk *megakernel.Kernel, seed uint64, arch string,
	o compile.Options) (Weights, error) {
	r, err := randomize.New(mk)
	if err != nil {
		return nil, err
	}
	src, err := compile.SourceOfKernel("random weights of "+mk.Config.Name, r.IR, arch)
	if err != nil {
		return nil, err
	}
	code, err := compile.Kernel(ctx, src, o)
	if err != nil {
		return nil, err
	}
	return Random(seed, r, code.Cubin), nil
}

type random struct {
	seed  uint64
	r     *randomize.Kernel
	cubin []byte
}

// Load writes the tables and runs the kernel.
func (w *random) Load(ctx context.Context, _ *megakernel.Kernel, dev Device) (LoadStats, error) {
	stats := LoadStats{Bytes: w.r.Bytes()}
	other, ok := dev.(Companion)
	if !ok {
		return stats, fmt.Errorf("random weights: a %T cannot run a second kernel", dev)
	}
	tables, err := w.r.Tables(w.seed)
	if err != nil {
		return stats, err
	}
	vectors, err := w.r.Vectors(w.seed)
	if err != nil {
		return stats, err
	}
	if err := ctx.Err(); err != nil {
		return stats, err
	}
	begin := time.Now()
	for name, data := range vectors {
		if err := dev.Write(name, 0, data); err != nil {
			return stats, fmt.Errorf("random weights: buffer %s: %w", name, err)
		}
	}
	for _, t := range tables {
		if err := dev.Alloc(t.Name, 4*int64(len(t.Words))); err != nil {
			return stats, fmt.Errorf("random weights: buffer %s: %w", t.Name, err)
		}
		if err := dev.Write(t.Name, 0, words(t.Words)); err != nil {
			return stats, fmt.Errorf("random weights: buffer %s: %w", t.Name, err)
		}
	}
	if err := other.RunOnce(w.r.IR, w.cubin, nil); err != nil {
		return stats, fmt.Errorf("random weights: %w", err)
	}
	stats.Took = time.Since(begin)
	return stats, nil
}

// RunOnce executes k on the buffers, with every check of the executor.
func (s *Sim) RunOnce(k *ir.Kernel, _ []byte, scalars map[string]uint64) error {
	p, err := interp.Load(k)
	if err != nil {
		return err
	}
	_, err = p.Run(s.mem, interp.Options{Seed: s.seed, Params: scalars})
	s.seed += 0x9e3779b97f4a7c15
	return err
}
