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
			return ir.Print(cmd.OutOrStdout(), mk.IR)
		},
	}
	c.flags(cmd)
	return cmd
}
