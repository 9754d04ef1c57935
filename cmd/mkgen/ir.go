package main

import (
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/spf13/cobra"
)

func newIR() *cobra.Command {
	var c choice
	cmd := &cobra.Command{
		Use:   "ir",
		Short: "Print the kernel's program in its text form",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			mk, err := c.build(cmd)
			if err != nil {
				return err
			}
			for _, k := range mk.Kernels() {
				if err := ir.Print(cmd.OutOrStdout(), k); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.flags(cmd)
	c.machineFlag(cmd)
	c.graphFlags(cmd)
	return cmd
}
