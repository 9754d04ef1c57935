package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/budget"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/spf13/cobra"
)

// What a budget is of where no flag says: its steps, of which the first does not count, and
// its context.
const (
	budgetSteps   = 3
	budgetContext = 1024
)

// checkBudget refuses what does not go with --budget, and completes what is open.
func (b *benchFlags) checkBudget(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if err := alone(cmd, "budget", "a budget is of traced launches of its own, and no record", "reference", "record", "plot",
		"cases", "rounds", "tokens-per-launch"); err != nil {
		return err
	}
	if b.options().Launch == megakernel.LaunchGraph {
		return usagef("--launch %s and --budget exclude each other: a budget is of one traced kernel", megakernel.LaunchGraph)
	}
	if !given("tokens") && b.device != deviceSim {
		b.tokens = budgetSteps
	}
	if !given("contexts") && b.device != deviceSim {
		b.contexts = contexts{budgetContext}
	}
	return nil
}

// budget measures traced launches beside untraced ones, and prints them beside what is
// predicted.
func (b *benchFlags) budget(cmd *cobra.Command, predictedFor *machine.Machine) (err error) {
	t := traceFlags{benchFlags: *b, steps: b.tokens, context: index(slices.Max(b.contexts))}
	plain, traced, err := t.kernels(cmd)
	if err != nil {
		return err
	}
	if !cmd.Flags().Changed("contexts") {
		b.contexts = contexts{int(t.context)} // what the model has positions for
	}
	fit, beyond := bench.Method{Contexts: b.contexts, Tokens: int(b.tokens)}.Fit(plain.Config)
	if len(beyond) > 0 && (cmd.Flags().Changed("contexts") || len(fit) == 0) {
		return usagef("--contexts: %d and a launch of %s, the model was made for %d positions", beyond[0],
			plural.Of(int(b.tokens), "token"), plain.Config.MaxPositions)
	}
	s := &bench.Suite{Kernel: plain}
	release, err := t.prepare(cmd, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	gpu, closeMachine, err := openBenchMachine(b.device, b.arch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeMachine()) }()
	if err := b.isOf(gpu.Facts()); err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	s.Machine, s.Progress = gpu, progressOf(cmd, gpu)
	var all []*budget.Budget
	for _, cached := range fit {
		t.context = index(cached)
		x, err := t.compared(ctx, s, plain, traced, predictedFor)
		if err != nil {
			return interrupted(ctx, err)
		}
		all = append(all, x)
	}
	err = b.reportBudget(cmd, plain, gpu.Facts(), predictedFor, all) // now the compiler is known
	t.tellStages(cmd.OutOrStdout(), traced)
	return err
}

// isOf refuses a machine file of another GPU than the one at hand.
func (b *benchFlags) isOf(facts bench.Facts) error {
	if b.of == nil || facts.Executor {
		return nil
	}
	if err := b.of.Is(facts.GPU); err != nil {
		return fmt.Errorf("--machine %s: %w", b.machine.file, err)
	}
	return nil
}

// compared runs both kernels at t's context.
func (t *traceFlags) compared(ctx context.Context, s *bench.Suite, plain, traced *megakernel.Kernel,
	m *machine.Machine) (*budget.Budget, error) {
	s.Kernel = plain
	without, err := t.record(ctx, s)
	if err != nil {
		return nil, err
	}
	s.Kernel = traced
	r, err := t.record(ctx, s)
	if err != nil {
		return nil, err
	}
	tr, err := t.decode(traced, s.Machine.Facts(), r)
	if err != nil {
		return nil, err
	}
	return budget.Of(traced, m, int(t.context), max(1, t.opts.Tokens), tr.Summarize(),
		budget.Times{Traced: r.Micros, Untraced: without.Micros}), nil
}

func (b *benchFlags) reportBudget(cmd *cobra.Command, mk *megakernel.Kernel, facts bench.Facts, of *machine.Machine,
	all []*budget.Budget) error {
	w := cmd.OutOrStdout()
	if facts.Executor {
		fmt.Fprintf(w, "%s on the executor with %d SMs: no speed of any GPU\n", mk.Config.Name, mk.Options.SMs)
	} else {
		table.Text(w, "", "%s on %s: measured beside predicted, %s. Times are of a run of a phase, means over the SMs.",
			mk.Config.Name, facts.GPU, bench.Ungated)
	}
	provenance(w, facts, mk)
	if !facts.Executor && of.Is(facts.GPU) != nil {
		table.Text(w, "", "Predicted for the machine that is built in, %s: mkgen calibrate measures this one, and --machine takes its file.", of.GPU)
	}
	for _, x := range all {
		fmt.Fprintln(w)
		if err := x.WriteTable(w); err != nil {
			return err
		}
	}
	return nil
}
