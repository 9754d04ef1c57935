package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/spf13/cobra"
)

// compilerName is a flag that is one of the compilers; absent it is empty:
// nvcc when it is there, else NVRTC.
type compilerName string

func (c *compilerName) String() string { return string(*c) }

func (c *compilerName) Type() string { return "name" }

func (c *compilerName) want() string { return compile.Nvcc + " or " + compile.NVRTC }

func (c *compilerName) Set(s string) error {
	if s != compile.Nvcc && s != compile.NVRTC {
		return errors.New("unknown")
	}
	*c = compilerName(s)
	return nil
}

// newCompile is mkgen compile.
func newCompile() *cobra.Command {
	var (
		c       choice
		with    compilerName
		file    string
		fresh   bool
		all     bool
		strict  bool
		ptx     bool
		prefill prefillTokens
		inputs  prefillActivations
	)
	cmd := &cobra.Command{
		Use:   "compile",
		Short: "Compile the kernel to a cubin, and say what it came to",
		Long: `compile compiles the kernel with nvcc when it is there, else with NVRTC, or
takes it from the cache, and prints its registers, spills, size and compile
time. An error of the compiler comes with the line of the kernel and the Go
line that it was emitted by. NVRTC needs a mkgen built with scripts/build-cuda.

The machine code is held against the program: every fence, barrier, mbarrier
operation, bulk copy and ordered access must be there on every path, of the
same kind and scope, in the same order, and no access may have crossed one. A
difference is an error that names both sides. Without nvdisasm the PTX that the
machine code is made of is held so, and a line says that. Where that cannot be
done either, a line says why; with --strict that is an error, too.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			configs, err := c.configs(cmd, all)
			if err != nil {
				return err
			}
			if err := checkOutputs(cmd, nil, output{flag: "output", path: file, ours: ourCubin}); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			opt := compile.Options{With: string(with), NoCache: fresh, PTX: ptx}
			t := table.New("MODEL", "COMPILER", "ARCH", ">REGISTERS", ">BYTES SPILLED", ">CUBIN BYTES", ">COMPILE TIME",
				"CACHED", ">EVENTS HELD")
			for _, config := range configs {
				mk, err := megakernel.Build(config, c.chosen(config))
				if err != nil {
					return c.inFlags(err)
				}
				if prefill == 0 && inputs.coded() {
					return usagef("%s", activationsAlone)
				}
				if file != "" && prefill > 0 {
					return usagef("--output goes without --prefill, which makes more kernels")
				}
				if file != "" && mk.Graph != nil {
					return usagef("--output goes with --launch single: a graph has %d kernels", len(mk.Graph.Kernels))
				}
				kernels, err := namedKernels(mk, int(prefill), inputs.format())
				if err != nil {
					return err
				}
				for _, k := range kernels {
					r, err := compileKernel(ctx, k.name, k.Kernel, c.arch, opt)
					if err != nil {
						return err
					}
					events, err := eventsHeld(cmd.ErrOrStderr(), k.name, r, strict)
					if err != nil {
						return err
					}
					t.Row(k.name, r.Compiler, r.Arch, r.Registers, r.SpillBytes, r.Bytes, seconds(r.Took), hit(r), events)
					if r.Note != "" {
						fmt.Fprintf(cmd.ErrOrStderr(), "mkgen: %s: %s\n", k.name, oneLine(errors.New(r.Note)))
					}
					if file != "" {
						if err := r.WriteFile(file); err != nil {
							return fmt.Errorf("--output: %w", err)
						}
					}
				}
			}
			return t.Write(cmd.OutOrStdout(), "")
		},
	}
	c.flags(cmd)
	c.machineFlag(cmd)
	c.graphFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "every registered model, a row each")
	f.StringVarP(&file, "output", "o", "", "`file` to write the cubin to")
	f.Var(&with, "compiler", "nvcc or nvrtc (default: nvcc when it is there)")
	f.Var(&prefill, "prefill", "compile the prefill kernels, too, of steps of `n` tokens of as many sequences as there are rows")
	f.Lookup("prefill").DefValue = ""
	f.Var(&inputs, "prefill-activations", prefillActivationsUsage)
	f.BoolVar(&strict, "strict", false, "fail where the machine code cannot be held against the program")
	f.BoolVar(&ptx, "ptx", false, "hold the PTX against the program, as where there is no nvdisasm")
	f.BoolVar(&fresh, "no-cache", false, "compile, and leave the cache of cubins alone")
	return cmd
}

// namedKernel is a kernel and what messages call it.
type namedKernel struct {
	name string
	*ir.Kernel
}

// namedKernels are the kernels of a step, and the prefill kernels beside it of steps of prefill tokens where that is
// not 0: see megakernel.BuildPrefills.
func namedKernels(mk *megakernel.Kernel, prefill int, inputs pipeline.Format) (all []namedKernel, err error) {
	for _, k := range mk.Kernels() {
		name := mk.Config.Name
		if mk.Graph != nil {
			name += " " + k.Name
		}
		all = append(all, namedKernel{name, k})
	}
	if prefill > 0 {
		prefills, err := megakernel.BuildPrefills(mk, prefill, inputs)
		if err != nil {
			return nil, usagef("--prefill: %v", err)
		}
		for _, p := range prefills {
			all = append(all, namedKernel{fmt.Sprintf("%s prefill %d", mk.Config.Name, p.Options.Tokens), p.IR})
		}
	}
	return all, nil
}

// eventsHeld says how many synchronising instructions of a cubin stand for the program's, and "-" where nothing is
// known, which is a line on stderr or, with strict, an error. Machine code that does not synchronise as the program
// does is an error.
func eventsHeld(stderr io.Writer, name string, r *compile.Result, strict bool) (string, error) {
	err := r.Held()
	switch {
	case err == nil && r.Machine.PTX:
		fmt.Fprintf(stderr, "mkgen: %s: %s\n", name, compile.HeldPTX)
		fallthrough
	case err == nil:
		return strconv.Itoa(r.Machine.Events), nil
	case errors.Is(err, compile.ErrUnchecked) && !strict:
		fmt.Fprintf(stderr, "mkgen: %s: %s\n", name, oneLine(err))
		return "-", nil
	}
	return "", fmt.Errorf("%s: %w", name, err)
}

// configs are the models that a command with --all works on.
func (c *choice) configs(cmd *cobra.Command, all bool) ([]models.Config, error) {
	given := cmd.Flags().Changed
	if all && (given("model") || given("config")) {
		return nil, usagef("--all goes without --model and --config")
	}
	if all && given("profile") {
		return nil, usagef("--all and --profile exclude each other: a profile is of one model")
	}
	if all && given("output") {
		return nil, usagef("--all and --output exclude each other")
	}
	if !all {
		config, err := c.load(cmd)
		return []models.Config{config}, err
	}
	return models.Checked(), c.begin(cmd)
}

func compileKernel(ctx context.Context, name string, k *ir.Kernel, arch string,
	opt compile.Options) (*compile.Result, error) {
	src, err := compile.SourceOfKernel(name, k, arch)
	if err != nil {
		return nil, err
	}
	r, err := compile.Kernel(ctx, src, opt)
	if errors.Is(err, context.Canceled) {
		return nil, errors.New("interrupted; no cubin was written")
	}
	return r, err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// hit says whether the cache had the cubin, and how long looking took.
func hit(r *compile.Result) string {
	if !r.Cached {
		return "no"
	}
	return fmt.Sprintf("yes, %d ms", r.Elapsed.Milliseconds())
}
