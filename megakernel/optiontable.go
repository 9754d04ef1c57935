package megakernel

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
)

// Option is what flags, files and the search say of one field of Options: a row of OptionTable. An option that is added
// is a field, its row, and what templates make of it.
type Option struct {
	Field string      // of Options, and of an OptionError
	Flag  string      // of mkgen
	Group OptionGroup // of help
	Usage string      // in help; back quotes are around the value's placeholder, where "n" or nothing says too little

	Most    int    // of a number that is given; 0: MaxInt32
	Zero    bool   // 0 may be given and is none, in Options -1; of other numbers 1 is the least
	Default string // of text, where help says it in the flag's own way

	// Searched is where mkgen tune looks for better values, in the table's order; Values are the candidates around a
	// kernel, as Set takes them. Those that are "" or what the kernel has are left out.
	Searched Steps
	Values   func(mk *Kernel) []string
}

// OptionGroup is a heading of help.
type OptionGroup int

// The groups.
const (
	OptionCommon OptionGroup = iota // what everybody needs first
	OptionTuning                    // chosen by mkgen where not given
	OptionGraph                     // of a step that is a graph of kernels
)

// Steps are kinds of steps that kernels are made for: a set.
type Steps int

// The kinds.
const (
	StepsOfOneRow Steps = 1 << iota
	StepsOfSeveralRows
	StepsOfGraph
)

// StepsOf returns the kind of steps of kernels with n rows that are launched so.
func StepsOf(rows int, launch Launching) Steps {
	switch {
	case rows > 1:
		return StepsOfSeveralRows
	case launch == LaunchGraph:
		return StepsOfGraph
	}
	return StepsOfOneRow
}

const everySteps = StepsOfOneRow | StepsOfSeveralRows | StepsOfGraph

// OptionTable lists the options that flags give, in the order of help and of the search.
func OptionTable() []Option { return slices.Clone(optionTable) }

