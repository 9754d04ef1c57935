package main

import (
	"fmt"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/spf13/cobra"
)

// graphFlags adds the flags of a step that is a graph of kernels, to the commands that
// can have one.
func (c *choice) graphFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.launch, "launch", string(megakernel.LaunchSingle), "`how` a step is launched: single, one kernel; graph, a kernel for each phase in a CUDA graph")
	f.Var(&c.resident, "resident", fmt.Sprintf("with --launch graph, kernels that fit side by side on an SM, up to 4 (default %d)", megakernel.DefaultResident))
	f.StringVar(&c.dependents, "dependents", "", "with --launch graph, `when` a kernel lets the next one start: start, at once; waited, when the one before has ended; streamed, when its last copies are under way; ended, when it has ended itself (default start)")
	f.Var(&c.graphSteps, "graph-steps", "with --launch graph, steps that a launch of the graph makes, up to 64 (default 1)")
	f.Lookup("resident").DefValue = ""
	f.Lookup("graph-steps").DefValue = ""
}
