package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/spf13/cobra"
)

// The lengths of prompts that are measured where nothing is said.
var promptLengths = contexts{128, 1024, 8192}

// checkPrefill refuses what does not go with --prefill.
func (b *benchFlags) checkPrefill(cmd *cobra.Command) error {
	b.lengths(cmd, promptLengths)
	return alone(cmd, "prefill", "", "record", "plot", "tokens", "tokens-per-launch", "rows", "budget", "ablate")
}

// lengths takes lengths of prompts where none are given, on the executor a short one.
func (b *benchFlags) lengths(cmd *cobra.Command, usual contexts) {
	if cmd.Flags().Changed("contexts") {
		return
	}
	if b.contexts = usual; b.device == deviceSim {
		b.contexts = contexts{80}
	}
}

// prefills measures prompts, and prints how long they took.
func (b *benchFlags) prefills(cmd *cobra.Command) (err error) {
	config, err := b.load(cmd)
	if err != nil {
		return err
	}
	o := b.options()
	s := &bench.PrefillSuite{Rounds: int(b.rounds), Rules: gate.DefaultRules(), Cached: int(b.cached)}
	for _, n := range b.contexts {
		switch fits := n >= 2 && s.Cached+n <= config.MaxPositions; {
		case fits:
			s.Lengths = append(s.Lengths, n)
		case cmd.Flags().Changed("contexts"):
			return usagef("--contexts: a prompt of %d tokens behind %d, want 2 to the model's %d positions", n, s.Cached,
				config.MaxPositions)
		}
	}
	if len(s.Lengths) == 0 {
		return usagef("--cached: %d tokens before a prompt, want room for one of 2 tokens or more of --contexts in the "+
			"model's %d positions", s.Cached, config.MaxPositions)
	}
	base := megakernel.Options{SMs: o.SMs, Page: o.Page, KV: o.KV, Weights: o.Weights,
		Head: o.Head, Attention: o.Attention, Consumers: o.Consumers, Watchdog: megakernel.WatchAll}
	for _, rows := range []int{kv.MaxRows, 1} {
		base.Tokens = rows
		mk, err := megakernel.Build(config, base)
		if err != nil {
			return b.inFlags(err)
		}
		s.Decode = append(s.Decode, mk)
	}
	if s.Prefill, err = megakernel.BuildPrefills(s.Decode[0], int(b.prefill), b.activations.format()); err != nil {
		return usagef("--prefill: %v", err)
	}
	if err := checkOutputs(cmd, nil,
		output{flag: "cases", path: b.cases, ours: ourPrefill(b.reference != "")}); err != nil {
		return err
	}
	weights := &bench.Suite{Kernel: s.Decode[0]}
	release, err := b.prepare(cmd, weights)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	s.Reference, s.Tensors = weights.Reference, weights.Weights
	s.Weights = func(ctx context.Context) (runtime.Weights, error) {
		if b.checkpoint == "" && b.device == deviceCUDA {
			return b.made(ctx, s.Decode[0])
		}
		return runtime.FromTensors(weights.Weights, runtime.LoadOptions{}), nil
	}
	machine, closeMachine, err := openBenchMachine(b.device, b.arch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeMachine()) }()
	s.Machine, s.Progress = machine, progressOf(cmd, machine)
	ctx, stop := interruptible(cmd.Context(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	out, err := s.Run(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	w := cmd.OutOrStdout()
	if b.cases != "" {
		if err := out.File(s, machine.Facts(), revision.String()).Write(b.cases); err != nil {
			return fmt.Errorf("--cases: %w", err)
		}
	}
	if out.Gate == nil {
		return out.Write(w, machine.Facts())
	}
	reportGate(w, &out.Gate.Gate)
	return errors.Join(reportLocal(w, out.Gate.Gate.Local), out.Write(w, machine.Facts()), out.Gate.Err())
}
