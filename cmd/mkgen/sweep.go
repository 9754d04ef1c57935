package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/lab/sweep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/spf13/cobra"
)

// batches is a flag that is a list of numbers of sequences.
type batches struct{ contexts }

func (b *batches) want() string {
	return fmt.Sprintf("whole numbers from 1 to %d, each once, with commas between, such as 1,2,4", kv.MaxRows)
}

func (b *batches) Set(s string) error {
	if err := b.contexts.Set(s); err != nil {
		return err
	}
	for _, n := range b.contexts {
		if n < 1 || n > kv.MaxRows {
			return strconv.ErrRange
		}
	}
	return nil
}

// sweepFlags are what mkgen sweep asks for beside the kernels.
type sweepFlags struct {
	benchFlags // but for tokens-per-launch
	batches    batches
	output     string
	kept       bool // the file has what was measured
}

func newSweep() *cobra.Command {
	m := bench.DefaultMethod()
	s := sweepFlags{benchFlags: benchFlags{device: deviceCUDA, seed: 1, contexts: m.Contexts, rounds: count(m.Rounds),
		tokens: count(m.Tokens)},
		batches: batches{contexts{1, 2, 4, 8, 16}}}
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Measure the share of the ceiling over context and batch",
		Long: `sweep measures a model at every context of a list with every batch of another:
the share of the GPU's streaming ceiling, which is measured right before, and of
single steps the median, the 99th percentile and the longest. It prints a table
and draws a heat map.

Batch 1 is decoded by the kernel of one row, to which --splits, --unsplit,
--merge, --held, --queries and --vectors go. A larger batch has a kernel of as
many rows, or with --rows N all have that of N. All sequences have the same
context. All kernels are compiled before the first of them runs.

What does not fit, into the model's positions or the GPU's memory, or fails, is
shown with the reason. The file of -o is written after every case: what it holds
is not measured again, so the same command goes on where it was interrupted.

With --reference each kernel is judged first, as by mkgen bench, and one that
does not pass the gate is not measured; a finished sweep then becomes a record.
Without, everything is marked UNGATED and none is written.

--device sim runs a small one on the CPU: it shows that all of it works, and no
speed.`,
		Example: `  mkgen sweep --model llama3.2-1b
  mkgen sweep --model llama3-8b --rows 16 --contexts 128,1024 -o out/8b.json
  mkgen plot out/8b.json -o out/8b.svg`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	s.choice.flags(cmd)
	s.machineFlag(cmd)
	f.StringVar(&s.checkpoint, "checkpoint", "", "`directory` with the model and its weights")
	f.Var(&s.seed, "random", "seed of random weights instead (default: the reference's, or 1)")
	f.Var(&s.contexts, "contexts", "tokens of each sequence in the KV cache when a round begins")
	f.Var(&s.batches, "batches", "sequences that decode together, up to 16")
	f.Var(&s.rounds, "rounds", "rounds of each case")
	f.Var(&s.tokens, "tokens", "tokens of a round, of each sequence")
	f.StringVar(&s.reference, "reference", "", "`directory` with the reference's logits")
	f.StringVar(&s.record, "record", "", "`file` for the record (default bench/results/GPU/DATE-sweep-MODEL.json)")
	f.StringVarP(&s.output, "output", "o", "", "JSON `file` that keeps what was measured (default out/sweep-MODEL.json)")
	f.StringVar(&s.plot, "plot", "", "SVG `file` for the heat map (default: that of -o, ending in .svg)")
	f.Var(&s.device, "device", "cuda or sim")
	f.Lookup("random").DefValue = ""
	_ = f.MarkHidden("profile") // there is such a flag; it is refused
	return cmd
}

// ofOneRow are the flags that only the kernel of one row heeds.
var ofOneRow = []string{"splits", "unsplit", "merge", "held", "queries", "vectors"}

