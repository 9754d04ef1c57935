package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/progress"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/tokenizer"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// runFlags are what mkgen run is told.
type runFlags struct {
	choice
	weights
	device       deviceName
	chat         bool
	serves       bool // any request may be a chat
	system       string
	maxTokens    count
	perLaunch    count
	kvTokens     count
	hang         patience
	with         compilerName
	fresh        bool
	strict       bool
	seed         seed
	sampling     sampling.Params
	draws        drawFlags
	stop         []string
	verbose      bool
	prompts      string
	many         bool // sequences run together, so the KV cache is to have room for all
	pin          count
	prefill      prefillWidth
	longest      int // bytes of the longest prompt that may come, where that is known
	prefillChunk count
	activations  prefillActivations
	lookup       bool
}

// The executor pretends to have few SMs and consumer warps where nothing is
// said: each more costs time.
const (
	simSMs       = 2
	simConsumers = 1
)

// cudaPatience is how long a GPU may take for a step where nothing is said: any
// model takes less than a second.
const cudaPatience = 10 * time.Second

// newRun is mkgen run.
func newRun() *cobra.Command {
	r := runFlags{device: defaultDevice, maxTokens: 256}
	cmd := &cobra.Command{
		Use:   "run [prompt]",
		Short: "Generate text, on a GPU or on the CPU",
		Long: `run continues a prompt ("-" reads it from standard input, but for a last
line break), or with --chat answers it. Standard output gets the generated text
and nothing else. Weights come from a Hugging Face checkpoint directory, from
the program itself for the models that are bundled with it, or from a random
generator; a model without a tokenizer takes and prints token ids. Ctrl-C ends
the generation; a second one ends the program at once.

With --prompts every line of a file is continued or answered, as many at a time
as a step has rows (--rows), and printed in the file's order as "[1] text". With
--rows and one prompt that many of its tokens are fed at a time.`,
		Example: `  mkgen run --model tiny "Once upon a time"
  mkgen run --model tiny --prompts prompts.txt --rows 8
  mkgen run --checkpoint path/to/Llama-3.2-1B-Instruct --chat --device cuda`,
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd, args) },
	}
	f := cmd.Flags()
	r.choice.flags(cmd)
	r.machineFlag(cmd)
	r.weights.flags(cmd)
	r.engineFlags(f)
	f.BoolVar(&r.chat, "chat", false, "use the chat template; without a prompt, a conversation on the terminal")
	f.StringVar(&r.system, "system", "", "`text` of the system message, with --chat")
	f.StringVar(&r.prompts, "prompts", "",
		"`file` of prompts, one a line but for empty ones, instead of one prompt; - for standard input")
	f.Var(&r.maxTokens, "max-tokens", "tokens to generate at most")
	r.draws.flags(f)
	f.Var(&r.seed, "seed", "of the draws: same seed, same text (default 0)")
	f.StringArrayVar(&r.stop, "stop", nil, "end before this `text`; may be repeated")
	f.BoolVarP(&r.verbose, "verbose", "v", false, "print figures to standard error")
	r.unsaid(f)
	return cmd
}

// engineFlags are the flags of the engine, of every command that generates.
func (r *runFlags) engineFlags(f *pflag.FlagSet) {
	f.Var(&r.device, "device",
		fmt.Sprintf("sim, the executor on the CPU (of %d SMs and %d consumer warp if nothing is said), or cuda, the first GPU", simSMs, simConsumers))
	f.Var(&r.pin, "pin-split", pinRequestUsage)
	f.Var(&r.prefill, "prefill", prefillUsage)
	f.Var(&r.prefillChunk, "prefill-chunk", prefillChunkUsage)
	f.Var(&r.activations, "prefill-activations", prefillActivationsUsage)
	f.BoolVar(&r.lookup, "prompt-lookup", false,
		fmt.Sprintf("guess text that the prompt or the answer had before, and verify guesses in steps of %d rows; with --rows, greedy requests only", engine.LookupRows))
	f.Var(&r.perLaunch, "tokens-per-launch", fmt.Sprintf("tokens a launch of the kernel chooses at most (default %d)",
		engine.DefaultTokensPerLaunch))
	f.Var(&r.kvTokens, "kv-tokens",
		fmt.Sprintf("tokens of prompt and text that there is room for, of all that run at a time (default %d for each, or what the model can)", engine.DefaultKVTokens))
	f.Var(&r.hang, "hang-timeout",
		fmt.Sprintf("give up a kernel that makes no step for so long, 0 for never (default %v on cuda, never on sim)",
			cudaPatience))
	f.Var(&r.with, "compiler", "of the kernel for cuda: nvcc or nvrtc (default: nvcc when it is there)")
	f.BoolVar(&r.fresh, "no-cache", false, "compile, and leave the cache of cubins alone")
	f.BoolVar(&r.strict, "strict", false,
		"run no kernel for cuda whose machine code could not be held against the program (mkgen compile)")
	f.Lookup("watchdog").Usage += " (default all)"
}

