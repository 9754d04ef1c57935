package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
)

const prefillUsage = "tokens of a prompt that a prefill kernel feeds at a time, where a prompt has more of them than a step has rows, or none (default on cuda 1024, where there is such a kernel and a prompt may be long; none on sim)"

// defaultPrefill is the tokens of a step of prefill kernels where --prefill does not say, and worthPrefill the bytes of
// a prompt, about 250 tokens, below which mkgen run does not compile kernels for it: that takes several seconds the
// first time, and steps of 16 rows read such a prompt of an 8B model in a tenth of one.
const (
	defaultPrefill = 1024
	worthPrefill   = 1024
)

// prefillTokens is the flag of the tokens of a step of a prefill kernel; absent it is 0.
type prefillTokens int

func (n *prefillTokens) String() string { return strconv.Itoa(int(*n)) }

func (n *prefillTokens) Type() string { return "n" }

func (n *prefillTokens) want() string {
	return fmt.Sprintf("a whole number from 1 to %d", megakernel.MaxPrefillTokens)
}

func (n *prefillTokens) Set(s string) error {
	var of count
	err := of.Set(s)
	if err == nil && of > megakernel.MaxPrefillTokens {
		err = errors.New("out of range")
	}
	*n = prefillTokens(of)
	return err
}

// prefillWidth is prefillTokens, or noPrefill for none.
type prefillWidth prefillTokens

const noPrefill prefillWidth = -1

func (w *prefillWidth) String() string {
	if *w == noPrefill {
		return "none"
	}
	return strconv.Itoa(int(*w))
}

func (w *prefillWidth) Type() string { return "n" }

func (w *prefillWidth) want() string { return new(prefillTokens).want() + ", or none" }

func (w *prefillWidth) Set(s string) error {
	if s == "none" {
		*w = noPrefill
		return nil
	}
	var n prefillTokens
	err := n.Set(s)
	*w = prefillWidth(n)
	return err
}

const prefillActivationsUsage = "format of the inputs of prefill kernels' products: bf16, or e4m3 with a scale a token, beside weights of e4m3 (docs/prefill.md)"

// prefillActivations is the flag of the inputs of prefill kernels' products.
type prefillActivations pipeline.Format

func (a *prefillActivations) String() string {
	return string(cmp.Or(*a, prefillActivations(pipeline.FormatBF16)))
}

func (a *prefillActivations) Type() string { return "format" }

func (a *prefillActivations) want() string { return "bf16 or e4m3" }

func (a *prefillActivations) Set(s string) error {
	if f := pipeline.Format(s); f != pipeline.FormatBF16 && f != pipeline.FormatE4M3 {
		return fmt.Errorf("%q, want %s", s, a.want())
	}
	*a = prefillActivations(s)
	return nil
}

// activationsAlone is the error of a flag of inputs in e4m3 where no prefill kernel is built.
const activationsAlone = "--prefill-activations goes with --prefill"

func (a prefillActivations) coded() bool { return a.format() == pipeline.FormatE4M3 }

func (a prefillActivations) format() pipeline.Format { return pipeline.Format(a) }

// prefillTokens are those of a step of the prefill kernels beside kernel of, 0 for none. asked is whether --prefill
// names them.
func (r *runFlags) prefillTokens(of *megakernel.Kernel) (n int, asked bool) {
	switch {
	case r.prefill == noPrefill:
		return 0, true
	case r.prefill > 0:
		return int(r.prefill), true
	case r.device == deviceCUDA && of.Ragged() && (r.serves || r.longest >= worthPrefill):
		return defaultPrefill, false
	}
	return 0, false
}

const prefillChunkUsage = "tokens of a prompt that a prefill kernel feeds at a time while other requests run, with --pin-split always: fewer keep those waiting less that generate (default as many as keep them waiting for at most 20 ms, by prediction, or for two of the smallest launches)"

// addPrefill builds the prefill kernels beside the others, opens devices for them and adds both to the engine's
// options.
func (r *runFlags) addPrefill(ctx context.Context, stderr io.Writer, of *megakernel.Kernel, first runtime.Device,
	d deviceOptions, o *engine.Options) error {
	rows, chunk := of.Options.Tokens, int(r.prefillChunk)
	tokens, asked := r.prefillTokens(of)
	switch {
	case tokens == 0 && r.activations.coded():
		return usagef("%s", activationsAlone)
	case tokens == 0 && chunk > 0:
		return usagef("--prefill-chunk goes with --prefill")
	case tokens == 0:
		return nil
	case !of.Ragged():
		return usagef("--prefill: not with --rows 1, whose kernel reads prompts alone")
	case asked && tokens <= rows:
		return usagef("--prefill: %s, want more than the %d rows of a step (--rows)", plural.Of(tokens, "token"), rows)
	case chunk > 0 && (chunk <= rows || chunk > tokens):
		return usagef("--prefill-chunk: %s, want more than the %d rows of a step and at most the %d of --prefill",
			plural.Of(chunk, "token"), rows, tokens)
	}
	all, err := megakernel.BuildPrefills(of, tokens, r.activations.format())
	switch {
	case err != nil && (asked || chunk > 0 || r.activations.coded()):
		return usagef("--prefill: %v", err)
	case err != nil:
		if r.verbose {
			fmt.Fprintf(stderr, "mkgen: without a prefill kernel: %s\n", oneLine(err))
		}
		return nil
	}
	switch {
	case chunk > 0:
		o.PrefillChunk = func(int, int, bool) int { return chunk }
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
