package tune

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
)

// Choice is what is searched, each as in megakernel.Options and none left open.
type Choice struct {
	StageBytes int                `json:"stage_bytes"`
	Stages     int                `json:"stages"`
	InFlight   int                `json:"in_flight"`
	Leads      string             `json:"leads"`
	Held       int                `json:"held,omitempty"` // 0 is none
	Consumers  int                `json:"consumers"`
	Splits     int                `json:"splits"`
	Queries    megakernel.Handoff `json:"queries"`
	Merge      megakernel.Merging `json:"merge"`
	Vectors    string             `json:"vectors"`
	MLP        megakernel.MLP     `json:"mlp,omitempty"` // of an ablation only, and not searched; absent: rows

	Resident   int                   `json:"resident,omitempty"` // of a graph of kernels only, as Dependents
	Dependents megakernel.Dependents `json:"dependents,omitempty"`
	GraphSteps int                   `json:"graph_steps,omitempty"`
}

// ChoiceOf is what a built kernel has.
func ChoiceOf(mk *megakernel.Kernel) Choice {
	o := mk.Options
	return Choice{MLP: o.OtherMLP(), StageBytes: o.StageBytes, Stages: o.Stages, InFlight: o.InFlight, Leads: o.Leads, Held: max(0, o.Held), Consumers: o.Consumers, Splits: o.Splits, Queries: o.Queries, Merge: o.Merge, Vectors: o.Vectors,
		Resident: o.Resident, Dependents: o.Dependents, GraphSteps: o.GraphSteps}
}

// Apply is o with the choice in place of what it had.
func (c Choice) Apply(o megakernel.Options) megakernel.Options {
	o.StageBytes, o.Stages, o.InFlight, o.Leads = c.StageBytes, c.Stages, c.InFlight, c.Leads
	o.Held = c.Held
	if c.Held == 0 {
		o.Held = megakernel.HeldNone
	}
	o.Consumers, o.Splits, o.Queries, o.Merge, o.Vectors = c.Consumers, c.Splits, c.Queries, c.Merge, c.Vectors
	o.Resident, o.Dependents, o.GraphSteps = c.Resident, c.Dependents, c.GraphSteps
	return o
}

// Value is one of the choice's values as text, by the dimension's name.
func (c Choice) Value(dimension string) string {
	switch dimension {
	case StageBytes:
		return strconv.Itoa(c.StageBytes)
	case Stages:
		return strconv.Itoa(c.Stages)
	case InFlight:
		return strconv.Itoa(c.InFlight)
	case Leads:
		return c.Leads
	case Held:
		return strconv.Itoa(c.Held)
	case Consumers:
		return strconv.Itoa(c.Consumers)
	case Splits:
		return strconv.Itoa(c.Splits)
	case Queries:
		return string(c.Queries)
	case Merge:
		return string(c.Merge)
	case Vectors:
		return c.Vectors
	case Resident:
		return strconv.Itoa(c.Resident)
	case DependentsOf:
		return string(c.Dependents)
	case GraphSteps:
		return strconv.Itoa(c.GraphSteps)
	}
	panic("BUG: tune: dimension " + dimension)
}

// String is the choice as mkgen's flags.
func (c Choice) String() string {
	flags := fmt.Sprintf("--stage-bytes %d --stages %d --in-flight %d --leads %s --consumers %d --splits %d --queries %s --merge %s --vectors %s",
		c.StageBytes, c.Stages, c.InFlight, c.Leads, c.Consumers, c.Splits, c.Queries, c.Merge, c.Vectors)
	flags += fmt.Sprintf(" --held %d", c.Held)
	if c.MLP != "" {
		flags += " --" + MLPName + " " + string(c.MLP)
	}
	if c.Dependents != "" {
		flags += fmt.Sprintf(" --resident %d --dependents %s --graph-steps %d", c.Resident, c.Dependents, c.GraphSteps)
	}
	return flags
}

// differs are, as mkgen's flags, what a choice has other than the wanted one, and what that
// has; both empty: nothing.
func (c Choice) differs(want Choice) (has, wants string) {
	for _, name := range slices.Concat(Dimensions(1, megakernel.LaunchSingle), []string{DependentsOf, Resident, GraphSteps}) {
		if found, wanted := c.Value(name), want.Value(name); found != wanted {
			has, wants = has+" --"+name+" "+found, wants+" --"+name+" "+wanted
		}
	}
	if c.MLP != want.MLP {
		rows := megakernel.MLPRows
		has, wants = fmt.Sprintf("%s --%s %s", has, MLPName, cmp.Or(c.MLP, rows)), fmt.Sprintf("%s --%s %s", wants, MLPName, cmp.Or(want.MLP, rows))
	}
	return strings.TrimSpace(has), strings.TrimSpace(wants)
}

// check names a value that no kernel has; what else there is megakernel.Build refuses.
func (c Choice) check() error {
	for _, f := range []struct {
		name string
		v    int
	}{{"stage_bytes", c.StageBytes}, {"stages", c.Stages}, {"in_flight", c.InFlight}, {"consumers", c.Consumers}, {"splits", c.Splits}} {
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
	if _, err := pipeline.ParseLeads(c.Leads); err != nil {
		return fmt.Errorf("leads: %w", err)
	}
	if !slices.Contains(megakernel.Handoffs(), c.Queries) {
		return fmt.Errorf("queries is %q, want %s", string(c.Queries), plural.Or(megakernel.Handoffs()))
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
	graph := c.Dependents != ""
	if (c.Resident > 0) != graph || (c.GraphSteps > 0) != graph || c.Resident < 0 || c.GraphSteps < 0 {
		return fmt.Errorf("resident is %d and graph_steps %d with dependents %q, want all, of a graph of kernels, or none", c.Resident, c.GraphSteps, string(c.Dependents))
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