var optionTable = []Option{
	{Field: "SMs", Flag: "sms", Most: maxSMs, Usage: fmt.Sprintf("SMs to use, a CTA on each, up to %d (default %d)", maxSMs,
		DefaultSMs)},
	{Field: "Page", Flag: "page", Usage: fmt.Sprintf("tokens of a KV page, a power of two up to 1024 (default %d)",
		DefaultPage)},
	{Field: "KV", Flag: "kv", Usage: "`format` of the KV cache: bf16, or e4m3, half the bytes",
		Default: string(attention.KVBF16)},
	{Field: "Weights", Flag: "weight-format", Default: string(pipeline.FormatBF16),
		Usage: "`format` of the layers' matrices: bf16; e4m3, float8, or i8, integers, with a scale a row, half the bytes; e4m3b128, with a scale for 128 rows and columns; i4g128, i4g64, " +
			"i4g32 or i4, 4 bits with a scale for that many columns or a row; mxfp4, floats of 4 bits with powers of two for 32 columns; nvfp4, with e4m3 scales for 16; of integers and floats of 4 bits several, as in i4g128,down=i8. Weights are rounded to it"},
	{Field: "Head", Flag: "head-format", Default: string(pipeline.FormatBF16),
		Usage: "`format` of the LM head: bf16, or one of --weight-format; an embedding that is tied to it stays bf16 beside it"},
	{Field: "Attention", Flag: "attention",
		Usage: "`kind` of attention (default causal): window=N, streaming=N, either with +sinks=N, softcap=X, alibi, sigmoid=X, head-scale, mask, with + between them; several with / are taken by layers in turn, as in window=128/causal"},
	{Field: "Tokens", Flag: "rows", Most: kv.MaxRows,
		Usage: "query rows of a step, up to 16: tokens of as many sequences, or several of one (default 1)"},
	{Field: "Selection", Flag: "selection",
		Usage: "sequences may select the pages that a KV head attends to; with --rows"},
	{Field: "Draws", Flag: "draws", Usage: "rows may draw their tokens in the kernel (default: where requests want it)"},
	{Field: "Launch", Flag: "launch", Group: OptionGraph, Default: string(LaunchSingle),
		Usage: "`how` a step is launched: single, one kernel; graph, a kernel for each phase in a CUDA graph"},
	{Field: "Dependents", Flag: "dependents", Group: OptionGraph, Searched: StepsOfGraph,
		Usage:  "with --launch graph, `when` a kernel lets the next one start: start, at once; waited, when the one before has ended; streamed, when its last copies are under way; ended, when it has ended itself (default start)",
		Values: func(*Kernel) []string { return texts(AllDependents()) }},
	{Field: "Resident", Flag: "resident", Group: OptionGraph, Searched: StepsOfGraph,
		Usage: fmt.Sprintf("with --launch graph, kernels that fit side by side on an SM, up to 4 (default %d)",
			DefaultResident),
		Values: func(*Kernel) []string { return numbers(1, 2, 3) }},
	{Field: "StageBytes", Flag: "stage-bytes", Group: OptionTuning, Searched: everySteps,
		Usage: "bytes of a stage, a multiple of 128 (default: by the model)", Values: func(mk *Kernel) []string {
			var sizes []int
			for _, size := range []int{8 << 10, 16 << 10, 32 << 10} {
				sizes = append(sizes, max(mk.Options.Weights.StageOf(size), mk.Options.Head.StageOf(size)))
			}
			return numbers(sizes...)
		}},
	{Field: "Stages", Flag: "stages", Group: OptionTuning, Searched: everySteps,
		Usage: "depth of the ring, up to 32 (default: what fits)", Values: func(mk *Kernel) []string {
			fit := mk.planning(func(o *Options) { o.Stages, o.InFlight, o.Leads = 0, 0, "" }).Stages
			return numbers(fit, fit*3/4, fit/2)
		}},
	{Field: "InFlight", Flag: "in-flight", Group: OptionTuning, Searched: everySteps,
		Usage:  "bulk copies in flight, up to the stages (default 3, or 4 where every product of the model is long)",
		Values: func(*Kernel) []string { return numbers(1, 2, 3, 4, 5, 6) }},
	{Field: "Leads", Flag: "leads", Group: OptionTuning, Searched: everySteps,
		Usage:  "`chunks:copies`: fewer bulk copies in flight while the consumers are that many chunks behind, with commas between several, or none (default 4:2 where 3 are in flight, 5:2 where 4 are; none in rings of under 8 stages, and of --rows with 4-bit weights)",
		Values: func(mk *Kernel) []string { return leadsAround(mk.Options.InFlight) }},
	{Field: "Held", Flag: "held", Group: OptionTuning, Searched: StepsOfOneRow, Zero: true, Most: MaxHeld,
		Usage:  "chunks of a product, up to 8, that consumers take into registers while they wait for its input (default 4, or 5 with 4 copies in flight and leads where the hidden size is 4096 at most; fewer of large stages or few warps; 0 with 12 warps or --rows)",
		Values: func(*Kernel) []string { return numbers(0, 1, 2, 3, 4, 5, 6) }},
	{Field: "Consumers", Flag: "consumers", Group: OptionTuning, Searched: everySteps, Most: maxConsumers,
		Usage: fmt.Sprintf("consumer warps, 1 to %d; from 12 on nvcc may spill registers (default %d, one less for heads wider than 176, %d for one row of mxfp4 and nvfp4)",
			maxConsumers, DefaultConsumers, floatConsumers),
		Values: func(*Kernel) []string { return numbers(6, 7, 8, 10, 11) }},
	{Field: "Splits", Flag: "splits", Group: OptionTuning, Searched: StepsOfOneRow | StepsOfGraph, Most: maxSplits,
		Usage: "parts of the KV cache, up to 128 (default: as many as fill the SMs, or two thirds of those where they are more than 16; 16 where most layers have a short window)",
		Values: func(mk *Kernel) []string {
			fill := mk.planning(func(o *Options) { o.Splits = 0 }).Splits
			return numbers(fill/2, fill, 2*fill, 8, 16, 32)
		}},
	{Field: "Unsplit", Flag: "unsplit", Group: OptionTuning, Zero: true, Most: maxPositions,
		Usage: "cached tokens up to which one SM works on all of a KV head, so that no partial states are merged (default 32 a consumer warp, but at most 128 KiB of a KV head; 0 with one split, --merge phase or --rows)"},
	{Field: "Queries", Flag: "queries", Group: OptionTuning, Searched: StepsOfOneRow,
		Usage:  "`how` queries reach attention: barrier, or words, which an SM waits for where it needs them (default what costs least: words on an H200; with --rows barrier)",
		Values: func(*Kernel) []string { return texts(Syncs()) }},
	{Field: "Merge", Flag: "merge", Group: OptionTuning, Searched: StepsOfOneRow | StepsOfGraph,
		Usage:  "`where` attention's partial states are merged: phase, by all SMs behind a barrier; words, by the SMs that have them, a share each (default what costs least: words on an H200; with --rows the plan of a launch says)",
		Values: func(*Kernel) []string { return texts(Mergings()) }},
	{Field: "Vectors", Flag: "vectors", Group: OptionTuning, Searched: StepsOfOneRow,
		Usage:  "`how` the vectors of attention, o and down reach the next phase: barrier; counted, LL packets that SMs look for when all have arrived; all, gate_up's too (default what costs least: on an H200 counted, or all where all weights of layers are integers of 4 bits without zero points and the MLP has up to 14336 elements; with --rows barrier)",
		Values: func(*Kernel) []string { return texts(VectorWays()) }},
	{Field: "MLP", Flag: "mlp", Group: OptionTuning, Default: string(MLPRows),
		Usage: "`how` the MLP's down projection gets its input: rows, behind a sync; fused, for comparison only: each SM multiplies what it has computed itself and adds to the others' sums, so that the last bits of results differ from run to run"},
	{Field: "Watchdog", Flag: "watchdog", Group: OptionTuning, Default: string(WatchGrid),
		Usage: "waits at which a launch that hangs can be given up: grid, those for other SMs; all, somewhat slower; none"},
	{Field: "GraphSteps", Flag: "graph-steps", Group: OptionGraph, Searched: StepsOfGraph,
		Usage:  "with --launch graph, steps that a launch of the graph makes, up to 64 (default 1)",
		Values: func(*Kernel) []string { return numbers(1, 4, 16) }},
}

