package tune

import (
	"context"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/megakernel"
)

// Suite is the Measurer that times launches on a bench.Machine, with the weights loaded
// anew for each kernel, whose plan says where they lie.
type Suite struct {
	Machine  bench.Machine
	Weights  megakernel.Tensors
	Contexts []int // tokens in the cache when a launch begins
	Tokens   int   // of a launch
	// Made makes the same weights on the device for a kernel, where that is faster; nil
	// loads Weights.
	Made func(ctx context.Context, mk *megakernel.Kernel) (runtime.Weights, error)
	// Compiled compiles a kernel into the cache that Machine loads from, and says what
	// compiled it; nil where nothing is compiled.
	Compiled func(ctx context.Context, mk *megakernel.Kernel) (compiler string, err error)
}

// Compile compiles the kernel and what makes its weights.
func (s *Suite) Compile(ctx context.Context, mk *megakernel.Kernel) (string, error) {
	if s.Compiled == nil {
		return "none", ctx.Err()
	}
	if s.Made != nil {
		if _, err := s.Made(ctx, mk); err != nil {
			return "", err
		}
	}
	return s.Compiled(ctx, mk)
}

// Measure times launches of the kernel at every context. A launch that hangs is an error.
func (s *Suite) Measure(ctx context.Context, mk *megakernel.Kernel, launches int) ([]bench.Timing, error) {
	if mk.Ragged() {
		r := &bench.RaggedSuite{Machine: s.Machine, Kernel: mk, Weights: s.Weights, Made: s.Made}
		return r.Time(ctx, s.Contexts, s.Tokens, launches)
	}
	one := &bench.Suite{Machine: s.Machine, Kernel: mk, Weights: s.Weights}
	if s.Made != nil {
		one.Made = func(ctx context.Context) (runtime.Weights, error) { return s.Made(ctx, mk) }
	}
	return one.Time(ctx, s.Contexts, s.Tokens, launches)
}
