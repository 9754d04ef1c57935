package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/atomicfile"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/trace"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/spf13/cobra"
)

// traceFlags are what mkgen trace asks for beside the kernel.
type traceFlags struct {
	benchFlags  // choice, device, checkpoint and seed only
	context     index
	steps       count
	spans       count
	page        string
	chrome, svg string
	chromeSteps count
	fewer       int // stages of the ring that the trace takes, with the kernel beside it that has none
}

func newTrace() *cobra.Command {
	t := traceFlags{benchFlags: benchFlags{device: deviceCUDA, seed: 1}, context: 1024, steps: 3, chromeSteps: 1}
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Record what every SM does in a step, and when",
		Long: fmt.Sprintf(`trace runs a kernel that notes when each SM begins and ends its phases and their
parts, its waits for chunks, stages and copies, and its syncs: first a
launch that warms up, then %d, on the executor one, of which the last is shown.
It prints what a step is made of and writes a page to look at: where the SMs
wait, for what, how unevenly, and how full the ring was. --chrome writes the
last step for Perfetto or chrome://tracing.

Of the warps of a role one notes. A kernel without a trace has no instruction
for it; on a GPU both are timed, and what the trace costs is printed.

--device sim traces the executor, for small models: times are then steps of its
scheduler, an order and no speed.`, bench.RecordedLaunches),
		Example: `  mkgen trace --model llama3-8b --context 1024
  mkgen trace --model llama3-8b --rows 8 --chrome out/8b.json
  mkgen trace --model tiny --device sim -o out/tiny.html`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return t.run(cmd) },
	}
	f := cmd.Flags()
	t.choice.flags(cmd)
	t.machineFlag(cmd)
	f.StringVar(&t.checkpoint, "checkpoint", "", "`directory` with the model and its weights")
	f.Var(&t.seed, "random", "seed of random weights instead (default 1)")
	f.Var(&t.context, "context",
		"tokens in the KV cache when the launch begins, 0 or as many as the model has positions for at most")
	f.Var(&t.steps, "steps", "steps of the launch")
	f.Var(&t.spans, "spans", "spans that a role of an SM can note (default: what the steps take)")
	f.StringVarP(&t.page, "output", "o", "", "HTML `file` for the page (default out/trace-MODEL.html)")
	f.StringVar(&t.chrome, "chrome", "", "JSON `file` for Perfetto or chrome://tracing, compressed if it ends in .gz")
	f.Var(&t.chromeSteps, "chrome-steps", "how many of the last steps that file has")
	f.StringVar(&t.svg, "svg", "", "SVG `file` for the timeline alone")
	f.Var(&t.device, "device", "cuda or sim")
	for _, name := range []string{"random", "spans"} {
		f.Lookup(name).DefValue = ""
	}
	return cmd
}

// check refuses what does not go together, and completes what is open.
func (t *traceFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if given("checkpoint") && given("random") {
		return usagef("--checkpoint and --random exclude each other")
	}
	if t.device == deviceSim {
		if !given("sms") {
			t.opts.SMs = 2
		}
		if !given("context") {
			t.context = 16
		}
		if !given("steps") {
			t.steps = 2
		}
	}
	return configOfCheckpoint(cmd, t.checkpoint)
}

func (t *traceFlags) run(cmd *cobra.Command) (err error) {
	if err := t.check(cmd); err != nil {
		return err
	}
	plain, mk, err := t.kernels(cmd)
	if err != nil {
		return err
	}
	if t.page == "" {
		t.page = filepath.Join("out", "trace-"+mk.Config.Name+".html")
	}
	if err := checkOutputs(cmd, nil, output{flag: "output", path: t.page, ours: ourPage, ext: ".html"},
		output{flag: "chrome", path: t.chrome, ours: ourChrome},
		output{flag: "svg", path: t.svg, ours: ourSVG, ext: ".svg"}); err != nil {
		return err
	}
	s := &bench.Suite{Kernel: mk}
	release, err := t.prepare(cmd, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	machine, closeMachine, err := openBenchMachine(t.device, t.arch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeMachine()) }()
	if err := t.onItsGPU(machine.Facts()); err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	s.Machine, s.Progress = machine, progressOf(cmd, machine)
	r, err := t.record(ctx, s)
	if err != nil {
		return interrupted(ctx, err)
	}
	without := r
	if !machine.Facts().Executor {
		s.Kernel = plain
		if without, err = t.record(ctx, s); err != nil {
			return interrupted(ctx, err)
		}
	}
	return t.report(cmd, mk, machine.Facts(), r, without.Micros)
}

