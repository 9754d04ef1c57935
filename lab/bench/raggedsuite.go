package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
)

// RaggedSuite is everything that one benchmark of a kernel of several query rows
// takes: beside it a step of the kernel of one row, in the same process, with the
// same weights.
type RaggedSuite struct {
	Machine Machine
	Kernel  *megakernel.Kernel // of several rows
	OneRow  *megakernel.Kernel // of one row, of the same model; nil: no ratios
	Weights megakernel.Tensors
	// WeightsName says what they are, for the record: "random, seed 1".
	WeightsName string
	// Made makes the same weights on the device for a kernel, where that is faster;
	// nil loads Weights.
	Made func(ctx context.Context, mk *megakernel.Kernel) (runtime.Weights, error)
	// Reference and Rules are of the gate; without a reference there is none.
	Reference *gate.Reference
	Rules     gate.Rules
	// Method; without contexts only the gate is run.
	Method Method
	// Choices are as in Suite, of the shape Sequences.
	Choices []Choice
	// Pages of the KV cache; 0: what a sequence for each row takes at the longest context.
	Pages int
	// Progress hears what is done next; nil is allowed.
	Progress func(what string)

	loaded  Loaded
	session *runtime.Session
	table   []uint32
}

// Run measures the kernel of one row, loads the other, judges it where there is a
// reference, and measures. A gate that is not passed is no error: see Outcome.Gate.
func (s *RaggedSuite) Run(ctx context.Context) (o *Outcome, err error) {
	ones, err := s.oneRow(ctx)
	if err != nil {
		return nil, err
	}
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
	if len(s.Method.Contexts) == 0 {
		return o, nil
	}
	s.say("filling the KV cache")
	if err := FillKV(s.loaded, s.kvBytes()); err != nil {
		return nil, err
	}
	y, err := OpenYardstick(ctx, s.Machine, s.Kernel.Options.SMs, s.Progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, y.Close()) }()
	runner := &RaggedRunner{Session: s.session, Device: s.loaded, Pages: s.table, Page: s.Kernel.KV.Page}
	b := &raggedSteps{Config: s.Kernel.Config, KVBytes: s.Kernel.KVTokenBytes(), WeightBytes: s.Kernel.WeightBytes(),
		Format: s.Kernel.Options.Weights, HeadFormat: s.Kernel.Options.Head, Rows: s.Kernel.Options.Tokens,
		OneRow: ones, Ceiling: y.Measure, Progress: s.Progress,
		Runner: runner, Choices: s.Choices, Choose: func(c Choice) { runner.Choice = c },
		Replayer: s.replayer(s.Kernel.Options.Tokens, &runner.Choice)}
	o.Cases, err = b.Run(ctx, s.Method)
	for i := range o.Cases {
		o.Cases[i].Weights = s.WeightsName
		if o.Gate != nil {
			o.Cases[i].Gate = o.Gate.Gate.OfCase(i)
		}
	}
	return o, err
}

// replayer replays rounds of sequences, which choose as choice says then, or of chunks.
func (s *RaggedSuite) replayer(sequences int, choice *Choice) func(Shape) Replayer {
	return func(shape Shape) Replayer {
		return &raggedReplayer{cache: cacheOf(s.Kernel, s.loaded, s.table), session: s.session, shape: shape,
			sequences: sequences, choice: *choice}
	}
}

func (s *RaggedSuite) kvBytes() int64 {
	return int64(s.Kernel.Config.Layers) * int64(len(s.table)) * int64(s.Kernel.KV.PageBytes())
}

func (s *RaggedSuite) say(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...))
	}
}

func (s *RaggedSuite) weights(ctx context.Context, mk *megakernel.Kernel) (runtime.Weights, error) {
	if s.Made != nil {
		return s.Made(ctx, mk)
	}
	return runtime.FromTensors(s.Weights, runtime.LoadOptions{}), nil
}

// oneRow measures the kernel of one row, and lets go of it.
func (s *RaggedSuite) oneRow(ctx context.Context) (of map[int]float64, err error) {
	if s.OneRow == nil || len(s.Method.Contexts) == 0 {
		return nil, nil
	}
	one := &Suite{Machine: s.Machine, Kernel: s.OneRow, Weights: s.Weights, Method: s.Method, Progress: s.Progress}
	if s.Made != nil {
		one.Made = func(ctx context.Context) (runtime.Weights, error) { return s.Made(ctx, s.OneRow) }
	}
	s.say("one row a step")
	if err := one.load(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, one.loaded.Close()) }()
	if err := FillKV(one.loaded, one.kvBytes()); err != nil {
		return nil, err
	}
	return OneRow(ctx, &SessionRunner{Session: one.session, Device: one.loaded, PerLaunch: 1}, s.Method)
}

// pages is how many the longest rounds take, or the gate.
func (s *RaggedSuite) pages() int {
	page, n := s.Kernel.KV.Page, 1
	if s.Pages > 0 {
		n = s.Pages
	} else if len(s.Method.Contexts) > 0 {
		longest := max(slices.Max(s.Method.Contexts)+max(s.Method.Tokens, s.Method.WarmUp), leastChunks)
		n = s.Kernel.Options.Tokens * ((longest + page - 1) / page)
	}
	if s.Reference != nil {
		n = max(n, gate.RaggedPages(s.Reference, page))
	}
	return n
}

func (s *RaggedSuite) load(ctx context.Context) (err error) {
	s.say("compiling the kernel of %d rows", s.Kernel.Options.Tokens)
	if s.loaded, err = s.Machine.Load(ctx, s.Kernel.IR); err != nil {
		return err
	}
	s.say("loading the weights")
	s.table = gate.ShuffledTable(s.pages())
	w, err := s.weights(ctx, s.Kernel)
	if err != nil {
		return errors.Join(err, s.loaded.Close())
	}
	s.session, err = runtime.Open(ctx, s.Kernel, s.loaded, w,
		runtime.Options{Pages: len(s.table), Steps: max(1, s.Method.Tokens), Epoch: firstEpoch})
	if err != nil {
		return errors.Join(err, s.loaded.Close())
	}
	if !s.Machine.Facts().Executor { // which is slow, and finds hangs by itself
		s.session.HangTimeout = hangTimeout
	}
	return nil
}

// judge runs the gate on the loaded kernel, with plans that cut short sequences, too.
func (s *RaggedSuite) judge(ctx context.Context) (report *gate.Report, err error) {
	if err := s.session.SetCosts(kv.EagerCosts()); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.session.SetCosts(kv.Costs{})) }()
	subject := gate.RaggedSubject{Kernel: s.Kernel, Weights: s.Weights, Rows: s.Kernel.Options.Tokens, Pages: len(s.table),
		Write: s.loaded.Write, Read: s.loaded.Read,
		Runner: &GateRunner{Session: s.session, Device: s.loaded, Vocab: s.Kernel.Config.Vocab},
		Plant: func(ctx context.Context, fault megakernel.Fault) (func(), error) {
			return plant(ctx, s.Kernel, s.loaded, fault)
		},
		Progress: func(what string) { s.say("gate: %s", what) }}
	s.say("gate: compiling kernels with faults")
	if err := prepare(ctx, s.loaded, s.Kernel, gate.Builds(s.Kernel, false)); err != nil {
		return nil, err
	}
	return subject.Judge(ctx, s.Reference, s.Rules)
}
