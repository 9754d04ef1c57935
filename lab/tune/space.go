package tune

import (
	"slices"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
)

// The dimensions, by the names of mkgen's flags.
const (
	StageBytes = "stage-bytes"
	Stages     = "stages"
	InFlight   = "in-flight"
	Leads      = "leads"
	Held       = "held"
	Consumers  = "consumers"
	Splits     = "splits"
	Queries    = "queries"
	Merge      = "merge"
	Vectors    = "vectors"

	// MLPName is of an ablation: what it changes is not repeatable, and not searched.
	MLPName = "mlp"

	// Of a graph of kernels.
	Resident     = "resident"
	DependentsOf = "dependents"
	GraphSteps   = "graph-steps"
)

// Dimensions lists the names of those that a kernel of n query rows has, launched
// so, in the order in which they are searched. Of several rows the plan of a launch says
// what one row's --splits and --merge say.
func Dimensions(rows int, launch megakernel.Launching) []string {
	return flagsOf(megakernel.SearchedOptions(megakernel.StepsOf(rows, launch)))
}

func flagsOf(rows []megakernel.Option) (names []string) {
	for _, row := range rows {
		names = append(names, row.Flag)
	}
	return names
}

// candidates are the kernels of a dimension around an incumbent, without the incumbent
// itself, without equals, and without what megakernel.Build refuses. They differ in no
// dimension that is not searched.
func candidates(mk *megakernel.Kernel, dimension string, searched []string) []*megakernel.Kernel {
	var all []*megakernel.Kernel
	seen := []Choice{ChoiceOf(mk)}
	for _, o := range values(mk, dimension, func(name string) bool { return slices.Contains(searched, name) }) {
		candidate, err := megakernel.Build(mk.Config, o)
		if err != nil || slices.Contains(seen, ChoiceOf(candidate)) {
			continue
		}
		seen, all = append(seen, ChoiceOf(candidate)), append(all, candidate)
	}
	return all
}

// scaled are options whose stages become of other bytes: with enough whole copies that no
// fewer bytes are in flight, leads as long in bytes, and chunks so that no fewer bytes
// are held in registers, or as many as there can be.
func scaled(o megakernel.Options, bytes int) megakernel.Options {
	scale := func(n int) int { return max(1, (n*o.StageBytes+bytes-1)/bytes) }
	list, err := pipeline.ParseThrottles(o.Leads)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	o.InFlight = scale(o.InFlight)
	if o.Held > 0 {
		if o.Held = min(scale(o.Held), megakernel.MostHeld(bytes, o.Consumers)); o.Held == 0 {
			o.Held = megakernel.HeldNone
		}
	}
	var kept []pipeline.Throttle
	for _, l := range list {
		l = pipeline.Throttle{Chunks: scale(l.Chunks), InFlight: scale(l.InFlight)}
		if l.InFlight < o.InFlight && l.Chunks > l.InFlight {
			kept = append(kept, l)
		}
	}
	o.Leads, o.StageBytes = pipeline.ThrottlesText(kept), bytes
	return o
}

// values are the options of a dimension's candidates: its own values, and what follows from a ring of another shape.
func values(mk *megakernel.Kernel, dimension string, searched func(string) bool) (all []megakernel.Options) {
	row := mustOption(dimension)
	for _, value := range row.Values(mk) {
		if leftOpen(row, value) {
			continue
		}
		o := mk.Options
		if err := row.Set(&o, value); err != nil {
			panic("BUG: tune: " + dimension + " " + value + ": " + err.Error())
		}
		follow(&o, mk.Options, dimension, searched)
		all = append(all, o)
	}
	return all
}

// follow adapts options of which one dimension has another value. With another size of stages as many bytes are in
// flight and held, and their number is the planner's again, as it is with other kernels beside a graph's; leads are
// the planner's wherever they depend on what changed.
func follow(o *megakernel.Options, was megakernel.Options, dimension string, searched func(string) bool) {
	switch dimension {
	case StageBytes:
		to := scaled(was, o.StageBytes)
		if searched(Stages) {
			o.Stages = 0
		}
		if searched(InFlight) {
			o.InFlight = to.InFlight
		}
		if searched(Held) {
			o.Held = to.Held
		}
		switch {
		case searched(Leads) && searched(InFlight):
			o.Leads = to.Leads
		case searched(Leads):
			o.Leads = ""
		}
	case Stages:
		if searched(InFlight) {
			o.InFlight = min(o.InFlight, o.Stages)
		}
		if searched(Leads) {
			o.Leads = ""
		}
	case InFlight:
		if searched(Leads) {
			o.Leads = ""
		}
	case Resident:
		if searched(Stages) {
			o.Stages = 0
		}
	}
}

// each is the kernel's options with each of the values, which are left out where they
// are the zero value: that would be the default.
func each[T comparable](mk *megakernel.Kernel, values []T, set func(*megakernel.Options, T)) []megakernel.Options {
	var zero T
	var all []megakernel.Options
	for _, v := range values {
		if v == zero {
			continue
		}
		o := mk.Options
		set(&o, v)
		all = append(all, o)
	}
	return all
}
