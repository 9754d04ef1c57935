package main

import (
	"context"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
)

const prefillUsage = "tokens of a prompt that a prefill kernel feeds at a time, where a prompt has more of them than a step has rows (default none)"

const prefillChunkUsage = "tokens of a prompt that a prefill kernel feeds at a time while other requests run, with --pin-split always: fewer keep those waiting less that generate (default as many as keep them waiting for at most 20 ms, by prediction)"

// addPrefill builds the prefill kernels beside the others, opens devices for them and adds both to the engine's
// options.
func (r *runFlags) addPrefill(ctx context.Context, of *megakernel.Kernel, first runtime.Device, d deviceOptions,
	o *engine.Options) error {
	rows, chunk := of.Options.Tokens, int(r.prefillChunk)
	switch {
	case r.prefill == 0 && chunk > 0:
		return usagef("--prefill-chunk goes with --prefill")
	case r.prefill == 0:
		return nil
	case !of.Ragged():
		return usagef("--prefill: not with --rows 1, whose kernel reads prompts alone")
	case chunk > 0 && (chunk <= rows || chunk > int(r.prefill)):
		return usagef("--prefill-chunk: %d tokens, want more than the %d rows of a step and at most the %d of --prefill",
			chunk, rows, r.prefill)
	}
	all, err := megakernel.BuildPrefills(of, int(r.prefill))
	if err != nil {
		return usagef("--prefill: %v", err)
	}
	switch {
	case chunk > 0:
		o.PrefillChunk = func(_, _ int) int { return chunk }
	case r.of != nil:
		o.PrefillChunk = megakernel.PrefillBeside(of, all, r.of)
	}
	for _, p := range all {
		dev, err := openPrefill(ctx, p, first, d)
		if err != nil {
			return err
		}
		o.Prefill = append(o.Prefill, engine.PrefillMember{Kernel: p, Device: dev})
	}
	return nil
}

// simPrefill is an executor for a prefill kernel.
func simPrefill(p *megakernel.Prefill) (runtime.Device, error) { return runtime.NewSim(p.IR, 1) }
