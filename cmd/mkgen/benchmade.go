package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/spf13/cobra"
)

// progressOf prints what is done next on a GPU, with the time since now.
func progressOf(cmd *cobra.Command, m bench.Machine) func(what string) {
	return elapsed(cmd, m.Facts().Executor)
}

// elapsed is progressOf before there is a machine.
func elapsed(cmd *cobra.Command, executor bool) func(what string) {
	start := time.Now()
	return func(what string) {
		if !executor {
			fmt.Fprintf(cmd.ErrOrStderr(), "%6.1f s  %s\n", time.Since(start).Seconds(), what)
		}
	}
}

// made makes random weights on the device.
func (b *benchFlags) made(ctx context.Context, mk *megakernel.Kernel) (runtime.Weights, error) {
	return runtime.RandomCompiled(ctx, mk, uint64(b.seed), b.arch, compile.Options{})
}

// kernels builds the kernel that is measured and, where it has several rows a step, the
// one of one row beside it: nil under a mask, which a step of one row has none of.
func (b *benchFlags) kernels(config models.Config) (mk, beside *megakernel.Kernel, err error) {
	one := b.options()
	if one.Tokens > 1 {
		if mk, err = megakernel.Build(config, b.chosen(config)); err != nil { // such as a graph, which has one row
			return nil, nil, b.inFlags(err)
		}
		if mk.HasMask() {
			return mk, nil, nil
		}
		one.Tokens, one.Selection = 1, false
	}
	if b.of != nil {
		one = one.ForMachine(config, b.of)
	}
	beside, err = megakernel.Build(config, one)
	switch {
	case err != nil && mk != nil:
		return nil, nil, b.inFlagsOfOne(err, "beside steps of several those of one are measured")
	case err != nil:
		return nil, nil, b.inFlags(err)
	case mk == nil:
		return beside, nil, nil
	}
	return mk, beside, nil
}

// measure runs the benchmark of s's kernel, with that of one row beside it where it is one of
// several.
func (b *benchFlags) measure(ctx context.Context, s *bench.Suite, beside *megakernel.Kernel) (*bench.Outcome, error) {
	if b.opts.Tokens < 2 {
		return s.Run(ctx)
	}
	r := &bench.RaggedSuite{Machine: s.Machine, Kernel: s.Kernel, OneRow: beside,
		Weights: s.Weights, WeightsName: s.WeightsName,
		Reference: s.Reference, Rules: s.Rules, Method: s.Method, Choices: s.Choices, Progress: s.Progress}
	if s.Made != nil {
		r.Made = b.made
	}
	return r.Run(ctx)
}

// prepare finds the weights and the reference, and compares the two. A seed that
// was not given is the reference's.
func (b *benchFlags) prepare(cmd *cobra.Command, s *bench.Suite) (release func() error, err error) {
	c, release := s.Kernel.Config, func() error { return nil }
	if b.device == deviceSim {
		if err := fitsSim(&c); err != nil {
			return nil, err
		}
	}
	if b.reference != "" {
		if s.Reference, err = gate.OpenReference(b.reference); err != nil {
			return nil, fmt.Errorf("--reference %s: %w", b.reference, err)
		}
		if !cmd.Flags().Changed("random") {
			b.seed = seed(s.Reference.Seed)
		}
	}
	var random *uint64
	if b.checkpoint != "" {
		w, note, err := openModel(b.checkpoint, b.reading())
		if err != nil {
			return nil, err
		}
		if theirs := w.Config(); !reflect.DeepEqual(theirs.Tensors(), c.Tensors()) {
			err := fmt.Errorf("--checkpoint: %s holds weights of another shape than %s", b.checkpoint, c.Name)
			return nil, errors.Join(err, w.Close())
		}
		s.Weights = w
		if b.reference == "" {
			if s.Weights, note, err = b.withCodes(cmd, w, note); err != nil {
				return nil, errors.Join(err, w.Close())
			}
		}
		if note != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), note)
		}
		s.WeightsName, release = "checkpoint "+filepath.Base(filepath.Clean(b.checkpoint)), w.Close
	} else {
		n := uint64(b.seed)
		random, s.Weights, s.WeightsName = &n, synth.NewWeights(n, c), fmt.Sprintf("random, seed %d", n)
	}
	exact := s.Weights
	s.Weights = s.Kernel.Rounded(exact)
	if s.Reference == nil {
		return release, nil
	}
	if m := s.Method.Contexts; len(m) > 0 && slices.Max(m) > s.Reference.Longest() {
		err := fmt.Errorf("--contexts: %d, but the longest sequence of --reference %s has %d tokens, and no speed beyond it would be gated",
			slices.Max(m), b.reference, s.Reference.Longest())
		return nil, errors.Join(err, release())
	}
	if err = s.Reference.MatchesFormats(s.Kernel.Options.Weights, s.Kernel.Options.Head); err == nil {
		err = s.Reference.Matches(c, exact, random)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--reference %s: %w", b.reference, err), release())
	}
	s.WeightsName += ", hash " + s.Reference.WeightsHash
	return release, nil
}
