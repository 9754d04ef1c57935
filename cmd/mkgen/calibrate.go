package main

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/lab/bench/calibrate"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/spf13/cobra"
)

// calibrateFlags are what mkgen calibrate asks for.
type calibrateFlags struct {
	choice // arch only
	device deviceName
	output string
}

func newCalibrate() *cobra.Command {
	c := calibrateFlags{device: deviceCUDA}
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Measure the GPU at hand, for predictions and syncs",
		Long: `calibrate measures what the time of a step follows from on the GPU at hand: the
streaming ceiling; what streams with 1 to 6 copies in flight, and the latency of
a load from L2 and of an atomic meanwhile and idle; what an exchange among all
SMs takes, idle and beside a stream, and how much of it the ring does not hide,
behind a barrier and in LL packets; how fast consumers drain the ring. It
takes about half a minute, most of it to compile the kernels that measure.

It writes a machine file. With --machine mkgen, mkgen explain and mkgen bench
choose syncs by it, and predict with it. Nothing else should use the GPU
meanwhile.

--device sim measures the executor: it shows that all of it works, and its
figures mean nothing.`,
		Example: `  mkgen calibrate -o out/h200.json
  mkgen explain --model llama3-8b --machine out/h200.json
  mkgen bench --model llama3-8b --budget --machine out/h200.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&c.output, "output", "o", "out/machine.json", "JSON `file` of the machine")
	f.StringVar(&c.arch, "arch", "sm_90a", "GPU `architecture`")
	f.Var(&c.device, "device", "cuda or sim")
	return cmd
}

func (c *calibrateFlags) run(cmd *cobra.Command) (err error) {
	if err := c.begin(cmd); err != nil {
		return err
	}
	if err := checkOutputs(cmd, nil, output{flag: "output", path: c.output, ours: ourMachine}); err != nil {
		return err
	}
	begin := time.Now()
	gpu, closeMachine, err := openBenchMachine(c.device, c.arch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeMachine()) }()
	ctx, stop := interruptible(cmd.Context(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	s := &calibrate.Suite{Machine: gpu, Commit: revision.String(), Date: begin.UTC().Format(time.DateOnly),
		Progress: progressOf(cmd, gpu)}
	m, err := s.Run(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	if err := m.WriteFile(c.output); err != nil {
		return err
	}
	return c.report(cmd, m, time.Since(begin))
}

// report prints what was measured, and how the file is used.
func (c *calibrateFlags) report(cmd *cobra.Command, m *machine.Machine, took time.Duration) error {
	w := cmd.OutOrStdout()
	if m.Executor {
		fmt.Fprintf(w, "The executor with %d SMs: its figures mean nothing\n\n", m.SMs)
	}
	if err := m.WriteTable(w); err != nil {
		return err
	}
	if m.Executor {
		_, err := fmt.Fprintf(w,
			"Written to %s in %.1f s; nothing is chosen by it, and mkgen explain predicts nothing with it.\n", c.output,
			took.Seconds())
		return err
	}
	_, err := fmt.Fprintf(w,
		"Written to %s in %.1f s; to use it:\n  mkgen explain --model NAME --machine %s\n  mkgen bench --model NAME --budget --machine %s\n", c.output, took.Seconds(), quoted(c.output), quoted(c.output))
	return err
}
