package main

import (
	"fmt"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/runtime/tune"
	"github.com/mkgen/mkgen/models"
	"github.com/spf13/cobra"
)

// profiled takes over what the profile chose, where no flag says other. A profile of
// another model, or of other rows, is a wrong call; a file that is none, or none to be
// read, is not.
func (c *choice) profiled(cmd *cobra.Command, config models.Config) error {
	given := cmd.Flags().Changed
	if !given("profile") {
		return nil
	}
	p, err := tune.ReadFile(c.profile)
	if err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	if err := p.Fits(config, int(c.rows), megakernel.Launching(c.launch)); err != nil {
		return usagef("--profile %s: %w", c.profile, err)
	}
	for _, f := range []struct {
		flag  string
		to    *count
		value int
	}{
		{tune.StageBytes, &c.stageBytes, p.Chosen.StageBytes}, {tune.Stages, &c.stages, p.Chosen.Stages}, {tune.InFlight, &c.inFlight, p.Chosen.InFlight},
		{tune.Consumers, &c.consumers, p.Chosen.Consumers}, {tune.Splits, &c.splits, p.Chosen.Splits}, {tune.Resident, &c.resident, p.Chosen.Resident}, {tune.GraphSteps, &c.graphSteps, p.Chosen.GraphSteps},
	} {
		if !given(f.flag) {
			*f.to = count(f.value)
		}
	}
	for _, f := range []struct {
		flag  string
		to    *string
		value string
	}{{tune.Leads, &c.leads, p.Chosen.Leads}, {tune.Queries, &c.queries, string(p.Chosen.Queries)}, {tune.Merge, &c.merge, string(p.Chosen.Merge)}, {tune.Vectors, &c.vectors, p.Chosen.Vectors},
		{tune.DependentsOf, &c.dependents, string(p.Chosen.Dependents)}} {
		if !given(f.flag) {
			*f.to = f.value
		}
	}
	if !given(tune.Held) {
		c.held.take(p.Chosen.Held)
	}
	return nil
}
