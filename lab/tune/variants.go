package tune

import (
	"slices"
	"strings"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
)

// The groups of an ablation's variants.
const (
	Control      = "control"
	FormatsOf    = "formats of weights"
	AroundAttend = "syncs around attention"
	VectorsOf    = "syncs of vectors"
	LeadsOf      = "leads"
	HeldOf       = "chunks held in registers"
	CopiesOf     = "copies in flight"
	Ring         = "stage size × depth"
	ConsumersOf  = "consumers"
	SplitsOf     = "splits"
	MLPOf        = "MLP"
	WatchdogOf   = "watchdog"
)

// exact are the groups that change when something is computed and not in which order: a
// variant of theirs has the bits of the kernel that it is of. Of vectors packets round what
// barriers do not.
var exact = []string{Control, AroundAttend, LeadsOf, HeldOf, CopiesOf, WatchdogOf}

// variant is a kernel that differs from another in one thing.
type variant struct {
	group   string
	differs string             // in mkgen's flags
	kernel  *megakernel.Kernel // nil where there is none
	problem error              // why
}

// variants are those of a kernel: itself, loaded again, and group by group what differs
// in one thing, and in what follows from it. None stands twice. What megakernel.Build
// refuses is one without a kernel. Of several rows there are no syncs and splits to
// choose.
//
// most is how many of a group there are at most; 0: all. others is whether there may be other formats of weights.
func variants(mk *megakernel.Kernel, most int, others bool) []variant {
	all := []variant{{group: Control, differs: "the same kernel, loaded again", kernel: mk}}
	seen := []megakernel.Options{mk.Options}
	searched := Dimensions(mk.Options.Tokens, mk.Options.Launch)
	add := func(group string, said []string, options ...megakernel.Options) {
		before := len(all)
		for _, o := range options {
			if most > 0 && len(all) == before+most {
				return
			}
			built, err := megakernel.Build(mk.Config, o)
			if err != nil {
				v := variant{group: group, differs: difference(mk.Options, o, said), problem: err}
				if last := all[len(all)-1]; last.problem == nil || last.differs != v.differs {
					all = append(all, v)
				}
				continue
			}
			if slices.Contains(seen, built.Options) {
				continue
			}
			seen = append(seen, built.Options)
			all = append(all, variant{group: group, differs: difference(mk.Options, built.Options, said), kernel: built})
		}
	}
	if others {
		add(FormatsOf, nil, formats(mk)...)
	}
	any := func(string) bool { return true }
	if slices.Contains(searched, Queries) {
		add(AroundAttend, []string{Queries, Merge}, syncs(mk)...)
	}
	if slices.Contains(searched, Vectors) {
		add(VectorsOf, nil, values(mk, Vectors, any)...)
	}
	add(LeadsOf, nil, slices.Concat(values(mk, Leads, any),
		[]megakernel.Options{with(mk, func(o *megakernel.Options) { o.Leads = "" })})...)
	if slices.Contains(searched, Held) {
		add(HeldOf, nil, values(mk, Held, any)...)
	}
	add(CopiesOf, []string{InFlight, Leads}, copies(mk)...)
	add(Ring, []string{StageBytes, Stages}, rings(mk)...)
	add(ConsumersOf, nil, values(mk, Consumers, any)...)
	if slices.Contains(searched, Splits) {
		add(SplitsOf, nil, values(mk, Splits, any)...)
	}
	if mk.Options.Tokens == 1 && mk.Options.Launch == megakernel.LaunchSingle {
		add(MLPOf, []string{MLPName}, mlps(mk)...)
	}
	add(WatchdogOf, nil, each(mk, megakernel.Watchdogs(),
		func(o *megakernel.Options, w megakernel.Watchdog) { o.Watchdog = w })...)
	return all
}

func with(mk *megakernel.Kernel, set func(*megakernel.Options)) megakernel.Options {
	o := mk.Options
	set(&o)
	return o
}

// formats are kernels of other formats of as many bits a code, as their own defaults have them: what groups, zero
// points, scales and arithmetic cost. None where weights are bf16 or matrices have formats of their own.
func formats(mk *megakernel.Kernel) (all []megakernel.Options) {
	of := mk.Options.Weights
	if of.Bits() == 16 || strings.Contains(string(of), ",") {
		return nil
	}
	for _, f := range []pipeline.Format{"i4g128", "i4g64", "i4g32", "i4", "i4g128-zeros", "i4g128-f16", "mxfp4", "nvfp4",
		"i8", "i8g128", "i8g128-zeros", "e4m3", "e4m3b128"} {
		if f.Bits() == of.Bits() && f != of {
			o := setupOptions(mk.Options)
			o.Weights = f
			all = append(all, o)
		}
	}
	return all
}