// OptionOf returns the row of a flag; false: there is none.
func OptionOf(flag string) (Option, bool) {
	i := slices.IndexFunc(optionTable, func(o Option) bool { return o.Flag == flag })
	if i < 0 {
		return Option{}, false
	}
	return optionTable[i], true
}

// FlagOf returns the flag of a field of Options; "": it has none.
func FlagOf(field string) string {
	for _, o := range optionTable {
		if o.Field == field {
			return o.Flag
		}
	}
	return ""
}

// SearchedOptions lists the rows that mkgen tune searches for such steps.
func SearchedOptions(of Steps) (all []Option) {
	for _, o := range optionTable {
		if o.Searched&of != 0 {
			all = append(all, o)
		}
	}
	return all
}

func (r Option) field(o *Options) reflect.Value {
	return reflect.ValueOf(o).Elem().FieldByName(r.Field)
}

// Bool is whether the option is given or not given, without a value.
func (r Option) Bool() bool { return r.field(&Options{}).Kind() == reflect.Bool }

// Number is whether the option is a whole number.
func (r Option) Number() bool { return r.field(&Options{}).Kind() == reflect.Int }

// Want says which values Set takes.
func (r Option) Want() string {
	switch {
	case r.Bool():
		return "true or false"
	case r.Number():
		return fmt.Sprintf("a whole number from %d to %d", r.least(), r.most())
	}
	return "text"
}

