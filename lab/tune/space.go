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

// Dimension is one option and the kernels that differ from an incumbent in it: of
// another stage size, in what follows from that, too.
type Dimension struct {
	Name    string
	Kernels []*megakernel.Kernel
}

// Dimensions lists the names of those that a kernel of so many query rows has, launched
// so, in the order in which they are searched. Of several rows the plan of a launch says
// what one row's --splits and --merge say.
func Dimensions(rows int, launch megakernel.Launching) []string {
	if rows > 1 {
		return []string{StageBytes, Stages, InFlight, Leads, Consumers}
	}
	if launch == megakernel.LaunchGraph {
		return []string{DependentsOf, Resident, StageBytes, Stages, InFlight, Leads, Consumers, Splits, Merge, GraphSteps}
	}
	return []string{StageBytes, Stages, InFlight, Leads, Held, Consumers, Splits, Queries, Merge, Vectors}
}

// Space is every dimension's candidates around a kernel.
func Space(mk *megakernel.Kernel) []Dimension {
	var all []Dimension
	names := Dimensions(mk.Options.Tokens, mk.Options.Launch)
	for _, name := range names {
		all = append(all, Dimension{name, candidates(mk, name, names)})
	}
	return all
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

// scaled are options whose stages become of other bytes: with so many whole copies that no
// fewer bytes are in flight, leads as long in bytes, and so many chunks that no fewer bytes
// are held in registers, or as many as there can be.
func scaled(o megakernel.Options, bytes int) megakernel.Options {
	scale := func(n int) int { return max(1, (n*o.StageBytes+bytes-1)/bytes) }
	list, err := pipeline.ParseLeads(o.Leads)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	o.InFlight = scale(o.InFlight)
	if o.Held > 0 {
		if o.Held = min(scale(o.Held), megakernel.MostHeld(bytes, o.Consumers)); o.Held == 0 {
			o.Held = megakernel.HeldNone
		}
	}
	var kept []pipeline.Lead
	for _, l := range list {
		l = pipeline.Lead{Chunks: scale(l.Chunks), InFlight: scale(l.InFlight)}
		if l.InFlight < o.InFlight && l.Chunks > l.InFlight {
			kept = append(kept, l)
		}
	}
	o.Leads, o.StageBytes = pipeline.LeadsText(kept), bytes
	return o
}

// values are the options of a dimension's candidates.
func values(mk *megakernel.Kernel, dimension string, searched func(string) bool) []megakernel.Options {
	switch dimension {
	case StageBytes: // the depth is the planner's again, and as many bytes are in flight and held
		return each(mk, []int{8 << 10, 16 << 10, 32 << 10}, func(o *megakernel.Options, n int) {
			to := scaled(*o, n)
			o.StageBytes = n
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
		})
	case Stages:
		fit := planned(mk, func(o *megakernel.Options) { o.Stages, o.InFlight, o.Leads = 0, 0, "" }).Stages
		return each(mk, []int{fit, fit * 3 / 4, fit / 2}, func(o *megakernel.Options, n int) {
			if o.Stages = n; searched(InFlight) {
				o.InFlight = min(o.InFlight, n)
			}
			if searched(Leads) {
				o.Leads = ""
			}
		})
	case InFlight:
		return each(mk, []int{1, 2, 3, 4, 5, 6}, func(o *megakernel.Options, n int) {
			if o.InFlight = n; searched(Leads) {
				o.Leads = ""
			}
		})
	case Leads:
		return each(mk, leads(mk.Options.InFlight), func(o *megakernel.Options, text string) { o.Leads = text })
	case Held:
		return each(mk, []int{megakernel.HeldNone, 1, 2, 3, 4, 5, 6}, func(o *megakernel.Options, n int) { o.Held = n })
	case Consumers:
		return each(mk, []int{6, 7, 8, 10, 11}, func(o *megakernel.Options, n int) { o.Consumers = n })
	case Splits:
		fill := planned(mk, func(o *megakernel.Options) { o.Splits = 0 }).Splits
		return each(mk, []int{fill / 2, fill, 2 * fill, 8, 16, 32}, func(o *megakernel.Options, n int) { o.Splits = n })
	case Queries:
		return each(mk, megakernel.Handoffs(), func(o *megakernel.Options, h megakernel.Handoff) { o.Queries = h })
	case Merge:
		return each(mk, megakernel.Mergings(), func(o *megakernel.Options, m megakernel.Merging) { o.Merge = m })
	case Vectors:
		return each(mk, megakernel.VectorWays(), func(o *megakernel.Options, v megakernel.Handoff) { o.Vectors = string(v) })
	case Resident: // depth is the planner's again
		return each(mk, []int{1, 2, 3}, func(o *megakernel.Options, n int) {
			if o.Resident = n; searched(Stages) {
				o.Stages = 0
			}
		})
	case GraphSteps:
		return each(mk, []int{1, 4, 16}, func(o *megakernel.Options, n int) { o.GraphSteps = n })
	case DependentsOf:
		return each(mk, megakernel.AllDependents(), func(o *megakernel.Options, d megakernel.Dependents) { o.Dependents = d })
	}
	panic("BUG: tune: dimension " + dimension)
}

// leads are candidates beside a number of copies in flight: none, and fewer copies from
// one or a few chunks more on.
func leads(inFlight int) []string {
	list := []string{pipeline.LeadsText(nil)}
	for _, ahead := range []int{1, 2, 4} {
		for _, fewer := range []int{1, 2} {
			list = append(list, pipeline.LeadsText([]pipeline.Lead{{Chunks: inFlight + ahead, InFlight: inFlight - fewer}}))
		}
	}
	return list
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

// planned is what the planner makes of the kernel's options with something left open;
// the kernel's own where it refuses that.
func planned(mk *megakernel.Kernel, open func(*megakernel.Options)) megakernel.Options {
	o := mk.Options
	open(&o)
	if built, err := megakernel.Build(mk.Config, o); err == nil {
		return built.Options
	}
	return mk.Options
}
