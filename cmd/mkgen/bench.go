package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/internal/atomicfile"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/spf13/cobra"
)

// contexts is a flag that is a list of context lengths, each once; 0 is an empty cache.
type contexts []int

func (c *contexts) String() string {
	var words []string
	for _, n := range *c {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ",")
}

func (c *contexts) Type() string { return "list" }

func (c *contexts) want() string {
	return fmt.Sprintf("whole numbers from 0 to %d, each once, with commas between, such as 128,1024", 1<<contextBits-1)
}

// contextBits is what a context is read into, far beyond what any model was made for.
const contextBits = 24

func (c *contexts) Set(s string) error {
	var list []int
	for _, word := range strings.Split(s, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(word), 10, contextBits)
		if err != nil {
			return err
		}
		if slices.Contains(list, int(n)) {
			return errors.New("twice the same")
		}
		list = append(list, int(n))
	}
	*c = list
	return nil
}

// benchFlags are what mkgen bench asks for beside the kernel.
type benchFlags struct {
	choice
	device                    deviceName
	checkpoint, reference     string
	record, cases, plot       string
	seed                      seed
	contexts                  contexts
	rounds, tokens, perLaunch count
	withBudget                bool
	prefill                   prefillTokens
	cached                    count
	activations               prefillActivations
	attention                 count // sequences
	machine                   machineFlags
	ablate                    ablateFlags
	server                    serveBenchFlags
	draws                     drawFlags
	sampling                  sampling.Params
}

func newBench() *cobra.Command {
	m := bench.DefaultMethod()
	b := benchFlags{device: deviceCUDA, seed: 1, contexts: m.Contexts, rounds: count(m.Rounds), tokens: count(m.Tokens)}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast the kernel decodes, beside the streaming ceiling",
		Long: `bench runs the kernel at batch 1 on a GPU: right before each context length the
streaming ceiling of that GPU, then rounds of tokens. With --reference it first
judges the kernel, and kernels with planted faults, against logits of Hugging
Face transformers (tests/gpu/reference.py writes them) and, when that gate is
passed, writes a record. Without, the speeds are marked UNGATED and none is
written.

With --temperature, rounds whose tokens are drawn are measured beside greedy
ones, by the same kernel, and rounds with penalties and a bias, with 20
log-probabilities, and with a mask for each token beside both.

With --rows a kernel is measured whose steps have n query rows: each a
sequence's that decodes, and all of them one sequence's, beside a step of the
kernel of one row at the same context (under --attention mask without it).

--budget measures, instead, where a step's time goes: launches of a kernel that
notes what its SMs do (mkgen trace) are put beside what is predicted for the
machine, phase by phase, and beside the kernel without a trace.

--ablate measures, instead, variants of the kernel that differ from it in one
thing each (a sync, leads, chunks held in registers, copies in flight, the
ring, consumers, splits, the MLP, the watchdog), in turns with it, and says
whether they compute the same bits, or not even the same from run to run.

--prefill measures, instead, the time to the first token of prompts, of the
lengths in --contexts: they go through a kernel that takes n tokens at a
time, behind --cached tokens. Before that its logits are compared with those of
kernels without it, and with --reference with transformers', as are keys and
values; no record is written.

--prefill-attention measures, instead, causal attention alone, as the prefill
kernel has it: of n prompts at once, of the lengths in --contexts, with the
heads of the model and pages of --page tokens. It copies pages of fewer than 8
tokens, which the prefill kernel gathers. Outputs are compared with float64 on
a sample; bench/attention.py puts PyTorch beside it.

--serve measures, instead, a server (mkgen serve, or any that answers OpenAI's
interface) by a load generator, bench_serving of sglang: time to the first
token, per token and between tokens, at each concurrency and length.

--device sim runs the same on the CPU, for small models: it shows that all of it
works, and no speed.`,
		Example: `  mkgen bench --model llama3-8b --random 1 --plot out/8b.svg
  mkgen bench --model llama3.2-1b --reference out/ref-1b
  mkgen bench --model llama3-8b --rows 8 --contexts 1024 --reference out/8b
  mkgen bench --model llama3-8b --budget --machine out/machine.json
  mkgen bench --model llama3-8b --ablate -o out/ablate.json
  mkgen bench --serve http://127.0.0.1:8000 --checkpoint DIR --served-name NAME
  mkgen bench --model tiny --device sim`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.server.url != "" {
				return b.served(cmd)
			}
			return b.run(cmd)
		},
	}
	f := cmd.Flags()
	b.choice.flags(cmd)
	b.choice.graphFlags(cmd)
	b.server.flags(cmd)
	f.StringVar(&b.checkpoint, "checkpoint", "", "`directory` with the model and its weights")
	f.Var(&b.seed, "random", "seed of random weights instead (default: the reference's, or 1)")
	f.Lookup("random").DefValue = ""
	f.Var(&b.contexts, "contexts", "tokens in the KV cache when a round begins")
	f.Var(&b.rounds, "rounds", "rounds of each context")
	f.Var(&b.tokens, "tokens", "tokens of a round")
	f.Var(&b.perLaunch, "tokens-per-launch", "tokens that a launch chooses (default: a whole round)")
	f.StringVar(&b.reference, "reference", "", "`directory` with the reference's logits")
	f.StringVar(&b.record, "record", "", "`file` for the record (default bench/results/GPU/DATE-decode-MODEL.json)")
	f.StringVar(&b.cases, "cases", "", "JSON `file` for what was measured, gated or not: for other programs, no record")
	f.StringVar(&b.plot, "plot", "", "SVG `file` to draw time per token against context into")
	f.BoolVar(&b.withBudget, "budget", false,
		"measured beside predicted, phase by phase; of 3 tokens and context 1024 where nothing is said")
	f.Var(&b.prefill, "prefill",
		"time to a prompt's first token through a prefill kernel of steps of n tokens, instead")
	f.Lookup("prefill").DefValue = ""
	f.Var(&b.cached, "cached", "with --prefill: tokens of the cache before each prompt, whose time does not count")
	f.Lookup("cached").DefValue = ""
	f.Var(&b.activations, "prefill-activations", prefillActivationsUsage)
	f.Var(&b.attention, "prefill-attention",
		"causal attention of `n` prompts at once, alone, with the model's heads, instead")
	f.Lookup("prefill-attention").DefValue = ""
	b.machine.fileFlag(cmd)
	b.ablate.flags(cmd)
	b.draws.flags(f)
	f.Var(&b.device, "device", "cuda or sim")
	f.Lookup("tokens-per-launch").DefValue = ""
	return cmd
}

