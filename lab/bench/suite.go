package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
)

// Suite is everything that one benchmark of one kernel takes: gate, ceiling and
// rounds in one process, with the same weights.
type Suite struct {
	Machine Machine
	Kernel  *megakernel.Kernel
	Weights megakernel.Tensors
	// WeightsName says what they are, for the record: "random, seed 1".
	WeightsName string
	// Made makes the same weights on the device, where that is faster; nil loads Weights.
	Made func(ctx context.Context) (runtime.Weights, error)
	// Reference and Rules are of the gate; without a reference there is none. It
	// must match the model and the weights (gate.Reference.Matches).
	Reference *gate.Reference
	Rules     gate.Rules
	Method    Method
	// Choices are how the rounds choose their tokens, of which one after another is measured; nil: by the highest
	// logits, as the gate does.
	Choices []Choice
	// PerLaunch is how many tokens a launch chooses; 0 is a whole round's.
	PerLaunch int
	// Progress hears what is done next; nil is allowed.
	Progress func(what string)

	loaded  Loaded
	session *runtime.Sequence
	table   []uint32
}

// Outcome is what a Suite found.
type Outcome struct {
	Cases []Case
	Gate  *gate.Report // nil without a reference
}

// hangTimeout is how long a launch may make no step.
const hangTimeout = 10 * time.Second

// firstEpoch makes the grid barrier's counter wrap during the benchmark.
const firstEpoch = 1<<32 - 1<<16

// Run loads the kernel, judges it where there is a reference, and measures. A gate
// that is not passed is no error: see Outcome.Gate. It releases what it allocated.
func (s *Suite) Run(ctx context.Context) (o *Outcome, err error) {
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.loaded.Close()) }()
	o = &Outcome{}
	if s.Reference != nil {
		if o.Gate, err = s.judge(ctx); err != nil {
			return nil, err
		}
	}
	s.say("filling the KV cache")
	if err := FillKV(s.loaded, s.kvBytes()); err != nil {
		return nil, err
	}
	yardstick, err := OpenYardstick(ctx, s.Machine, s.Kernel.Options.SMs, s.Progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, yardstick.Close()) }()
	o.Cases, err = s.bench(yardstick.Measure).Run(ctx, s.Method)
	for i := range o.Cases {
		o.Cases[i].Weights = s.WeightsName
		if o.Gate != nil {
			o.Cases[i].Gate = o.Gate.Gate.OfCase(i)
		}
	}
	return o, err
}

func (s *Suite) say(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...))
	}
}

// pages is how many pages the longest context takes, of the rounds or of the gate.
func (s *Suite) pages() int {
	tokens := s.Method.Positions()
	if s.Reference != nil {
		tokens = max(tokens, s.Reference.Longest())
	}
	return (tokens + s.Kernel.KV.Page - 1) / s.Kernel.KV.Page
}

func (s *Suite) kvBytes() int64 {
	return int64(s.Kernel.Config.Layers) * int64(len(s.table)) * int64(s.Kernel.KV.PageBytes())
}

func (s *Suite) load(ctx context.Context) (err error) {
	s.say("compiling the kernel")
	if s.loaded, err = load(ctx, s.Machine, s.Kernel); err != nil {
		return err
	}
	s.say("loading the weights")
	s.table = gate.ShuffledTable(s.pages())
	w := runtime.FromTensors(s.Weights, runtime.LoadOptions{})
	if s.Made != nil {
		if w, err = s.Made(ctx); err != nil {
			return errors.Join(err, s.loaded.Close())
		}
	}
	s.session, err = runtime.OpenSequence(ctx, s.Kernel, s.loaded, w,
		runtime.Options{Pages: len(s.table), Table: slices.Clone(s.table), Epoch: firstEpoch})
	if err != nil {
		return errors.Join(err, s.loaded.Close())
	}
	if !s.Machine.Facts().Executor { // which is slow, and finds hangs by itself
		s.session.HangTimeout = hangTimeout
	}
	return nil
}

// judge runs the gate on the loaded kernel.
func (s *Suite) judge(ctx context.Context) (*gate.Report, error) {
	subject := gate.Subject{Kernel: s.Kernel, Weights: s.Weights, Session: s.session, Table: s.table,
		Write: s.loaded.Write, Read: s.loaded.Read, Plant: func(ctx context.Context, fault megakernel.Fault) (func(), error) {
			return plant(ctx, s.Kernel, s.loaded, fault)
		},
		Progress: func(what string) { s.say("gate: %s", what) }}
	if err := s.probe(&subject); err != nil {
		return nil, err
	}
	s.say("gate: compiling kernels with faults")
	if err := prepare(ctx, s.loaded, s.Kernel, gate.Builds(s.Kernel, subject.PlantProbe != nil)); err != nil {
		return nil, err
	}
	return subject.Judge(ctx, s.Reference, s.Rules)
}

// plant builds the same kernel with a fault and runs it instead.
func plant(ctx context.Context, mk *megakernel.Kernel, l Loaded, fault megakernel.Fault) (restore func(), err error) {
	options := mk.Options
	options.Fault = fault
	broken, err := megakernel.Build(mk.Config, options)
	if err != nil {
		return nil, err
	}
	if broken.Graph == nil {
		return l.Plant(ctx, broken.IR)
	}
	g, ok := l.(GraphPlanter)
	if !ok {
		return nil, fmt.Errorf("a %T runs no graphs of kernels", l)
	}
	return g.PlantGraph(ctx, broken.Graph)
}

func (s *Suite) bench(top func(context.Context) (ceiling.Measured, error)) *Bench {
	b := &Bench{Config: s.Kernel.Config, KVBytes: s.Kernel.KVTokenBytes(), WeightBytes: s.Kernel.WeightBytes(),
		Format: s.Kernel.Options.Weights, HeadFormat: s.Kernel.Options.Head, PerLaunch: s.PerLaunch,
		Ceiling: top, Progress: func(what string) { s.say("%s", what) }}
	if b.PerLaunch < 1 || b.PerLaunch > s.Method.Tokens {
		b.PerLaunch = s.Method.Tokens
	}
	runner := &SessionRunner{Session: s.session, Device: s.loaded, PerLaunch: b.PerLaunch}
	replayer := &sessionReplayer{cache: cacheOf(s.Kernel, s.loaded, s.table), session: s.session}
	b.Runner, b.Replayer = runner, replayer
	b.Choices, b.Choose = s.Choices, func(c Choice) { runner.Choice, replayer.choice = c, c }
	b.Each = "from token to token within a launch, by the GPU's clock"
	return b
}