// leaveAll leaves open how vectors are passed where all are in packets, which does not go with every other option.
func leaveAll(o *megakernel.Options) {
	if o.Vectors == string(megakernel.VectorsAll) {
		o.Vectors = ""
	}
}

// syncs are all pairs of how queries reach attention and where states are merged.
func syncs(mk *megakernel.Kernel) (all []megakernel.Options) {
	for _, queries := range megakernel.Syncs() {
		for _, merge := range megakernel.Mergings() {
			all = append(all, with(mk, func(o *megakernel.Options) {
				o.Queries, o.Merge = queries, merge
				leaveAll(o)
			}))
		}
	}
	return all
}

// mlps are the other ways of the MLP, with the kernel's ring and, where that leaves room,
// with one as deep as fits.
func mlps(mk *megakernel.Kernel) (all []megakernel.Options) {
	for _, m := range megakernel.MLPs() {
		if m == mk.Options.MLP {
			continue
		}
		o := with(mk, func(o *megakernel.Options) {
			o.MLP = m
			leaveAll(o)
		})
		deep := o
		deep.Stages = 0
		all = append(all, o, deep)
	}
	return all
}

// copies are other numbers of copies in flight, without leads and, from 3 on, with 2 from
// one chunk more on, which was the best found for each.
func copies(mk *megakernel.Kernel) (all []megakernel.Options) {
	for n := 1; n <= 6; n++ {
		if n == mk.Options.InFlight {
			continue // its leads are a group
		}
		leads := []string{pipeline.ThrottlesText(nil)}
		if n >= 3 {
			leads = append(leads, pipeline.ThrottlesText([]pipeline.Throttle{{Chunks: n + 1, InFlight: 2}}))
		}
		for _, text := range leads {
			all = append(all, with(mk, func(o *megakernel.Options) { o.InFlight, o.Leads = n, text }))
		}
	}
	return all
}

// rings are stage sizes times depths. Of 8 and 16 KiB as many stages as fit, 3/4 and 1/2 of
// them; of 32 and 64 KiB, which FlashFormer compares, all depths from what fits down to 2.
// With another size there are as many bytes in flight and held, see scaled. Leads of stages
// that are so long go down to one copy: each of these rings is there without leads as well,
// and with 2 copies in flight where scaled leaves one.
func rings(mk *megakernel.Kernel) (all []megakernel.Options) {
	for _, bytes := range []int{8 << 10, 16 << 10, 32 << 10, 64 << 10} {
		o := with(mk, func(o *megakernel.Options) {
			if o.Stages = 0; o.StageBytes != bytes {
				*o = scaled(*o, bytes)
			}
		})
		fit, err := megakernel.Build(mk.Config, o)
		if err != nil {
			all = append(all, o) // which says why
			continue
		}
		for _, stages := range depths(bytes, fit.Options.Stages) {
			o := with(fit, func(o *megakernel.Options) {
				if o.Stages = stages; o.InFlight > o.Stages {
					o.InFlight, o.Leads = o.Stages, ""
				}
			})
			if _, err := megakernel.Build(mk.Config, o); err != nil { // leads that the ring is too short for
				o.Leads = ""
			}
			all = append(all, o)
			if bytes > 16<<10 && stages > 1 {
				all = append(all, with(fit, func(o *megakernel.Options) {
					o.Stages, o.InFlight, o.Leads = stages, max(2, o.InFlight), pipeline.ThrottlesText(nil)
				}))
			}
		}
	}
	return all
}

// depths are those of a ring that are compared, where as many as fit stages do.
func depths(bytes, fit int) (all []int) {
	if bytes <= 16<<10 {
		return []int{fit, max(1, fit*3/4), max(1, fit/2)}
	}
	for n := fit; n >= min(2, fit); n-- {
		all = append(all, n)
	}
	return all
}

// difference is in which flags options are not those of a kernel, beside those that are
// always said; what they leave open is not.
func difference(of, o megakernel.Options, always []string) string {
	var flags []string
	for _, row := range append(everywhere(), mustOption(MLPName), mustOption("watchdog"), mustOption("weight-format")) {
		was, now := row.Get(of), row.Get(o)
		if (was != now || slices.Contains(always, row.Flag)) && !leftOpen(row, now) {
			flags = append(flags, "--"+row.Flag+" "+now)
		}
	}
	return strings.Join(flags, " ")
}
