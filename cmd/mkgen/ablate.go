package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/mkgen/mkgen/internal/atomicfile"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/lab/tune"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/spf13/cobra"
)

// What a variant of mkgen bench --ablate is measured by on a GPU where nothing is said, and
// how long all of them take at most.
const (
	ablateTokens   = 16
	ablateLaunches = 7
	ablateTime     = 2 * time.Minute
)

// ablateFlags are what --ablate adds to mkgen bench.
type ablateFlags struct {
	on     bool
	time   patience
	output string
}

func (a *ablateFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	a.time = patience(ablateTime)
	f.BoolVar(&a.on, "ablate", false,
		fmt.Sprintf("variants of the kernel that differ in one thing each, beside it; of %d rounds, here launches of each, of %d tokens at contexts 128 and 1024 where nothing is said", ablateLaunches, ablateTokens))
	f.Var(&a.time, "time", "with --ablate, time on the GPU after which no variant is begun, 0 for no limit")
	f.StringVarP(&a.output, "output", "o", "",
		"with --ablate, JSON `file` of what was measured (default out/ablate-MODEL.json); beside it the table in Markdown, ending in .md")
}

// checkAblate refuses what does not go with --ablate, and completes what is open.
func (b *benchFlags) checkAblate(cmd *cobra.Command) error {
	if err := alone(cmd, "ablate", "an ablation is of one table and one file, -o", "budget", "record", "cases", "plot",
		"tokens-per-launch"); err != nil {
		return err
	}
	if b.opts.MLP != megakernel.MLPRows {
		return usagef("--mlp %s and --ablate exclude each other: what variants are measured beside must be repeatable; want %s, of which --mlp %[1]s is a variant", b.opts.MLP, megakernel.MLPRows)
	}
	if b.opts.Launch != megakernel.LaunchSingle {
		return usagef("--launch %s and --ablate exclude each other: an ablation is of one kernel; mkgen tune --launch %[1]s has the options of others", b.opts.Launch)
	}
	if b.device == deviceSim {
		return nil // whose defaults are set
	}
	given := cmd.Flags().Changed
	if !given("contexts") {
		b.contexts = contexts{128, 1024}
	}
	if !given("tokens") {
		b.tokens = ablateTokens
	}
	if !given("rounds") {
		b.rounds = ablateLaunches
	}
	return nil
}