// check refuses what does not go together, and completes what is open.
func (s *sweepFlags) check(cmd *cobra.Command) error {
	slices.Sort(s.contexts)
	slices.Sort(s.batches.contexts)
	given := cmd.Flags().Changed
	most := slices.Max(s.batches.contexts)
	switch {
	case given("profile"):
		return usagef("--profile does not go with sweep: a profile is of one number of rows, a sweep has several")
	case s.opts.MLP != megakernel.MLPRows:
		return usagef("--mlp %s does not go with sweep, whose rounds must choose the same tokens; want %s", s.opts.MLP,
			megakernel.MLPRows)
	case given("checkpoint") && given("random"):
		return usagef("--checkpoint and --random exclude each other")
	case given("record") && !given("reference"):
		return usagef("--record goes with --reference: speeds without a gate are no record")
	case s.opts.Attention != "" && given("reference"):
		return usagef("--attention and --reference exclude each other: the reference is of plain attention")
	case s.device == deviceSim && (given("record") || given("plot")):
		return usagef("--record and --plot go with a GPU: times of the executor are none of a GPU")
	case s.device == deviceSim:
		s.executorDefaults(given)
		if !given("batches") {
			s.batches.contexts = contexts{1, 2}
			most = 2
		}
	}
	s.besideOne = slices.Contains(s.batches.contexts, 1)
	for _, name := range ofOneRow {
		if given(name) && !s.besideOne {
			return usagef("--%s goes with the kernel of one row, which batch 1 has; --batches is %s", name, &s.batches.contexts)
		}
	}
	if given("rows") && s.opts.Tokens < most {
		return usagef("--rows: %d, but --batches has %d: a batch has at most as many sequences as its kernel has rows",
			s.opts.Tokens, most)
	}
	return configOfCheckpoint(cmd, s.checkpoint)
}

