package tune

import (
	"context"
	"errors"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
)

// Pairs is the Pairer that is a Suite's bench.Machine. Two kernels have their weights on
// it at a time.
type Pairs struct {
	Suite
	// Reference and Rules are of the gate; without a reference there is none.
	Reference *gate.Reference
	Rules     gate.Rules
	SMs       int               // of the ceiling, on the executor
	Progress  func(what string) // hears what is done next; nil is allowed
}

func (p *Pairs) one(mk *megakernel.Kernel) *bench.Suite {
	one := &bench.Suite{Machine: p.Machine, Kernel: mk, Weights: p.Weights, Reference: p.Reference, Rules: p.Rules,
		Progress: p.Progress}
	if p.Made != nil {
		one.Made = func(ctx context.Context) (runtime.Weights, error) { return p.Made(ctx, mk) }
	}
	return one
}

func (p *Pairs) several(mk *megakernel.Kernel) *bench.RaggedSuite {
	return &bench.RaggedSuite{Machine: p.Machine, Kernel: mk, Weights: p.Weights, Made: p.Made, Reference: p.Reference,
		Rules: p.Rules, Progress: p.Progress}
}

// Judge loads the kernel, judges it, and lets go of it.
func (p *Pairs) Judge(ctx context.Context, mk *megakernel.Kernel) (*gate.Report, error) {
	if p.Reference == nil {
		return nil, ctx.Err()
	}
	var d *bench.Decoder
	var err error
	if mk.Ragged() {
		d, err = p.several(mk).Decoder(ctx)
	} else {
		d, err = p.one(mk).Decoder(ctx)
	}
	if err != nil {
		return nil, err
	}
	return d.Gate, d.Close()
}

// Ceiling measures the ceiling, and lets go of its buffer.
func (p *Pairs) Ceiling(ctx context.Context) (top ceiling.Measured, err error) {
	y, err := bench.OpenYardstick(ctx, p.Machine, p.SMs, p.Progress)
	if err != nil {
		return top, err
	}
	top, err = y.Measure(ctx)
	return top, errors.Join(err, y.Close())
}

// Open loads the kernel with weights and a KV cache of its own.
func (p *Pairs) Open(ctx context.Context, mk *megakernel.Kernel) (Launcher, error) {
	if mk.Ragged() {
		s := p.several(mk)
		s.Reference, s.Progress = nil, nil
		return open(s.Launcher(ctx, p.Contexts, p.Tokens))
	}
	s := p.one(mk)
	s.Reference, s.Progress = nil, nil
	return open(s.Launcher(ctx, p.Contexts, p.Tokens))
}

// open keeps a nil Launcher from being none.
func open(l *bench.Launcher, err error) (Launcher, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}
