package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mkgen/mkgen/megakernel/verify"
	"github.com/spf13/cobra"
)

// newVerify is mkgen verify; check is nil in a build that cannot.
func newVerify(check verify.Checker) *cobra.Command {
	var c choice
	seeds, steps := count(4), count(3)
	var pin count
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Run the kernel, shrunk, on the CPU: values, races, deadlocks",
		Long: `verify builds the model's kernel with the same templates, roles, hand-offs and
options and with sizes that the CPU can run, executes it under several
schedules, and compares its values with a reference. Of the kernel as it is,
with its own sizes, it proves that no address overflows or leaves its buffer,
for sequences of up to a million tokens. It exits with 1 when anything is
found.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := c.load(cmd)
			if err != nil {
				return err
			}
			if check == nil {
				return errors.New("verify: this build has no executor")
			}
			start := time.Now()
			report, err := check(cmd.Context(), verify.Request{Config: config, Options: c.chosen(config), Seeds: int(seeds), Steps: int(steps), Pin: int(pin)})
			var few *verify.StepsError
			if errors.As(err, &few) {
				return usagef("--steps: %s", strings.TrimPrefix(few.Error(), "verify: "))
			}
			var pinned *verify.PinError
			if errors.As(err, &pinned) {
				return usagef("--pin-split: %s", strings.TrimPrefix(pinned.Error(), "verify: "))
			} else if err != nil {
				return c.inFlags(err)
			}
			if err := report.Write(cmd.OutOrStdout()); err != nil {
				return err
			}
			bad := proveAddresses(cmd.OutOrStdout(), config, c.chosen(config))
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "Took %.1f s\n", time.Since(start).Seconds()); err != nil {
				return err
			}
			return errors.Join(report.Err(), bad)
		},
	}
	c.flags(cmd)
	c.machineFlag(cmd)
	cmd.Flags().Var(&seeds, "seeds", "schedules to try")
	cmd.Flags().Var(&steps, "steps", "decode steps under each; with --rows launches drawn at random, behind those of every kind")
	cmd.Flags().Var(&pin, "pin-split", pinUsage)
	cmd.Flags().Lookup("pin-split").DefValue = ""
	return cmd
}
