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
// another model, of other rows, or of other formats of weights, is a wrong call; a file that is none, or none to be
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
	if err := p.Fits(config, c.opts.Tokens, c.opts.Launch); err != nil {
		return usagef("--profile %s: %w", c.profile, err)
	}
	c.chose = &chosenBy{file: c.profile, profile: p, config: config, flags: map[string]bool{}}
	chosen := p.Chosen.Apply(megakernel.Options{})
	for _, row := range megakernel.OptionTable() {
		if row.Searched != 0 && !given(row.Flag) {
			row.Copy(&c.opts, chosen)
			c.chose.flags[row.Flag] = true
		}
	}
	if c.weightsFollow(cmd) {
		return nil
	}
	return c.profileOfFormats()
}

// weightsFollow reports whether the command opens weights behind its options, whose codes then decide what formats
// flags leave open (withCodes).
func (c *choice) weightsFollow(cmd *cobra.Command) bool {
	given := cmd.Flags().Changed
	return cmd.Flags().Lookup("image-cache") != nil || given("checkpoint") && !given("reference")
}

// profileOfFormats refuses a profile of other formats of weights than the kernel's.
func (c *choice) profileOfFormats() error {
	if c.chose == nil {
		return nil
	}
	if err := c.chose.profile.FitsFormats(c.opts.Weights, c.opts.Head); err != nil {
		return usagef("--profile %s: %w", c.chose.file, err)
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
	_, err := megakernel.Build(p.config, p.profile.Chosen.Apply(p.profile.Setup.Options))
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
	return usagef("--profile %s: its --%s %s does not go with the other flags: %s; give --%[2]s, too", p.file, flag,
		p.profile.Chosen.Value(flag), problem)
}
