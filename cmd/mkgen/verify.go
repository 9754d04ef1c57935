package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/internal/jsonfile"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/progress"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/verify"
	"github.com/mkgen/mkgen/megakernel/verify/explore"
	"github.com/mkgen/mkgen/megakernel/verify/skeleton"
	"github.com/mkgen/mkgen/models"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newVerify is mkgen verify; check is nil in a build that cannot.
func newVerify(check verify.Checker) *cobra.Command {
	var c choice
	seeds, steps := count(4), count(3)
	var pin count
	var prefill prefillTokens
	var activations prefillActivations
	seed := count(1)
	var policy string
	var plan, races, lines, spin bool
	var executions count
	var record, keep string
	kernel := pflag.NewFlagSet("", pflag.ContinueOnError) // flags of the kernel
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Run the kernel, shrunk, on the CPU: values, races, deadlocks",
		Long: `verify builds the model's kernel with the same templates, roles, syncs and
options and with sizes that the CPU can run, executes it under several
schedules, and compares its values with a reference. Of the kernel as it is,
with its own sizes, it proves that no address overflows or leaves its buffer,
for sequences of up to a million tokens. It exits with 1 when anything is
found.

With --skeleton it runs two layers and the LM head of the kernel at its real
sizes instead, on all SMs, without data: every copy of weights and of the KV
cache, every store of a new token and every LL packet is compared with a
computation of its own, at contexts of 100, 5000 and 33000 tokens.

With --explore it runs small subjects (the ring, step_ready and step_ack, grid
barriers, LL packets, turns of warpgroups, registers that move) in every order
of their synchronising operations, and then a step of one layer of the model's
kernel on 2 SMs in as many executions as are said. It prints how many there
were, and whether that was all.

With --spin it explores the small subjects and planted faults, has the model
checker SPIN search models written from the same kernels, and prints both
verdicts. It needs spin and cc on PATH (Debian: apt install spin gcc).`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := verifiesOne(cmd, kernel); err != nil {
				return err
			}
			if spin {
				return verifySpin(cmd, record, keep)
			}
			config, err := c.load(cmd)
			if err != nil {
				return err
			}
			if check == nil {
				return errors.New("verify: this build has no executor")
			}
			if plan {
				return verifyPlan(cmd, skeleton.Request{Config: config, Options: c.chosen(config), Seed: 1, Races: races}, &c)
			}
			if executions > 0 {
				return verifyExplored(cmd, config, c.chosen(config), int(executions), record)
			}
			if prefill == 0 && activations.coded() {
				return usagef("%s", activationsAlone)
			}
			start := time.Now()
			bar := progress.Count(cmd.ErrOrStderr(), "verifying", "launches")
			report, err := check(cmd.Context(), verify.Request{
				Config: config, Options: c.chosen(config), Seeds: int(seeds), Seed: uint64(seed), Policy: policy,
				Steps: int(steps), Pin: int(pin), Wide: true, Prefill: int(prefill),
				Activations: activations.format(),
				Progress:    func(done, of int) { bar.Set(int64(done), int64(of)) },
			})
			bar.End(-1)
			var few *verify.StepsError
			if errors.As(err, &few) {
				return usagef("--steps: %s", strings.TrimPrefix(few.Error(), "verify: "))
			}
			var schedule *verify.PolicyError
			if errors.As(err, &schedule) {
				return usagef("--schedule: %s", strings.TrimPrefix(schedule.Error(), "verify: "))
			}
			var wide *verify.PrefillError
			if errors.As(err, &wide) {
				return usagef("--prefill: %v", wide.Err)
			}
			var pinned *verify.PinError
			if errors.As(err, &pinned) {
				return usagef("--pin-split: %s", strings.TrimPrefix(pinned.Error(), "verify: "))
			} else if err != nil {
				return c.inFlags(err)
			}
			report.Command = commandBut(cmd, "seeds", "seed", "schedule")
			write := report.Write
			if lines {
				write = report.WriteLines
			}
			if err := write(cmd.OutOrStdout()); err != nil {
				return err
			}
			if err := keepRecord(record, report.Record(commandBut(cmd, "record"))); err != nil {
				return err
			}
			bad := proveAddresses(cmd.OutOrStdout(), config, c.chosen(config), int(prefill), activations.format())
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "Took %.1f s\n", time.Since(start).Seconds()); err != nil {
				return err
			}
			return errors.Join(report.Err(), bad)
		},
	}
	c.flags(cmd)
	c.machineFlag(cmd)
	kernel.AddFlagSet(cmd.Flags())
	cmd.Flags().BoolVar(&plan, "skeleton", false, "run the real plan of every SM without data, instead")
	cmd.Flags().Var(&executions, "explore",
		"explore executions instead: of small subjects all, of a layer of the model this many at most")
	cmd.Flags().Lookup("explore").DefValue = ""
	cmd.Flags().BoolVar(&spin, "spin", false,
		"compare the exploration of small subjects and planted faults with SPIN's, instead; needs no model")
	cmd.Flags().StringVar(&keep, "models", "", "with --spin: `folder` to keep the models in")
	cmd.Flags().StringVar(&record, "record", "", "`file` to write what was run or explored to")
	cmd.Flags().BoolVar(&lines, "lines", false, "list every place of the program of which some instructions did not run")
	cmd.Flags().BoolVar(&races, "races", false, "with --skeleton: check for races, too; takes several times as long")
	cmd.Flags().Var(&seeds, "seeds", "schedules to try, with the policies in turn")
	cmd.Flags().Var(&seed, "seed", "seed of the first schedule; a finding names its own")
	cmd.Flags().StringVar(&policy, "schedule", "", "try schedules of this `policy` only: "+plural.Or(interp.Policies()))
	cmd.Flags().Var(&steps, "steps",
		"decode steps under each; with --rows launches drawn at random, behind those of every kind")
	cmd.Flags().Var(&pin, "pin-split", pinUsage)
	cmd.Flags().Lookup("pin-split").DefValue = ""
	cmd.Flags().Var(&prefill, "prefill", "check the prefill kernel of steps of `n` tokens instead, of as many sequences as there are rows (default none)")
	cmd.Flags().Lookup("prefill").DefValue = ""
	cmd.Flags().Var(&activations, "prefill-activations", prefillActivationsUsage)
	return cmd
}

