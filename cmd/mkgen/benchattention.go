package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/lab/attend"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/spf13/cobra"
)

// The lengths of prompts whose attention is measured where nothing is said.
var attentionLengths = contexts{1024, 4096, 16384}

// checkPrefillAttention refuses what does not go with --prefill-attention.
func (b *benchFlags) checkPrefillAttention(cmd *cobra.Command) error {
	if err := alone(cmd, "prefill-attention", "", "record", "plot", "tokens", "tokens-per-launch", "rows", "budget", "ablate",
		"prefill", "reference", "checkpoint", "random"); err != nil {
		return err
	}
	b.lengths(cmd, attentionLengths)
	if slices.Contains(b.contexts, 0) {
		return usagef("--contexts: a prompt of 0 tokens, want at least 1")
	}
	return nil
}

// prefillAttention measures attention of prompts alone, and prints how long it took.
func (b *benchFlags) prefillAttention(cmd *cobra.Command) (err error) {
	config, err := b.load(cmd)
	if err != nil {
		return err
	}
	if err := checkOutputs(cmd, nil, output{flag: "cases", path: b.cases, ours: ourPrompts}); err != nil {
		return err
	}
	o := b.options()
	variant, err := prefillVariant(o.Attention)
	if err != nil {
		return err
	}
	s := &bench.PrefillAttentionSuite{Sequences: int(b.attention), Lengths: b.contexts, Rounds: int(b.rounds),
		Config: attend.PrefillConfig{Heads: config.Heads, KVHeads: config.KVHeads, HeadDim: config.HeadDim, SMs: o.SMs,
			Page: cmp.Or(o.Page, megakernel.DefaultPage), Variant: variant}}
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
	out.Commit = revision.String()
	if b.cases != "" {
		if err := out.Write(b.cases); err != nil {
			return fmt.Errorf("--cases: %w", err)
		}
	}
	return out.WriteTable(cmd.OutOrStdout(), machine.Facts())
}

// prefillVariant is the attention that prompts alone are measured with.
func prefillVariant(attention string) (v attend.PrefillVariant, err error) {
	terms, err := megakernel.Terms(attention)
	if err != nil {
		return v, usagef("--attention: %v", err)
	}
	if len(terms) > 1 {
		return v, usagef("--attention: %q, want one of window=N, softcap=X and alibi where attention is measured alone",
			attention)
	}
	for name, value := range terms { // one at most
		switch name {
		case "window":
			v.Window = int(value)
		case "softcap":
			v.SoftCap = value
		case "alibi":
			v.ALiBi = true
		default:
			return v, usagef("--attention: %s, which is not measured alone; want causal, window=N, softcap=X or alibi", name)
		}
	}
	return v, nil
}