// runAblation measures the kernel's variants beside it.
func (b *benchFlags) runAblation(cmd *cobra.Command) (err error) {
	mk, err := b.build(cmd)
	if err != nil {
		return err
	}
	of := &tune.Ablation{Kernel: mk, Budget: time.Duration(b.ablate.time)}
	on := &tune.Pairs{SMs: mk.Options.SMs, Rules: gate.DefaultRules()}
	if err := b.ablationMethod(cmd, mk.Config, on, of); err != nil {
		return err
	}
	before, err := b.ablationOutput(cmd, mk.Config.Name)
	if err != nil {
		return err
	}
	weights := &bench.Suite{Kernel: mk, Method: bench.Method{Contexts: on.Contexts}}
	release, err := b.prepare(cmd, weights)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	machine, closeMachine, err := openBenchMachine(b.device, b.arch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeMachine()) }()
	if err := b.isOf(machine.Facts()); err != nil {
		return err
	}
	on.Machine, on.Weights, on.Reference = machine, weights.Weights, weights.Reference
	b.ablated(of, on, weights.WeightsName)
	if err := b.replaces(before, of.Setup.Of(mk), tune.ChoiceOf(mk)); err != nil {
		return err
	}
	of.Progress = progressOf(cmd, machine)
	on.Progress = of.Progress
	ctx, stop := interruptible(cmd.Context(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	r, err := of.Run(ctx)
	err = interrupted(ctx, err)
	if r == nil {
		return err
	}
	return errors.Join(err, b.reportAblation(cmd, r))
}

// ablationTable is the file of the table in Markdown.
func (b *benchFlags) ablationTable() string {
	return strings.TrimSuffix(b.ablate.output, ".json") + ".md"
}

// ablationOutput finds the ablation of before, nil where there is none, and refuses files
// that cannot be written, or that are there and none of it.
func (b *benchFlags) ablationOutput(cmd *cobra.Command, model string) (before *tune.Ablated, err error) {
	if b.ablate.output == "" {
		b.ablate.output = filepath.Join("out", "ablate-"+model+".json")
	}
	for _, file := range []output{{flag: "output", path: b.ablate.output},
		{flag: "output", path: b.ablationTable(), ours: ourTable}} {
		if err := checkOutputs(cmd, nil, file); err != nil {
			return nil, err
		}
	}
	data, err := os.ReadFile(b.ablate.output)
	switch {
	case err == nil:
		if before, err = tune.ParseAblated(data); err != nil {
			return nil, fmt.Errorf("--output %s: %w; name another file", b.ablate.output, err)
		}
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(b.ablationTable()); err == nil {
			return nil, fmt.Errorf("--output %s: the table would replace %s; remove it or name another file", b.ablate.output,
				b.ablationTable())
		}
	}
	return before, nil
}

// replaces refuses to write over an ablation of something else, or over one whose kernel
// was judged with one that is not.
func (b *benchFlags) replaces(before *tune.Ablated, setup tune.Setup, kernel tune.Choice) error {
	if before == nil {
		return nil
	}
	err := before.Other(setup, kernel)
	if err == nil && before.Gate == tune.Gated && b.reference == "" {
		err = errors.New("its kernel passed the gate, this one would be " + bench.Ungated)
	}
	if err != nil {
		return fmt.Errorf("--output %s: it is there, of another ablation: %w; remove it or name another file",
			b.ablate.output, err)
	}
	return nil
}

// ablationMethod is what a variant is measured by. Contexts that the model has no
// positions for are left out, or refused where they were asked for.
func (b *benchFlags) ablationMethod(cmd *cobra.Command, c models.Config, on *tune.Pairs, of *tune.Ablation) error {
	fit, beyond := bench.Method{Contexts: b.contexts, Tokens: int(b.tokens)}.Fit(c)
	if len(beyond) > 0 && (cmd.Flags().Changed("contexts") || len(fit) == 0) {
		return usagef("--contexts: %d and a launch of %s, the model was made for %d positions", beyond[0],
			plural.Of(int(b.tokens), "token"), c.MaxPositions)
	}
	on.Contexts, on.Tokens = fit, int(b.tokens)
	of.Setup = tune.Setup{Contexts: fit, Tokens: on.Tokens, Launches: int(b.rounds)}
	return nil
}

// ablated completes the ablation with what measures.
func (b *benchFlags) ablated(of *tune.Ablation, on *tune.Pairs, weights string) {
	facts := on.Machine.Facts()
	if facts.Executor {
		of.Most = 2 // of a group: its times are noise, and some of each show that all of it works
	} else {
		on.Compiled = func(ctx context.Context, mk *megakernel.Kernel) (string, error) { return compiledFor(ctx, mk, b.arch) }
		if b.checkpoint == "" {
			on.Made = b.made
		}
	}
	_, of.Codes = on.Weights.(megakernel.Coded)
	of.Pairer, of.Driver, of.CUDA = on, facts.Driver, facts.CUDA
	of.Setup.GPU, of.Setup.Commit, of.Setup.Arch, of.Setup.Weights = facts.GPU, revision.String(), b.arch, weights
	of.Save = func(r *tune.Ablated) error { return r.WriteFile(b.ablate.output) }
}

// reportAblation prints the table, and writes it in Markdown beside the file.
func (b *benchFlags) reportAblation(cmd *cobra.Command, r *tune.Ablated) error {
	var head bytes.Buffer
	unit := "µs a token"
	if n := r.Setup.Rows(); n > 1 {
		unit = fmt.Sprintf("µs a step of %d sequences", n)
	}
	if r.Executor() {
		fmt.Fprintf(&head, "%s on the executor with %d SMs: no speed of any GPU\nOf a group up to two variants\n", r.Model,
			r.Setup.Options.SMs)
	} else {
		fmt.Fprintf(&head, "%s on %s (driver %s, CUDA %s), %s, %s\n", r.Model, r.GPU, r.Driver, r.CUDA, r.Compiler, r.Weights)
		fmt.Fprintf(&head, "%s, medians of %s of %s, in turns with as many of the kernel: ratio, and noise, what a difference must be more than\n", unit, plural.Of(r.Launches, "launch"), plural.Of(r.Setup.Tokens, "token"))
		fmt.Fprintf(&head, "Share: of %.0f GB/s, what bulk copies alone streamed (%s) right before\n", r.Ceiling.GBps,
			r.Ceiling.Variant)
	}
	fmt.Fprintf(&head, "The kernel: %s --watchdog %s\n", r.Kernel, r.Setup.Options.Watchdog)
	if g := r.Judged; g != nil {
		fmt.Fprintf(&head, "Gate, of the kernel and of no variant: mean KL %.3g, the reference's own bf16 %.3g, %d flips of %d sure tokens, faults caught: %s\n",
			float64(g.KLOurs), float64(g.KLReference), g.Flips, g.Sure, strings.Join(g.FaultsCaught, ", "))
	} else {
		fmt.Fprintf(&head, "%s: no reference was given (--reference)\n", bench.Ungated)
	}
	w, md := cmd.OutOrStdout(), bytes.NewBufferString(tune.MarkdownHead+strings.ReplaceAll(head.String(), "\n", "\n\n"))
	for line := range strings.Lines(head.String()) {
		if strings.HasPrefix(line, "The kernel: ") { // flags, which are copied whole
			fmt.Fprint(w, line)
		} else {
			table.Text(w, "", "%s", line)
		}
	}
	fmt.Fprintln(w)
	if err := errors.Join(r.WriteTable(w), r.WriteMarkdown(md)); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, row := range r.Odd() {
		fmt.Fprintf(w, "%s, %s: %s, though it should compute the same\n", row.Group, row.Differs, row.Bits)
	}
	path := b.ablationTable()
	if err := atomicfile.Write(path, md.Bytes()); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "Written to %s and %s\n", b.ablate.output, path)
	return err
}
