package tune

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
)

// Choice is the options that are searched, none left open, as files have them (megakernel.Options.Recorded); the others
// are their zero values, but for the MLP of an ablation.
type Choice megakernel.Options

// everywhere are the options that are searched for some kind of steps.
func everywhere() []megakernel.Option {
	return megakernel.SearchedOptions(megakernel.StepsOfOneRow | megakernel.StepsOfSeveralRows | megakernel.StepsOfGraph)
}

// ChoiceOf is what a built kernel has.
func ChoiceOf(mk *megakernel.Kernel) Choice {
	var of megakernel.Options
	for _, row := range everywhere() {
		row.Copy(&of, mk.Options)
	}
	of.Held, of.MLP = max(0, of.Held), mk.Options.OtherMLP()
	return Choice(of)
}

// Apply is o with the choice in place of what it had.
func (c Choice) Apply(o megakernel.Options) megakernel.Options {
	for _, row := range everywhere() {
		row.Copy(&o, megakernel.Options(c))
	}
	if o.Held == 0 {
		o.Held = megakernel.HeldNone
	}
	return o
}

// Value is one of the choice's values as text, by the dimension's name.
func (c Choice) Value(dimension string) string {
	return mustOption(dimension).Get(megakernel.Options(c))
}

// mustOption is the option of a dimension.
func mustOption(dimension string) megakernel.Option {
	row, ok := megakernel.OptionOf(dimension)
	if !ok {
		panic("BUG: tune: dimension " + dimension)
	}
	return row
}

// leftOpen is whether a value is one that the kernel does not have: nothing, or no number of what is of a graph only.
func leftOpen(row megakernel.Option, value string) bool {
	return value == "" || value == "0" && !row.Zero
}

// String is the choice as mkgen's flags.
func (c Choice) String() string {
	var flags []string
	for _, row := range append(everywhere(), mustOption(MLPName)) {
		if value := row.Get(megakernel.Options(c)); !leftOpen(row, value) {
			flags = append(flags, "--"+row.Flag+" "+value)
		}
	}
	return strings.Join(flags, " ")
}

// differs are, as mkgen's flags, what a choice has other than the wanted one, and what that
// has; both empty: nothing.
func (c Choice) differs(want Choice) (has, wants string) {
	for _, row := range everywhere() {
		if found, wanted := c.Value(row.Flag), want.Value(row.Flag); found != wanted {
			has, wants = has+" --"+row.Flag+" "+found, wants+" --"+row.Flag+" "+wanted
		}
	}
	if c.MLP != want.MLP {
		rows := megakernel.MLPRows
		has, wants = fmt.Sprintf("%s --%s %s", has, MLPName, cmp.Or(c.MLP, rows)),
			fmt.Sprintf("%s --%s %s", wants, MLPName, cmp.Or(want.MLP, rows))
	}
	return strings.TrimSpace(has), strings.TrimSpace(wants)
}

// check names a value that no kernel has; what else there is megakernel.Build refuses.
func (c Choice) check() error {
	for _, f := range []struct {
		name string
		v    int
	}{{"stage_bytes", c.StageBytes}, {"stages", c.Stages}, {"in_flight", c.InFlight}, {"consumers", c.Consumers},
		{"splits", c.Splits}} {
		if f.v < 1 {
			return fmt.Errorf("%s is %d, want at least 1", f.name, f.v)
		}
	}
	if c.Held < 0 || c.Held > megakernel.MaxHeld {
		return fmt.Errorf("held is %d, want 0 to %d", c.Held, megakernel.MaxHeld)
	}
	if c.Leads == "" {
		return errors.New("leads is empty, want none or chunks:copies")
	}
	if _, err := pipeline.ParseThrottles(c.Leads); err != nil {
		return fmt.Errorf("leads: %w", err)
	}
	if !slices.Contains(megakernel.Syncs(), c.Queries) {
		return fmt.Errorf("queries is %q, want %s", string(c.Queries), plural.Or(megakernel.Syncs()))
	}
	if !slices.Contains(megakernel.Mergings(), c.Merge) {
		return fmt.Errorf("merge is %q, want %s", string(c.Merge), plural.Or(megakernel.Mergings()))
	}
	if c.Vectors == "" {
		return errors.New("vectors is empty, want what mkgen --vectors takes")
	}
	if c.MLP != "" && !slices.Contains(megakernel.MLPs(), c.MLP) {
		return fmt.Errorf("mlp is %q, want %s", string(c.MLP), plural.Or(megakernel.MLPs()))
	}
	if fixed := (setupOptions(megakernel.Options(c))); fixed != (megakernel.Options{}) {
		return errors.New("it has options that are not searched")
	}
	graph := c.Dependents != ""
	if (c.Resident > 0) != graph || (c.GraphSteps > 0) != graph || c.Resident < 0 || c.GraphSteps < 0 {
		return fmt.Errorf("resident is %d and graph_steps %d with dependents %q, want all, of a graph of kernels, or none",
			c.Resident, c.GraphSteps, string(c.Dependents))
	}
	return nil
}

// gone are merges that have been measured and are built no more.
var gone = []megakernel.Merging{"last", "input"}

// checkMeasured is check of what has been measured, of which some is built no more.
func (c Choice) checkMeasured() error {
	if slices.Contains(gone, c.Merge) {
		c.Merge = megakernel.MergePhase
	}
	return c.check()
}
