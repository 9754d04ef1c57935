package bench

import (
	"context"
	"errors"

	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/lab/gate"
)

// Decoder is a kernel that is loaded, judged where there is a reference, and whose KV
// cache is filled: its cases are measured one at a time. Not safe for concurrent use.
type Decoder struct {
	// Gate is what the gate found; nil without a reference. One that is not passed is no
	// error.
	Gate *gate.Report
	// Compiler says what compiled the kernel.
	Compiler string

	loaded  Loaded
	weights string
	measure func(ctx context.Context, top ceiling.Measured, sequences, cached int) (Case, error)
}

// Decoder loads the kernel for the contexts of the method. It decodes one sequence.
func (s *Suite) Decoder(ctx context.Context) (*Decoder, error) {
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	d := &Decoder{loaded: s.loaded, weights: s.WeightsName, Compiler: s.Machine.Facts().Compiler,
		measure: func(ctx context.Context, top ceiling.Measured, sequences, cached int) (Case, error) {
			if sequences != 1 {
				panic("BUG: several sequences on a kernel of one row")
			}
			return s.bench(just(top)).measure(ctx, s.Method, cached)
		}}
	return d.ready(s.Reference != nil, func() (*gate.Report, error) { return s.judge(ctx) }, s.kvBytes())
}

// Decoder loads the kernel with the pages that the suite says. It decodes 2 sequences or
// more, as many as it has rows for.
func (s *RaggedSuite) Decoder(ctx context.Context) (*Decoder, error) {
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	d := &Decoder{loaded: s.loaded, weights: s.WeightsName, Compiler: s.Machine.Facts().Compiler,
		measure: func(ctx context.Context, top ceiling.Measured, sequences, cached int) (Case, error) {
			b := &raggedSteps{Config: s.Kernel.Config, KVBytes: s.Kernel.KVTokenBytes(), WeightBytes: s.Kernel.WeightBytes(),
				Format: s.Kernel.Options.Weights, HeadFormat: s.Kernel.Options.Head, Rows: sequences, Ceiling: just(top),
				Runner: &RaggedRunner{Session: s.session, Device: s.loaded, Pages: s.table, Page: s.Kernel.KV.Page,
					Sequences: sequences}, Replayer: s.replayer(sequences, &Choice{})}
			return b.measure(ctx, s.Method, Sequences, cached)
		}}
	return d.ready(s.Reference != nil, func() (*gate.Report, error) { return s.judge(ctx) }, s.kvBytes())
}

// just is a ceiling that was measured a moment ago.
func just(top ceiling.Measured) func(context.Context) (ceiling.Measured, error) {
	return func(context.Context) (ceiling.Measured, error) { return top, nil }
}

// ready judges the kernel and fills its KV cache.
func (d *Decoder) ready(judged bool, judge func() (*gate.Report, error), kvBytes int64) (_ *Decoder, err error) {
	if judged {
		d.Gate, err = judge()
	}
	if err == nil {
		err = FillKV(d.loaded, kvBytes)
	}
	if err != nil {
		return nil, errors.Join(err, d.loaded.Close())
	}
	return d, nil
}

// Measure measures a case: n sequences that decode, each with n tokens in the
// cache as a round begins. top is the ceiling, measured right before.
func (d *Decoder) Measure(ctx context.Context, top ceiling.Measured, sequences, cached int) (Case, error) {
	c, err := d.measure(ctx, top, sequences, cached)
	if err != nil {
		return c, err
	}
	c.Weights = d.weights
	if d.Gate != nil {
		c.Gate = d.Gate.Gate
	}
	return c, nil
}

// Close releases what the kernel has on the machine.
func (d *Decoder) Close() error { return d.loaded.Close() }