func (r Option) least() int {
	if r.Zero {
		return 0
	}
	return 1
}

func (r Option) most() int {
	if r.Most == 0 {
		return math.MaxInt32
	}
	return r.Most
}

// Given is whether the option is not left open, or, of what is true or false, true.
func (r Option) Given(o Options) bool { return !r.field(&o).IsZero() }

// Get returns the option's value as Set takes it: of a number that is left open "0", and of Held and Unsplit where they
// are none.
func (r Option) Get(o Options) string {
	switch f := r.field(&o); f.Kind() {
	case reflect.Int:
		return strconv.Itoa(max(0, int(f.Int())))
	case reflect.Bool:
		return strconv.FormatBool(f.Bool())
	default:
		return f.String()
	}
}

// Set sets the option. What no kernel can have is refused when it is built, but numbers out of the option's range here.
func (r Option) Set(o *Options, text string) error {
	switch f := r.field(o); f.Kind() {
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 32)
		if err == nil && (int(n) < r.least() || int(n) > r.most()) {
			err = errors.New("out of range")
		}
		if err != nil {
			return err
		}
		if n == 0 {
			n = HeldNone
		}
		f.SetInt(n)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return err
		}
		f.SetBool(b)
	default:
		f.SetString(text)
	}
	return nil
}

// Copy gives to what from has.
func (r Option) Copy(to *Options, from Options) { r.field(to).Set(r.field(&from)) }

// Recorded returns the options as files have them: what a file leaves out is the zero value. That are defaults, and of
// several rows what the plan of a launch says.
func (o Options) Recorded() Options {
	if o.KV == attention.KVBF16 {
		o.KV = ""
	}
	o.Weights, o.Head = pipeline.Format(o.otherWeights()), pipeline.Format(o.otherHead())
	if o.Tokens == 1 {
		o.Tokens = 0
	}
	if o.Tokens > 1 {
		o.Queries, o.Merge, o.Vectors = "", "", ""
	}
	if o.Launch == LaunchSingle {
		o.Launch = ""
	}
	o.MLP, o.Held, o.Unsplit = o.OtherMLP(), max(0, o.Held), max(0, o.Unsplit)
	o.SharedLimit, o.Trace, o.Probe, o.Fault = 0, 0, false, NoFault
	return o
}

// laidOut returns the kernel's options as layout.json has them: all that was chosen, leads as text, "none" without any.
// What a kernel has not is left out, and what files leave out as usual: weights and an LM head of bf16, an MLP by rows,
// a step of one launch.
func (mk *Kernel) laidOut() Options {
	o := mk.Options
	files := o.Recorded()
	o.Weights, o.Head, o.Launch, o.MLP = files.Weights, files.Head, files.Launch, files.MLP
	o.Held, o.Unsplit = files.Held, files.Unsplit
	o.Leads = pipeline.ThrottlesText(mk.Plan.Throttles)
	return o
}

// planning is what the planner makes of the kernel's options with something left open; the kernel's own where it
// refuses that.
func (mk *Kernel) planning(open func(*Options)) Options {
	o := mk.Options
	open(&o)
	if built, err := Build(mk.Config, o); err == nil {
		return built.Options
	}
	return mk.Options
}

// leadsAround are candidates beside a number of copies in flight: none, and fewer copies from one or a few chunks more
// on.
func leadsAround(inFlight int) []string {
	list := []string{pipeline.ThrottlesText(nil)}
	for _, ahead := range []int{1, 2, 4} {
		for _, fewer := range []int{1, 2} {
			list = append(list, pipeline.ThrottlesText([]pipeline.Throttle{
				{Chunks: inFlight + ahead, InFlight: inFlight - fewer}}))
		}
	}
	return list
}

func numbers(all ...int) (list []string) {
	for _, n := range all {
		list = append(list, strconv.Itoa(n))
	}
	return list
}

func texts[T ~string](all []T) (list []string) {
	for _, t := range all {
		list = append(list, string(t))
	}
	return list
}