// unsaid takes away the default values that the flags' texts have in words.
func (r *runFlags) unsaid(f *pflag.FlagSet) {
	for _, name := range []string{"watchdog", "tokens-per-launch", "kv-tokens", "seed", "hang-timeout", "random",
		"pin-split", "prefill", "prefill-chunk", "request-timeout"} {
		if flag := f.Lookup(name); flag != nil {
			flag.DefValue = ""
		}
	}
}

// run does what the flags say.
func (r *runFlags) run(cmd *cobra.Command, args []string) error {
	if err := r.settle(cmd); err != nil {
		return err
	}
	prompt, asks, err := r.prompt(cmd, args)
	if err != nil {
		return err
	}
	lines, err := r.lines(cmd)
	if err != nil {
		return err
	}
	if r.longest = len(prompt); asks {
		r.longest = math.MaxInt
	}
	for _, line := range lines {
		r.longest = max(r.longest, len(line))
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	s, err := r.open(ctx, cmd)
	if err != nil {
		return interrupted(ctx, err)
	}
	s.out, s.err = streaming(cmd.OutOrStdout()), cmd.ErrOrStderr()
	if r.prompts != "" {
		err = s.together(ctx, lines)
	} else if asks {
		stop() // while nothing is generated Ctrl-C ends the program
		err = s.converse(cmd.Context(), cmd.InOrStdin())
	} else {
		err = s.once(ctx, prompt)
	}
	return errors.Join(err, s.Close())
}

// settle completes and checks the hang timeout, and refuses flags that exclude each other.
func (r *runFlags) settle(cmd *cobra.Command) error {
	switch {
	case r.lookup && r.pin > 0:
		return usagef("--prompt-lookup and --pin-split: want one of them: guesses decide which tokens come together")
	case r.lookup && r.opts.Tokens == 1:
		return usagef("--prompt-lookup goes with --rows of 2 and more: guesses are verified in rows of their own")
	case cmd.Flags().Changed("seed") && r.draws.temperature == 0:
		return usagef("--seed goes with --temperature above 0: with 0 nothing is drawn")
	}
	if !cmd.Flags().Changed("hang-timeout") && r.device == deviceCUDA {
		r.hang = patience(cudaPatience)
	}
	if cmd.Flags().Changed("hang-timeout") && r.hang > 0 && r.opts.Watchdog == megakernel.WatchNone {
		return usagef("--hang-timeout takes a kernel that can be told to leave: --watchdog grid or all")
	}
	return nil
}

// prompt is what to continue or answer; asks says that the user will be asked.
func (r *runFlags) prompt(cmd *cobra.Command, args []string) (prompt string, asks bool, err error) {
	terminal := isTerminal(cmd.InOrStdin())
	if err := r.refuse(); err != nil {
		return "", false, err
	}
	switch {
	case r.prompts != "":
		return "", false, r.refusePrompts(cmd, args)
	case r.pin > 0 && r.opts.Tokens < 2:
		return "", false, usagef("--pin-split goes with --rows: a kernel of one row cuts every sequence alike")
	case len(args) > 1:
		return "", false, usagef("%s takes one prompt, found %d arguments; put it in quotes", cmd.CommandPath(), len(args))
	case r.system != "" && !r.chat:
		return "", false, usagef("--system goes with --chat")
	case len(args) == 0 && r.chat && terminal:
		return "", true, nil
	case len(args) == 0:
		return "", false, usagef(`give a prompt, or "-" to read it from standard input`)
	}
	if args[0] != "-" {
		return args[0], false, nil
	}
	const most = 64 << 20
	data, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), most+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("standard input: more than %d bytes", most)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), false, err
}

// refuse refuses flags that no request can have.
func (r *runFlags) refuse() error {
	var err error
	if r.sampling, err = r.draws.params(uint64(r.seed)); err != nil {
		return err
	}
	for _, stop := range r.stop {
		if stop == "" || !utf8.ValidString(stop) {
			return usagef("--stop: found %q, want UTF-8 that is not empty", stop)
		}
	}
	return nil
}