// kernels builds the kernel without a trace, and with room for the spans.
func (t *traceFlags) kernels(cmd *cobra.Command) (plain, traced *megakernel.Kernel, err error) {
	config, err := t.load(cmd)
	if err != nil {
		return nil, nil, err
	}
	o := t.chosen(config)
	if plain, err = megakernel.Build(config, o); err != nil {
		return nil, nil, t.inFlags(err)
	}
	if room := config.MaxPositions - int(t.steps); !cmd.Flags().Changed("context") && room >= 0 {
		t.context = min(t.context, index(room))
	}
	if last := int(t.context) + int(t.steps); last > config.MaxPositions {
		return nil, nil, t.beyond(cmd, config.MaxPositions)
	}
	if o.Trace = int(t.spans); o.Trace == 0 {
		o.Trace = plain.TraceSpans(int(t.context), int(t.steps))
	}
	if traced, err = megakernel.Build(config, o); err != nil || traced.Plan.Stages == plain.Plan.Stages {
		return plain, traced, t.inFlags(err)
	}
	// A trace takes some shared memory: what it costs is told beside a ring like its own.
	t.fewer = plain.Plan.Stages - traced.Plan.Stages
	o.Trace, o.Stages = 0, traced.Plan.Stages
	plain, err = megakernel.Build(config, o)
	return plain, traced, t.inFlags(err)
}

// beyond refuses a launch that the model has too few positions for. Steps that leave no room
// for any context are too many, whatever the context.
func (t *traceFlags) beyond(cmd *cobra.Command, positions int) error {
	steps := "steps"
	if t.withBudget {
		steps = "tokens"
	}
	if int(t.steps) > positions {
		return usagef("--%s: found %d, want 1 to %d: the model was made for %[3]d positions", steps, t.steps, positions)
	}
	return usagef("--context: found %d, want 0 to %d with %s: the model was made for %d positions", t.context,
		positions-int(t.steps), plural.Of(int(t.steps), "step"), positions)
}

// record runs the launches of s's kernel.
func (t *traceFlags) record(ctx context.Context, s *bench.Suite) (*bench.Recording, error) {
	made := t.checkpoint == "" && t.device == deviceCUDA
	if !s.Kernel.Ragged() {
		if made {
			s.Made = func(ctx context.Context) (runtime.Weights, error) { return t.made(ctx, s.Kernel) }
		}
		return s.Record(ctx, int(t.context), int(t.steps))
	}
	r := &bench.RaggedSuite{Machine: s.Machine, Kernel: s.Kernel, Weights: s.Weights, WeightsName: s.WeightsName,
		Progress: s.Progress}
	if made {
		r.Made = t.made
	}
	return r.Record(ctx, int(t.context), int(t.steps))
}

// decode makes a trace of what a launch of a traced kernel left.
func (t *traceFlags) decode(mk *megakernel.Kernel, facts bench.Facts, r *bench.Recording) (*trace.Trace, error) {
	tr, err := trace.Decode(r.Spans, r.Heads, mk.Traced, mk.Config.Layers)
	if err != nil {
		return nil, err
	}
	tr.Model, tr.Device, tr.Stages = mk.Config.Name, facts.GPU, mk.Plan.Stages
	if facts.Executor {
		tr.Unit = trace.Steps
	} else {
		tr.Align()
	}
	return tr, tr.Check()
}

// tellStages says where the kernels that were timed have fewer stages than one that is not
// traced has by the same options.
func (t *traceFlags) tellStages(w io.Writer, mk *megakernel.Kernel) {
	if t.fewer > 0 {
		table.Text(w, "", "The trace takes shared memory: the ring has %s, with and without it, where the kernel has %d otherwise.", plural.Of(mk.Plan.Stages, "stage"), mk.Plan.Stages+t.fewer)
	}
}

// writeChrome writes what --chrome asks for.
func (t *traceFlags) writeChrome(w io.Writer, tr *trace.Trace) error {
	if !strings.EqualFold(filepath.Ext(t.chrome), ".gz") {
		return tr.WriteChrome(w, int(t.chromeSteps))
	}
	z := gzip.NewWriter(w)
	return errors.Join(tr.WriteChrome(z, int(t.chromeSteps)), z.Close())
}

// report writes the files, and prints the summary.
func (t *traceFlags) report(cmd *cobra.Command, mk *megakernel.Kernel, facts bench.Facts, r *bench.Recording,
	without float64) error {
	tr, err := t.decode(mk, facts, r)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "A launch of %s that begins with %s in the cache.\n", plural.Of(int(t.steps), "step"),
		plural.Of(int(t.context), "token"))
	if !facts.Executor {
		table.Text(w, "", "With the trace a step takes %.1f µs, without %.1f: %+.2f %%, medians of the launches of this run, ungated.", r.Micros, without, 100*(r.Micros/without-1))
	}
	provenance(w, facts, mk)
	t.tellStages(w, mk)
	fmt.Fprintln(w)
	if err := tr.Summarize().WriteTable(w); err != nil {
		return err
	}
	for _, f := range []struct {
		path, what string
		write      func(*bytes.Buffer) error
	}{
		{t.page, "Page", func(b *bytes.Buffer) error { return tr.WritePage(b) }},
		{t.chrome, "Chrome trace", func(b *bytes.Buffer) error { return t.writeChrome(b, tr) }},
		{t.svg, "Timeline", func(b *bytes.Buffer) error { return tr.WriteSVG(b) }},
	} {
		if f.path == "" {
			continue
		}
		var b bytes.Buffer
		if err := f.write(&b); err != nil {
			return err
		}
		if err := atomicfile.Write(f.path, b.Bytes()); err != nil {
			return err
		}
		fmt.Fprintf(w, "%s written to %s\n", f.what, f.path)
	}
	return nil
}