// exploreStale is how many older values an explored execution of a subject reads at most.
const exploreStale = 2

// verifyExplored is mkgen verify --explore.
func verifyExplored(cmd *cobra.Command, config models.Config, options megakernel.Options, executions int,
	file string) error {
	report, err := explore.Subjects(interp.Bounds{Executions: exploreSubjects, Stale: exploreStale})
	if err != nil {
		return err
	}
	if err := report.Layer(cmd.Context(), config, options, interp.Bounds{Executions: executions}); err != nil {
		return err
	}
	report.Command = commandBut(cmd, "record")
	if err := report.Write(cmd.OutOrStdout()); err != nil {
		return err
	}
	if err := keepRecord(file, report); err != nil {
		return err
	}
	return report.Err()
}

// keepRecord writes a record to the file of --record, if there is one.
func keepRecord(file string, record any) error {
	if file == "" {
		return nil
	}
	if err := jsonfile.Write(file, record); err != nil {
		return fmt.Errorf("--record: %w", err)
	}
	return nil
}

// verifySpin is mkgen verify --spin.
func verifySpin(cmd *cobra.Command, file, keep string) error {
	spin, err := explore.FindSpin(keep)
	if err != nil {
		return fmt.Errorf("--spin: %w", err)
	}
	report, err := spin.Compare(cmd.Context(), interp.Bounds{Executions: exploreSubjects, Stale: exploreStale})
	if err != nil {
		return err
	}
	report.Command = commandBut(cmd, "record", "models")
	if err := report.Write(cmd.OutOrStdout()); err != nil {
		return err
	}
	if err := keepRecord(file, report); err != nil {
		return err
	}
	return report.Err()
}

// exploreSubjects is the most executions of a subject. All of them have fewer.
const exploreSubjects = 100000

// verifyPlan is mkgen verify --skeleton.
func verifyPlan(cmd *cobra.Command, r skeleton.Request, c *choice) error {
	start := time.Now()
	report, err := skeleton.Check(cmd.Context(), r)
	if err != nil {
		return c.inFlags(err)
	}
	if err := report.Write(cmd.OutOrStdout()); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "Took %.1f s\n", time.Since(start).Seconds()); err != nil {
		return err
	}
	return report.Err()
}
