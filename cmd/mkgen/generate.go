package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/verify"
	"github.com/spf13/cobra"
)

// newRoot is the command without a name after mkgen, which generates, and all
// others below it; check is what mkgen verify runs.
func newRoot(check verify.Checker) *cobra.Command {
	var (
		c     choice
		dir   string
		quiet bool
		m     machineFlags
	)
	root := &cobra.Command{
		Use:   "mkgen",
		Short: "Write the CUDA kernel of a model's whole decode step, and its Go host package",
		Long: `mkgen writes one CUDA kernel that runs a whole decode step of a Llama-family
model at batch 1, a Go package that launches it, and its layout as JSON. It
needs neither a GPU nor CUDA.`,
		Example: `  mkgen --model llama3-8b
  mkgen --config path/to/config.json -o out/mine --sms 114`,
		Args:          noArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return notEmpty(cmd)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			start := time.Now()
			of, err := m.of(cmd, &c)
			if err != nil {
				return err
			}
			mk, err := c.build(cmd)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("output") {
				dir = filepath.Join("out", mk.Config.Name)
			}
			files, err := mk.Files(c.arch)
			if err != nil {
				return err
			}
			if dir == "-" {
				return writeKernel(cmd.OutOrStdout(), files)
			}
			if err := write(cmd.Context(), dir, files); err != nil || quiet {
				return err
			}
			if err := mk.Summary(cmd.OutOrStdout(), of); err != nil {
				return err
			}
			return listFiles(cmd.OutOrStdout(), dir, files, time.Since(start))
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(flagError)
	groupedHelp(root)
	f := root.Flags()
	f.StringVarP(&dir, "output", "o", "", "`directory` to write, replaced if mkgen made it (default out/MODEL); -: the kernel's text, to standard output")
	c.flags(root)
	m.flags(root)
	f.BoolVarP(&quiet, "quiet", "q", false, "print nothing but errors")
	root.SetHelpCommand(newHelp())
	root.AddCommand(newModels(), newDescribe(), newExplain(), newIR(), newCompile(), newVerify(check), newRun(),
		newServe(), newQuantize(), newBench(), newSweep(), newCalibrate(), newTune(), newTrace(), newPlot(), newTuning())
	return root
}

// newHelp is mkgen help; cobra's own ends with 0 for a command there is not.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err == nil {
				err = noArgs(of, rest)
			}
			if err != nil {
				return err
			}
			of.InitDefaultHelpFlag()
			of.InitDefaultVersionFlag()
			return of.Help()
		},
	}
}

// write writes the files, all or none, also when the user interrupts.
func write(ctx context.Context, dir string, files []megakernel.File) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := megakernel.WriteDir(ctx, dir, files)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted; nothing was written to %s", dir)
	}
	return err
}

// writeKernel writes the kernel's text alone.
func writeKernel(w io.Writer, files []megakernel.File) error {
	i := slices.IndexFunc(files, func(f megakernel.File) bool { return f.Name == emit.KernelFile })
	_, err := w.Write(files[i].Data)
	return err
}

func listFiles(w io.Writer, dir string, files []megakernel.File, took time.Duration) error {
	t := table.New("file", ">bytes")
	for _, f := range files {
		t.Row(f.Name, len(f.Data))
	}
	if _, err := fmt.Fprintf(w, "\nWritten to %s in %.2f s\n", dir, took.Seconds()); err != nil {
		return err
	}
	return t.Write(w, "  ")
}