func (s *sweepFlags) run(cmd *cobra.Command) (err error) {
	if err := s.check(cmd); err != nil {
		return err
	}
	config, err := s.load(cmd)
	if err != nil {
		return err
	}
	on := &sweep.Suite{}
	of := &sweep.Sweep{Config: config, Rows: s.opts.Tokens, Measurer: on}
	if err := s.kernels(of); err != nil {
		return err
	}
	if of.Method, err = s.grid(config); err != nil {
		return err
	}
	if err := s.before(cmd, of); err != nil {
		return err
	}
	weights := &bench.Suite{Kernel: one(of), Method: of.Method}
	weights.Method.Contexts, _ = bench.Method{Contexts: s.contexts, Tokens: of.Method.Tokens,
		WarmUp: of.Method.WarmUp}.Fit(config)
	release, err := s.prepare(cmd, weights)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := s.describable(); err != nil {
		return err
	}
	machine, closeMachine, err := openBenchMachine(s.device, s.arch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeMachine()) }()
	if err := errors.Join(s.onItsGPU(machine.Facts()), s.recordable(machine.Facts())); err != nil {
		return err
	}
	s.measured(cmd, of, on, weights, machine)
	ctx, stop := interruptible(cmd.Context(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	r, err := of.Run(ctx)
	err = keeping(interrupted(ctx, errors.Join(err, on.Close())), s.output)
	if errors.Is(err, sweep.ErrOther) {
		return fmt.Errorf("--output %s: %w; remove it or name another file", s.output, err)
	}
	if r == nil {
		return err
	}
	return errors.Join(err, s.report(cmd.OutOrStdout(), of, r, err == nil))
}

// kernels builds one kernel for each number of rows. What has no kernel is a row of the
// sweep that says so, unless an option is outside its range or nothing can be built.
func (s *sweepFlags) kernels(of *sweep.Sweep) error {
	var problems []error
	for _, batch := range s.batches.contexts {
		rows := sweep.RowsFor(batch, s.opts.Tokens)
		if slices.ContainsFunc(of.Kernels, func(k sweep.Candidate) bool { return k.Rows == rows }) {
			continue
		}
		mk, err := s.kernel(of.Config, rows)
		if errors.As(err, new(usageError)) {
			return err
		}
		if err != nil {
			problems = append(problems, err)
		}
		of.Kernels = append(of.Kernels, sweep.Candidate{Rows: rows, Kernel: mk, Problem: err})
	}
	if len(problems) == len(of.Kernels) {
		return problems[0]
	}
	return nil
}

// kernel builds the kernel of n rows. Where one row is refused what several can have,
// the error says whose it is.
func (s *sweepFlags) kernel(config models.Config, rows int) (*megakernel.Kernel, error) {
	mk, err := megakernel.Build(config, s.optionsOf(config, rows))
	if err == nil {
		return mk, nil
	}
	if flag, _ := flagOf(err); rows == 1 && !slices.Contains(ofOneRow, flag) {
		if _, several := megakernel.Build(config, s.optionsOf(config, max(2, s.opts.Tokens))); several == nil {
			return nil, s.inFlagsOfOne(err, "batch 1 is measured in steps of one row")
		}
	}
	return nil, s.inFlags(err)
}

// optionsOf are the options of the kernel of n rows.
func (s *sweepFlags) optionsOf(config models.Config, rows int) megakernel.Options {
	o := s.options()
	if o.Tokens = rows; rows == 1 {
		o.Selection = false
	} else {
		o.Splits, o.Unsplit, o.Merge, o.Held, o.Queries, o.Vectors = 0, 0, megakernel.MergePhase, 0, "", ""
	}
	if s.of != nil {
		o = o.ForMachine(config, s.of)
	}
	return o
}

// one is a kernel of the sweep.
func one(of *sweep.Sweep) *megakernel.Kernel {
	for _, k := range of.Kernels {
		if k.Kernel != nil {
			return k.Kernel
		}
	}
	panic("BUG: a sweep without kernels")
}

// grid is how much is measured. A context beyond the model's positions is none of its
// business, unless there is no other.
func (s *sweepFlags) grid(c models.Config) (bench.Method, error) {
	m := bench.DefaultMethod()
	m.Contexts, m.Rounds, m.Tokens = s.contexts, int(s.rounds), int(s.tokens)
	if s.device == deviceSim {
		m.WarmUp = 0
	} else if problem := m.Refuse(); problem != "" {
		return m, usagef("sweep: %s", problem)
	}
	if fit, _ := m.Fit(c); len(fit) == 0 {
		return m, usagef("--contexts: a round of %s fits behind none of %s, the model was made for %d positions",
			plural.Of(m.Tokens, "token"), &s.contexts, c.MaxPositions)
	}
	return m, nil
}

// before finds the record of an earlier run.
func (s *sweepFlags) before(cmd *cobra.Command, of *sweep.Sweep) (err error) {
	if s.output == "" {
		s.output = filepath.Join("out", "sweep-"+of.Config.Name+".json")
	}
	if s.plot == "" {
		s.plot = strings.TrimSuffix(s.output, ".json") + ".svg"
	}
	files := []output{{flag: "output", path: s.output, own: true}}
	if s.device != deviceSim { // of which there is no other file
		files = append(files, output{flag: "plot", path: s.plot, ours: ourPlot},
			output{flag: "record", path: s.record, ours: ourSweep})
	}
	if err := checkOutputs(cmd, nil, files...); err != nil {
		return err
	}
	of.Before, err = sweep.ReadFile(s.output)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--output: %w; name another file", err)
	}
	return nil
}

// measured completes the sweep with what measures.
func (s *sweepFlags) measured(cmd *cobra.Command, of *sweep.Sweep, on *sweep.Suite, w *bench.Suite,
	machine bench.Machine) {
	facts := machine.Facts()
	*on = sweep.Suite{Machine: machine, Weights: w.Weights, WeightsName: w.WeightsName, Reference: w.Reference,
		Rules: gate.DefaultRules(), Method: of.Method, SMs: one(of).Options.SMs, Progress: progressOf(cmd, machine)}
	if !facts.Executor {
		on.Compiled = func(ctx context.Context, mk *megakernel.Kernel) (string, error) { return compiledFor(ctx, mk, s.arch) }
		if s.checkpoint == "" {
			on.Made = s.made
		}
	}
	of.Progress = on.Progress
	of.Save = func(r *sweep.Record) error {
		err := r.WriteFile(s.output)
		s.kept = err == nil
		return err
	}
	of.Setup = sweep.Setup{GPU: facts.GPU, Driver: facts.Driver, CUDA: facts.CUDA, Commit: revision.String(), Arch: s.arch,
		Weights: w.WeightsName, Gate: bench.Ungated, Contexts: s.contexts, Batches: s.batches.contexts}
	if w.Reference != nil {
		of.Setup.Gate = sweep.Gated
	}
}