// open makes the engine.
func (r *runFlags) open(ctx context.Context, cmd *cobra.Command) (_ *speaker, err error) {
	if r.device == deviceCUDA && !hasCUDA {
		return nil, errNoCUDA
	}
	w, err := r.find(cmd, &r.choice)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }() // the engine has them on the device
	if w.text == nil && (r.chat || len(r.stop) > 0) {
		return nil, errors.New("--chat and --stop need a tokenizer, which these weights do not come with")
	}
	if err := r.tellChat(cmd.ErrOrStderr(), w); err != nil {
		return nil, err
	}
	if note := w.noteFor(r.opts.Weights); note != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), note)
	}
	kernels, err := r.kernels(cmd, w.config)
	if err != nil {
		return nil, err
	}
	widest := kernels[0]
	if chunk := widest.ChunkTokens(); int(r.pin)%chunk != 0 {
		return nil, usagef("--pin-split: %s, want a multiple of the %d of a stage", plural.Of(int(r.pin), "token"), chunk)
	}
	how := deviceOptions{name: r.device, arch: r.arch, compile: r.compiler(),
		compiled: func(c *compile.Result) error { return r.compiled(cmd.ErrOrStderr(), c) }}
	devices, err := openDevices(ctx, kernels, how)
	if err != nil {
		return nil, err
	}
	o := engine.Options{Kernel: widest, Device: devices[0], Text: w.text, KVTokens: r.room(widest), Pin: int(r.pin),
		Lookup: r.lookup, TokensPerLaunch: int(r.perLaunch), HangTimeout: time.Duration(r.hang)}
	for i, mk := range kernels[1:] {
		o.Beside = append(o.Beside, runtime.Member{Kernel: mk, Device: devices[1+i]})
	}
	var e *engine.Engine
	if err = r.addPrefill(ctx, cmd.ErrOrStderr(), widest, devices[0], how, &o); err == nil {
		e, err = r.load(ctx, cmd.ErrOrStderr(), w, o)
	}
	if err != nil {
		for _, m := range o.Prefill {
			devices = append(devices, m.Device)
		}
		for _, d := range slices.Backward(devices) {
			err = errors.Join(err, d.Close())
		}
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return &speaker{Engine: e, flags: r, model: w.config, tokenizer: w.text}, nil
}

// tellChat refuses --chat where the chat template is missing or broken, before weights are loaded. A
// server goes on with completions, and says what it will refuse.
func (r *runFlags) tellChat(stderr io.Writer, w *found) error {
	if !r.chat && !r.serves {
		return nil
	}
	err := errors.New("the weights come without a tokenizer")
	if w.text != nil {
		err = canChat(w.text)
	}
	switch {
	case err != nil && r.chat:
		return fmt.Errorf("--chat: %w", err)
	case err != nil:
		fmt.Fprintf(stderr, "mkgen: /v1/chat/completions will be refused: %s\n", oneLine(err))
	}
	return nil
}

// canChat refuses a tokenizer whose chat template is missing or cannot render a question,
// before anything long is done. What a template refuses itself, it may take in other words.
func canChat(text *tokenizer.Tokenizer) error {
	template, err := text.ChatTemplate("")
	if err != nil {
		return err
	}
	_, err = template.Render([]tokenizer.Message{{Role: "user", Content: "?"}},
		tokenizer.ChatOptions{AddGenerationPrompt: true})
	if refusal := (*tokenizer.TemplateRefusal)(nil); errors.As(err, &refusal) {
		return nil
	}
	return err
}

// compiler is how kernels are compiled.
func (r *runFlags) compiler() compile.Options {
	return compile.Options{With: string(r.with), NoCache: r.fresh}
}

// load makes the engine of weights and all else; random weights of a GPU are made
// there. What takes time is shown.
func (r *runFlags) load(ctx context.Context, stderr io.Writer, w *found,
	o engine.Options) (_ *engine.Engine, err error) {
	if w.random && r.device == deviceCUDA {
		o.Weights, err = runtime.RandomCompiled(ctx, o.Kernel, uint64(r.random), r.arch, r.compiler())
		if err != nil {
			return nil, err
		}
		return engine.New(ctx, o)
	}
	load := runtime.LoadOptions{Check: r.check, Image: w.image}
	if w.image != nil {
		w.image.Note = func(text string) { fmt.Fprintf(stderr, "mkgen: %s\n", oneLine(errors.New(text))) }
	}
	if !r.verbose && r.device == deviceSim {
		o.Weights = runtime.FromTensors(w.tensors, load)
		return engine.New(ctx, o)
	}
	bar := progress.Start(stderr, "loading weights")
	load.Progress = bar.Set
	o.Weights = runtime.FromTensors(w.tensors, load)
	e, err := engine.New(ctx, o)
	if err != nil {
		bar.End(-1)
		return nil, err
	}
	bar.End(e.Loaded().Bytes)
	if r.verbose && e.Loaded().Image {
		fmt.Fprintln(stderr, "mkgen: the weights were packed already, in the image cache")
	}
	return e, nil
}

// compiled says what the compiler made, and what was wrong with the cache. Machine code that does not synchronise as
// the program does is a warning, and with --strict an error, as machine code of which nothing is known.
func (r *runFlags) compiled(w io.Writer, c *compile.Result) error {
	err := c.Held()
	switch {
	case err != nil && r.strict:
		return fmt.Errorf("--strict: %w", err)
	case err != nil && (r.verbose || !errors.Is(err, compile.ErrUnchecked)):
		fmt.Fprintf(w, "mkgen: warning: %s\n", oneLine(err))
	case err == nil && c.Machine.PTX && r.verbose:
		fmt.Fprintf(w, "mkgen: %s\n", compile.HeldPTX)
	}
	if c.Note != "" {
		fmt.Fprintf(w, "mkgen: %s\n", oneLine(errors.New(c.Note)))
	}
	if r.verbose {
		fmt.Fprintf(w, "mkgen: kernel of %d registers, %d bytes spilled, %d bytes; %s took %s; from the cache: %s\n",
			c.Registers, c.SpillBytes, c.Bytes, c.Compiler, seconds(c.Took), hit(c))
	}
	return nil
}
