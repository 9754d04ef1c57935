package main

import (
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/lab/tune"
	"github.com/mkgen/mkgen/megakernel"
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
	c.chose = &chosenBy{file: c.profile, profile: p, config: config, flags: map[string]bool{}}
	for _, f := range []struct {
		flag  string
		to    *count
		value int
	}{
		{tune.StageBytes, &c.stageBytes, p.Chosen.StageBytes}, {tune.Stages, &c.stages, p.Chosen.Stages}, {tune.InFlight, &c.inFlight, p.Chosen.InFlight},
		{tune.Consumers, &c.consumers, p.Chosen.Consumers}, {tune.Splits, &c.splits, p.Chosen.Splits}, {tune.Resident, &c.resident, p.Chosen.Resident}, {tune.GraphSteps, &c.graphSteps, p.Chosen.GraphSteps},
	} {
		if !given(f.flag) {
			*f.to, c.chose.flags[f.flag] = count(f.value), true
		}
	}
	for _, f := range []struct {
		flag  string
		to    *string
		value string
	}{{tune.Leads, &c.leads, p.Chosen.Leads}, {tune.Queries, &c.queries, string(p.Chosen.Queries)}, {tune.Merge, &c.merge, string(p.Chosen.Merge)}, {tune.Vectors, &c.vectors, p.Chosen.Vectors},
		{tune.DependentsOf, &c.dependents, string(p.Chosen.Dependents)}} {
		if !given(f.flag) {
			*f.to, c.chose.flags[f.flag] = f.value, true
		}
	}
	if !given(tune.Held) {
		c.held.take(p.Chosen.Held)
		c.chose.flags[tune.Held] = true
	}
	return nil
}

// chosenBy is the profile that options come from.
type chosenBy struct {
	file    string
	profile *tune.Profile
	config  models.Config
	flags   map[string]bool // those whose values are the profile's
}

// alone is why the profile's choice makes no kernel where nothing else says other; nil: it
// makes one.
func (p *chosenBy) alone() error {
	_, err := megakernel.Build(p.config, p.profile.Chosen.Apply(p.profile.Options()))
	return err
}

// blame says that the profile has values that no kernel can have, or, where it alone makes
// one, that flags and it do not go together: a wrong call. flag is of the value in question,
// "" of several; given are the flags that may be to blame.
func (p *chosenBy) blame(flag, problem, given string) error {
	if err := p.alone(); err != nil {
		what := strings.TrimPrefix(err.Error(), "pipeline: ")
		if its, says := flagOf(err); its != "" {
			what = strings.ReplaceAll(its, "-", "_") + ": " + says
		}
		return fmt.Errorf("--profile %s: there is no kernel of what it chose: %s", p.file, what)
	}
	switch {
	case given != "":
		return usagef("%s with --profile %s: %s", given, p.file, problem)
	case flag == "":
		return usagef("--profile %s does not go with the other flags: %s", p.file, problem)
	}
	return usagef("--profile %s: its --%s %s does not go with the other flags: %s; give --%[2]s, too", p.file, flag, p.profile.Chosen.Value(flag), problem)
}
