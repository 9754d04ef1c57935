package main

import (
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/spf13/cobra"
)

func newIR() *cobra.Command {
	var c choice
	var lines bool
	cmd := &cobra.Command{
		Use:   "ir",
		Short: "Print the kernel's program in its text form",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			mk, err := c.build(cmd)
			if err != nil {
				return err
			}
			print := ir.Print
			if lines {
				print = ir.PrintLines
			}
			for _, k := range mk.Kernels() {
				if err := print(cmd.OutOrStdout(), k); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.flags(cmd)
	c.machineFlag(cmd)
	c.graphFlags(cmd)
	cmd.Flags().BoolVar(&lines, "lines", false, "behind each instruction the Go line that made it, and that line's caller")
	return cmd
}