// executorDefaults are what the executor gets when the flags do not say.
func (b *benchFlags) executorDefaults(given func(string) bool) {
	if !given("sms") {
		b.opts.SMs = 2
	}
	if !given("contexts") {
		b.contexts = contexts{16}
	}
	if b.opts.Tokens > 1 && !given("tokens") {
		b.tokens = 1
	}
	if !given("rounds") {
		b.rounds = 1
	}
	if !given("tokens") {
		b.tokens = 2
	}
}

// method is what is asked for; contexts that the model has no positions for are
// left out, or refused where they were asked for by name.
func (b *benchFlags) method(cmd *cobra.Command, c models.Config) (m bench.Method, beyond []int, err error) {
	m = bench.DefaultMethod()
	m.Contexts, m.Rounds, m.Tokens = b.contexts, int(b.rounds), int(b.tokens)
	if b.device == deviceSim {
		m.WarmUp = 0
	} else if problem := m.Refuse(); problem != "" {
		return m, nil, usagef("bench: %s", problem)
	}
	m.Contexts, beyond = m.Fit(c)
	switch {
	case len(beyond) > 0 && cmd.Flags().Changed("contexts"):
		return m, nil, usagef("--contexts: %d and a round of %s, the model was made for %d positions", beyond[0],
			plural.Of(m.Tokens, "token"), c.MaxPositions)
	case len(m.Contexts) == 0:
		return m, nil, usagef("--tokens: a round of %s fits behind no context of %s, the model was made for %d positions",
			plural.Of(m.Tokens, "token"), &b.contexts, c.MaxPositions)
	}
	return m, beyond, nil
}

// check refuses what does not go together, and completes what is open.
func (b *benchFlags) check(cmd *cobra.Command) error {
	var err error
	if b.sampling, err = b.draws.params(uint64(b.seed)); err != nil {
		return err
	}
	b.opts.Draws = b.opts.Draws || !b.sampling.Greedy()
	switch given := cmd.Flags().Changed; {
	case !b.sampling.Greedy() && (b.withBudget || b.ablate.on || b.prefill > 0):
		return usagef("--temperature goes without --budget, --ablate and --prefill")
	case given("checkpoint") && given("random"):
		return usagef("--checkpoint and --random exclude each other")
	case b.prefill == 0 && given("cached"):
		return usagef("--cached goes with --prefill")
	case b.prefill == 0 && b.activations.coded():
		return usagef("%s", activationsAlone)
	case given("record") && !given("reference") && !b.withBudget:
		return usagef("--record goes with --reference: speeds without a gate are no record")
	case b.opts.Tokens > 1 && (given("plot") || given("tokens-per-launch") || given("splits")):
		return usagef("--plot, --tokens-per-launch and --splits go with one row")
	case b.device == deviceSim && (given("record") || given("plot")):
		return usagef("--record and --plot go with a GPU: times of the executor are none of a GPU")
	case b.device == deviceSim:
		b.executorDefaults(given)
	}
	switch {
	case b.attention > 0:
		return b.checkPrefillAttention(cmd)
	case b.prefill > 0:
		return b.checkPrefill(cmd)
	case b.ablate.on:
		return b.checkAblate(cmd)
	case cmd.Flags().Changed("time") || cmd.Flags().Changed("output"):
		return usagef("--time and --output go with --ablate")
	case b.withBudget:
		return b.checkBudget(cmd)
	}
	return nil
}

