package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/tune"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/spf13/cobra"
)

// What mkgen tune measures by on a GPU: tokens of a launch, and launches, of which
// tune.Setup.Judged says more. And how long the search takes where nothing is said.
const (
	tuneTokens   = 32
	tuneLaunches = 9
	tuneBudget   = 10 * time.Minute
)

// tuneFlags are what mkgen tune asks for beside the kernel.
type tuneFlags struct {
	benchFlags // choice, device, checkpoint, seed and contexts only
	budget     patience
	output     string
}

func newTune() *cobra.Command {
	t := tuneFlags{benchFlags: benchFlags{device: deviceCUDA, seed: 1, contexts: contexts{128, 1024}},
		budget: patience(tuneBudget)}
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Search a kernel's fastest options on the GPU at hand",
		Long: `tune measures kernels that differ in stage size, depth of the ring, copies in
flight, leads, chunks held in registers, consumer warps, parts of the KV cache,
where partial states are merged, and how queries and vectors are handed on: one
option after the other, each candidate beside the best so far, whose time is
taken again each time, and again until a whole round changes nothing or the time
is over. An option that a flag gives stays as it is. What the first round tries
is compiled before the GPU is used, and what a better kernel brings up before
the first of it runs; a candidate that is slower after a third of the launches
gets no more of them.

It writes a profile, which --profile makes the other commands use. The file is
written after every measurement: what it holds is not measured again, so the
same command goes on where it ended or was interrupted. With --profile FILE the
search begins with what another one chose.

The times are UNGATED and no record: mkgen bench --profile makes one.

--device sim searches a little on the CPU, for small models: it shows that all
of it works, and no speed.`,
		Example: `  mkgen tune --model llama3-8b --budget 10m
  mkgen tune --model llama3-8b --rows 8 --contexts 1024 -o out/8b-rows8.json
  mkgen --model llama3-8b --profile out/tune-llama3-8b.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return t.run(cmd) },
	}
	f := cmd.Flags()
	t.choice.flags(cmd)
	t.machineFlag(cmd)
	t.choice.graphFlags(cmd)
	f.StringVar(&t.checkpoint, "checkpoint", "", "`directory` with the model and its weights")
	f.Var(&t.seed, "random", "seed of random weights instead (default 1)")
	f.Var(&t.contexts, "contexts", "tokens in the KV cache when a launch begins")
	f.Var(&t.budget, "budget", "time from the GPU's first use on after which no measurement begins, 0 for no limit")
	f.StringVarP(&t.output, "output", "o", "", "JSON `file` of the profile (default out/tune-MODEL.json)")
	f.Var(&t.device, "device", "cuda or sim")
	f.Lookup("random").DefValue = ""
	f.Lookup("profile").Usage = "begin with the options that a profile `file` chose"
	return cmd
}

// check refuses what does not go together, and completes what is open.
func (t *tuneFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch {
	case given("checkpoint") && given("random"):
		return usagef("--checkpoint and --random exclude each other")
	case t.device == deviceSim:
		t.executorDefaults(func(name string) bool { return name != "rounds" && name != "tokens" && given(name) })
	}
	return configOfCheckpoint(cmd, t.checkpoint)
}

func (t *tuneFlags) run(cmd *cobra.Command) (err error) {
	if err := t.check(cmd); err != nil {
		return err
	}
	mk, err := t.build(cmd)
	if err != nil {
		return err
	}
	if !mk.Options.Repeatable() {
		return usagef("--mlp %s: its results differ from run to run, and it is for comparison only (mkgen bench --ablate); want %s", mk.Options.MLP, megakernel.MLPRows)
	}
	s := &tune.Search{Start: mk, Dimensions: t.dimensions(cmd, &mk.Options), Budget: time.Duration(t.budget)}
	of, err := t.method(cmd, mk.Config)
	if err != nil {
		return err
	}
	if err := t.before(cmd, s); err != nil {
		return err
	}
	weights := &bench.Suite{Kernel: mk}
	release, err := t.prepare(cmd, weights)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	ctx, stop := interruptible(cmd.Context(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	of.Weights, s.Measurer, s.Progress = weights.Weights, of, elapsed(cmd, t.device == deviceSim)
	if t.device != deviceSim {
		if err := t.ahead(ctx, s, of, weights.WeightsName); err != nil {
			return t.searched(interrupted(ctx, err))
		}
	}
	machine, closeMachine, err := openBenchMachine(t.device, t.arch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeMachine()) }()
	if err := t.onItsGPU(machine.Facts()); err != nil {
		return err
	}
	of.Machine = machine
	t.measured(s, of, machine.Facts(), weights.WeightsName)
	p, steps, err := s.Run(ctx)
	if errors.Is(err, tune.ErrOther) {
		return t.searched(err)
	}
	if err != nil {
		return keeping(interrupted(ctx, err), t.output)
	}
	return t.report(cmd, p, steps, s.Over)
}

// searched says of a profile of another search which file it is.
func (t *tuneFlags) searched(err error) error {
	if !errors.Is(err, tune.ErrOther) {
		return err
	}
	return fmt.Errorf("--output %s: %w; remove it or name another file", t.output, err)
}

// ahead compiles what the search begins with, when it is known that there is a GPU to search
// on, and before that is held.
func (t *tuneFlags) ahead(ctx context.Context, s *tune.Search, of *tune.Suite, weights string) error {
	machine, closeMachine, err := openBenchMachine(t.device, t.arch)
	if err != nil {
		return err
	}
	facts := machine.Facts()
	if err := errors.Join(t.onItsGPU(facts), closeMachine()); err != nil {
		return err
	}
	t.measured(s, of, facts, weights)
	of.Compiled = func(ctx context.Context, mk *megakernel.Kernel) (string, error) { return compiledFor(ctx, mk, t.arch) }
	if t.checkpoint == "" {
		of.Made = t.made
	}
	return s.Ahead(ctx)
}

// dimensions are those that are searched: what no flag gives; on the executor three, of which leads
// follow copies in flight.
func (t *tuneFlags) dimensions(cmd *cobra.Command, o *megakernel.Options) []string {
	onExecutor := []string{tune.InFlight, tune.Leads, tune.Merge}
	return slices.DeleteFunc(tune.Dimensions(o.Tokens, o.Launch), func(name string) bool {
		return cmd.Flags().Changed(name) || t.device == deviceSim && !slices.Contains(onExecutor, name)
	})
}

// method is what is measured. Contexts that the model has no positions for are left
// out, or refused where they were asked for.
func (t *tuneFlags) method(cmd *cobra.Command, c models.Config) (*tune.Suite, error) {
	s := &tune.Suite{Tokens: tuneTokens}
	if t.device == deviceSim {
		s.Tokens = 1
	}
	fit, beyond := bench.Method{Contexts: t.contexts, Tokens: s.Tokens}.Fit(c)
	if len(beyond) > 0 && (cmd.Flags().Changed("contexts") || len(fit) == 0) {
		return nil, usagef("--contexts: %d and a launch of %s, the model was made for %d positions", beyond[0],
			plural.Of(s.Tokens, "token"), c.MaxPositions)
	}
	s.Contexts = fit
	return s, nil
}

// before finds the profile of an earlier run.
func (t *tuneFlags) before(cmd *cobra.Command, s *tune.Search) (err error) {
	if t.output == "" {
		t.output = filepath.Join("out", "tune-"+s.Start.Config.Name+".json")
	}
	if err := checkOutputs(cmd, nil, output{flag: "output", path: t.output, own: true}); err != nil {
		return err
	}
	s.Before, err = tune.ReadFile(t.output)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--output: %w; name another file", err)
	}
	return nil
}

// measured completes the search with what measures.
func (t *tuneFlags) measured(s *tune.Search, of *tune.Suite, facts bench.Facts, weights string) {
	launches := tuneLaunches
	if facts.Executor {
		launches = 1
		s.Most, s.Rounds = 2, 1 // its times are noise: one round shows that all of it works
	}
	s.Setup = tune.Setup{GPU: facts.GPU, Commit: revision.String(), Arch: t.arch, Contexts: of.Contexts, Weights: weights,
		Tokens: of.Tokens, Launches: launches}
	s.Save = func(p *tune.Profile) error { return p.WriteFile(t.output) }
}

// compiledFor compiles a kernel into the cache, and says what compiled it.
func compiledFor(ctx context.Context, mk *megakernel.Kernel, arch string) (string, error) {
	compiler := ""
	for _, k := range mk.Kernels() {
		source, err := compile.SourceOfKernel(mk.Config.Name, k, arch)
		if err != nil {
			return "", err
		}
		r, err := compile.Kernel(ctx, source, compile.Options{})
		if err != nil {
			return "", err
		}
		compiler = r.Compiler
	}
	return compiler, nil
}

// report prints what was tried, and how the profile is used.
func (t *tuneFlags) report(cmd *cobra.Command, p *tune.Profile, steps []tune.Step, over bool) error {
	w := cmd.OutOrStdout()
	if t.device == deviceSim {
		fmt.Fprintf(w, "%s on the executor with %d SMs: no speed of any GPU\n\n", p.Model, p.Setup.Options.SMs)
	} else {
		table.Text(w, "", "%s on %s, %s, %s: %s, times to choose by; a profile is no record.", p.Model, p.GPU, p.Compiler,
			p.Weights, bench.Ungated)
		n := p.Judged()
		table.Text(w, "", "µs a token of %d, %d or %d launches of %d tokens, as often beside the incumbent; better is by more than the noise.", n[0], n[1], n[2], p.Tokens)
		fmt.Fprintln(w)
	}
	if err := tune.WriteTable(w, p, steps); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nChosen: %s\n", p.Chosen)
	if gain := tune.Gain(steps); gain > 0 && t.device != deviceSim {
		fmt.Fprintf(w, "Together %.2f %% less time than with %s\n", 100*gain, p.Start)
	}
	switch {
	case over:
		fmt.Fprintln(w, "The time was over before the search: the same command goes on.")
	case p.Finished:
		fmt.Fprintln(w, "The search is finished: a whole round changed nothing.")
	default:
		fmt.Fprintln(w, "One round, as always on the executor.")
	}
	return t.uses(cmd, w, p)
}

// uses prints the command that uses the profile: with the flags that decide the kernel.
func (t *tuneFlags) uses(cmd *cobra.Command, w io.Writer, p *tune.Profile) error {
	words := []string{"mkgen"}
	if launch := p.Setup.Options.Launch; launch != "" {
		words = append(words, "bench", "--launch", string(launch))
	}
	for _, name := range []string{"model", "config", "name", "arch", "page", "kv", "weight-format", "attention", "rows",
		"watchdog"} {
		if f := cmd.Flags().Lookup(name); f.Changed {
			words = append(words, "--"+name, f.Value.String())
		}
	}
	if n := p.Setup.Options.SMs; n != megakernel.DefaultSMs {
		words = append(words, "--sms", fmt.Sprint(n))
	}
	if p.Setup.Options.Selection {
		words = append(words, "--selection")
	}
	_, err := fmt.Fprintf(w, "Profile written to %s; to use it:\n  %s --profile %s\n", t.output, strings.Join(words, " "),
		quoted(t.output))
	return err
}

// quoted is a path as a shell takes it for one word.
func quoted(path string) string {
	if !strings.ContainsAny(path, " \t\n'\"\\$`&|;<>()*?[]{}~#!") {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
