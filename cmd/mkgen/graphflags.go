package main

import (
	"github.com/mkgen/mkgen/megakernel"
	"github.com/spf13/cobra"
)

// graphFlags adds the flags of a step that is a graph of kernels, to the commands that
// can have one.
func (c *choice) graphFlags(cmd *cobra.Command) {
	c.optionFlags(cmd, func(row megakernel.Option) bool { return row.Group == megakernel.OptionGraph })
}