func (b *benchFlags) run(cmd *cobra.Command) (err error) {
	if err := b.check(cmd); err != nil {
		return err
	}
	if err := configOfCheckpoint(cmd, b.checkpoint); err != nil {
		return err
	}
	of, err := b.machine.of(cmd, &b.choice)
	if err != nil {
		return err
	}
	if b.attention > 0 {
		return b.prefillAttention(cmd)
	}
	if b.prefill > 0 {
		return b.prefills(cmd)
	}
	if b.withBudget {
		return b.budget(cmd, of)
	}
	if b.ablate.on {
		return b.runAblation(cmd)
	}
	config, err := b.load(cmd)
	if err != nil {
		return err
	}
	mk, beside, err := b.kernels(config)
	if err != nil {
		return err
	}
	s := &bench.Suite{Kernel: mk, PerLaunch: int(b.perLaunch), Rules: gate.DefaultRules()}
	if !b.sampling.Greedy() {
		s.Choices = bench.BesideGreedy(b.sampling)
	}
	if b.checkpoint == "" && b.device == deviceCUDA {
		s.Made = func(ctx context.Context) (runtime.Weights, error) { return b.made(ctx, mk) }
	}
	var beyond []int
	if s.Method, beyond, err = b.method(cmd, mk.Config); err != nil {
		return err
	}
	if err := checkOutputs(cmd, nil, output{flag: "cases", path: b.cases, ours: ourRecord(b.reference != "")},
		output{flag: "plot", path: b.plot, ours: ourPlot},
		output{flag: "record", path: b.record, ours: ourRecord(true)}); err != nil {
		return err
	}
	release, err := b.prepare(cmd, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := b.describable(); err != nil {
		return err
	}
	machine, closeMachine, err := openBenchMachine(b.device, b.arch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeMachine()) }()
	if err := errors.Join(b.isOf(machine.Facts()), b.recordable(machine.Facts())); err != nil {
		return err
	}
	s.Machine, s.Progress = machine, progressOf(cmd, machine)
	ctx, stop := interruptible(cmd.Context(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	o, err := b.measure(ctx, s, beside)
	if err != nil {
		return interrupted(ctx, err)
	}
	if len(beyond) > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "Not measured: contexts %v, the model was made for %d positions.\n", beyond,
			mk.Config.MaxPositions)
	}
	return b.report(cmd.OutOrStdout(), s, o)
}

// load is choice.load, and makes the kernel's format that of a checkpoint's own codes where no other is asked for. With
// --reference, which is of widened weights, it does not.
func (b *benchFlags) load(cmd *cobra.Command) (models.Config, error) {
	config, err := b.choice.load(cmd)
	if err != nil || b.checkpoint == "" || b.reference != "" {
		return config, err
	}
	m, note, err := openModel(b.checkpoint, b.reading())
	if err != nil {
		return config, err
	}
	_, _, err = b.withCodes(cmd, m, note)
	return config, errors.Join(err, m.Close())
}

// build is choice.build of what load makes of a checkpoint.
func (b *benchFlags) build(cmd *cobra.Command) (*megakernel.Kernel, error) {
	config, err := b.load(cmd)
	if err != nil {
		return nil, err
	}
	return b.built(config)
}

// describable refuses to make a record with a program that no commit describes.
func (b *benchFlags) describable() error {
	if c := revision.String(); b.reference != "" && b.device == deviceCUDA &&
		(c == "unknown" || strings.HasSuffix(c, "+modified")) {
		return fmt.Errorf("--reference: a record names the commit it is of, and this mkgen was built of a tree that no commit describes (%s)", c)
	}
	return nil
}

// results is where records are by default.
const results = "bench/results"

// recordable refuses, before anything is measured, a record that cannot be written where
// it goes by default.
func (b *benchFlags) recordable(facts bench.Facts) error {
	if b.reference == "" || b.record != "" || facts.Executor {
		return nil
	}
	if err := atomicfile.Check(bench.Path(results, facts.GPU, "record", time.Now())); err != nil {
		return fmt.Errorf("--record names another file: %w", err)
	}
	return nil
}
