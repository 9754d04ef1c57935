package sweep

import (
	"context"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/lab/tune"
	"github.com/mkgen/mkgen/megakernel"
)

// spare is the memory that is left free on a GPU: launches and the driver want some.
const spare = 1 << 30

// Suite is the Measurer that is a bench.Machine. Weights are loaded for each kernel, whose
// plan says how they are packed; the ceiling's buffer is filled once.
type Suite struct {
	Machine     bench.Machine
	Weights     megakernel.Tensors
	WeightsName string
	// Made and Compiled are as in tune.Suite.
	Made     func(ctx context.Context, mk *megakernel.Kernel) (runtime.Weights, error)
	Compiled func(ctx context.Context, mk *megakernel.Kernel) (compiler string, err error)
	// Reference and Rules are of the gate; without a reference there is none.
	Reference *gate.Reference
	Rules     gate.Rules
	Method    bench.Method // without Contexts
	SMs       int          // that the kernels use; the ceiling's on the executor
	Progress  func(what string)

	yardstick *bench.Yardstick
}

// Compile compiles the kernel and what makes its weights.
func (s *Suite) Compile(ctx context.Context, mk *megakernel.Kernel) (string, error) {
	return (&tune.Suite{Made: s.Made, Compiled: s.Compiled}).Compile(ctx, mk)
}

// measuring opens the ceiling, once.
func (s *Suite) measuring(ctx context.Context) (err error) {
	if s.yardstick == nil {
		s.yardstick, err = bench.OpenYardstick(ctx, s.Machine, s.SMs, s.Progress)
	}
	return err
}

// Ceiling measures the ceiling.
func (s *Suite) Ceiling(ctx context.Context) (top ceiling.Measured, err error) {
	if err := s.measuring(ctx); err != nil {
		return top, err
	}
	return s.yardstick.Measure(ctx)
}

// Free is what is left beside the ceiling's buffer.
func (s *Suite) Free(ctx context.Context) (int64, error) {
	if err := s.measuring(ctx); err != nil {
		return 0, err
	}
	free, err := s.Machine.Free()
	if !s.Machine.Facts().Executor {
		free -= spare
	}
	return free, err
}

// Open loads the kernel and judges it.
func (s *Suite) Open(ctx context.Context, mk *megakernel.Kernel, pages int,
	contexts []int) (Opened, *gate.Report, error) {
	m := s.Method
	m.Contexts = contexts
	var d *bench.Decoder
	var err error
	if mk.Ragged() {
		d, err = (&bench.RaggedSuite{Machine: s.Machine, Kernel: mk, Weights: s.Weights, WeightsName: s.WeightsName,
			Made: s.Made, Reference: s.Reference, Rules: s.Rules, Method: m, Pages: pages, Progress: s.Progress}).Decoder(ctx)
	} else {
		one := &bench.Suite{Machine: s.Machine, Kernel: mk, Weights: s.Weights, WeightsName: s.WeightsName,
			Reference: s.Reference, Rules: s.Rules, Method: m, Progress: s.Progress}
		if s.Made != nil {
			one.Made = func(ctx context.Context) (runtime.Weights, error) { return s.Made(ctx, mk) }
		}
		d, err = one.Decoder(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	return d, d.Gate, nil
}

// Close releases the ceiling's buffer.
func (s *Suite) Close() error {
	if s.yardstick == nil {
		return nil
	}
	return s.yardstick.Close()
}
