package tune

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/internal/jsonfile"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
)

// AblationWhat and AblationFormat say which files are an ablation's.
const (
	AblationWhat   = "ablation"
	AblationFormat = 2
)

// Gated is an ablation's Gate where the kernel that the variants differ from passed the
// gate in the same process; no variant is judged. Otherwise it is bench.Ungated.
const Gated = "the kernel is gated, the variants are not"

// Bits is how what a variant computed, tokens and the last step's logits, compares to what
// the kernel did.
type Bits string

// What is found.
const (
	SameBits      Bits = "same bits"
	OtherBits     Bits = "other bits"     // from launch to launch the same, as with another order of roundings
	NotRepeatable Bits = "not repeatable" // other ones from launch to launch, as found or as its options say
)

// Why a variant has no figures that could have some.
const (
	notYet   = "not measured yet"
	overTime = "not measured: the time was over"
)

// Ablated is the file of an ablation. It is no record: variants are not judged.
type Ablated struct {
	What   string `json:"what"`
	Format int    `json:"format"`
	Setup
	Driver  string           `json:"driver"`
	CUDA    string           `json:"cuda"`
	Gate    string           `json:"gate"` // Gated or bench.Ungated
	Judged  *gate.Record     `json:"judged,omitempty"`
	Ceiling ceiling.Measured `json:"ceiling"` // measured before the first variant
	Kernel  Choice           `json:"kernel"`  // what the variants differ from
	// µs a token (of several rows a step) at each context, the median of its launches beside all variants
	Micros []float64 `json:"us"`
	Share  []float64 `json:"share"` // of the ceiling
	Rows   []Row     `json:"variants"`
}

// Row is one variant.
type Row struct {
	Group    string    `json:"group"`
	Differs  string    `json:"differs"` // in mkgen's flags
	Options  Choice    `json:"options,omitzero"`
	Watchdog string    `json:"watchdog,omitempty"`
	Micros   []float64 `json:"us,omitempty"`        // at each context, the median of its launches
	Beside   []float64 `json:"beside_us,omitempty"` // and of the kernel's, taken in turns
	Share    []float64 `json:"share,omitempty"`     // of the ceiling
	Ratio    float64   `json:"ratio,omitempty"`     // Micros over Beside, the geometric mean over the contexts
	Noise    float64   `json:"noise,omitempty"`     // what a difference must be more than, as in Trial
	Bits     Bits      `json:"bits,omitempty"`
	Why      string    `json:"why,omitempty"` // there are no figures
}

// judge fills in the figures, by the rules of a search's trial.
func (r *Row) judge(variant, kernel []bench.Timing) {
	var t Trial
	t.judge(variant, kernel)
	r.Micros, r.Beside, r.Ratio, r.Noise = t.Micros, t.AgainstMicros, t.Ratio, t.Noise
}

// complete fills in what follows from all launches of the kernel, the first of the variants, and from the ceiling.
func (a *Ablated) complete(own []bench.Timing, all []variant) {
	a.Micros = medians(own)
	for i := range a.Micros {
		a.Micros[i] = math.Round(a.Micros[i]*1e3) / 1e3
	}
	a.Share = a.shares(all[0].kernel, a.Micros)
	for i := range a.Rows {
		if a.Rows[i].Micros != nil {
			a.Rows[i].Share = a.shares(all[i].kernel, a.Rows[i].Micros)
		}
	}
}

// shares are the parts of the ceiling at which bytes are read that must be.
func (a *Ablated) shares(mk *megakernel.Kernel, micros []float64) (all []float64) {
	for i, us := range micros {
		bytes := bench.BytesPerToken(mk.Config, mk.WeightBytes(), mk.KVTokenBytes(), a.Contexts[i], a.Tokens)
		if mk.Ragged() {
			bytes = bench.BytesPerStep(mk.Config, mk.WeightBytes(), mk.KVTokenBytes(), bench.Sequences, mk.Options.Tokens,
				a.Contexts[i], a.Tokens)
		}
		all = append(all, math.Round(1e4*bytes/us/1e3/a.Ceiling.GBps)/1e4)
	}
	return all
}

// Executor says that nothing in the file is a GPU's.
func (a *Ablated) Executor() bool { return a.GPU == bench.Executor{}.Facts().GPU }

// Odd are the rows that computed other bits although all they change is when something is
// computed, and those that are not repeatable and should be.
func (a *Ablated) Odd() (all []Row) {
	for _, r := range a.Rows {
		exactly := slices.Contains(exact, r.Group) && !a.splitsOtherwise(r)
		if r.Why == "" && r.Bits != SameBits && (exactly || r.Bits == NotRepeatable && r.Options.MLP != megakernel.MLPFused) {
			all = append(all, r)
		}
	}
	return all
}

// splitsOtherwise reports whether a row's kernel splits KV heads at a context at which the kernel that it differs from
// does not: no head is left whole where a phase merges partial states.
func (a *Ablated) splitsOtherwise(r Row) bool {
	return r.Options.Merge != a.Kernel.Merge && a.Setup.Options.Unsplit > 0 &&
		slices.Min(a.Contexts) <= a.Setup.Options.Unsplit
}

// Count is how many rows have figures.
func (a *Ablated) Count() (n int) {
	for _, r := range a.Rows {
		if r.Why == "" {
			n++
		}
	}
	return n
}

// Check says what is wrong with an ablation.
func (a *Ablated) Check() error {
	if a.What != AblationWhat || a.Format != AblationFormat {
		return fmt.Errorf("what is %q and format %d, want %q and %d", a.What, a.Format, AblationWhat, AblationFormat)
	}
	if err := a.Setup.check(); err != nil {
		return err
	}
	if (a.Gate == Gated) != (a.Judged != nil) || a.Gate != Gated && a.Gate != bench.Ungated {
		return fmt.Errorf("gate is %q, with what a gate found: %t; want %q with it or %q without", a.Gate, a.Judged != nil,
			Gated, bench.Ungated)
	}
	if err := a.Kernel.check(); err != nil {
		return fmt.Errorf("kernel: %w", err)
	}
	if len(a.Rows) == 0 {
		return errors.New("there are no rows, want at least one")
	}
	if n := a.Count(); n > 0 && len(a.Micros) != len(a.Contexts) {
		return fmt.Errorf("%d rows have figures and the kernel has %d, want one for each of %d contexts", n, len(a.Micros),
			len(a.Contexts))
	}
	for i := range a.Rows {
		if err := a.Rows[i].check(len(a.Contexts)); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	return nil
}

func (r *Row) check(contexts int) error {
	if r.Group == "" || r.Differs == "" {
		return fmt.Errorf("group is %q and differs is %q, want both", r.Group, r.Differs)
	}
	if r.Why != "" {
		if r.Micros != nil || r.Beside != nil || r.Bits != "" {
			return errors.New("it says why there are no figures and has some")
		}
		return nil
	}
	if err := r.Options.checkMeasured(); err != nil {
		return err
	}
	if len(r.Micros) != contexts || len(r.Beside) != contexts || len(r.Share) != contexts {
		return fmt.Errorf("it has figures of %d, %d and %d contexts, want %d", len(r.Micros), len(r.Beside), len(r.Share),
			contexts)
	}
	for _, x := range slices.Concat(r.Micros, r.Beside, []float64{r.Ratio, r.Noise}) {
		if !(x > 0) {
			return fmt.Errorf("a figure is %v, want all positive", x)
		}
	}
	if all := []Bits{SameBits, OtherBits, NotRepeatable}; !slices.Contains(all, r.Bits) {
		return fmt.Errorf("bits is %q, want %s", string(r.Bits), plural.Or(all))
	}
	return nil
}

// Other says in what an ablation is of something else than what is to be measured: not of
// this setup, by whatever compiler, or this kernel; nil: in nothing.
func (a *Ablated) Other(setup Setup, kernel Choice) error {
	setup.Compiler = a.Compiler
	if err := jsonfile.Differs(a.Setup, setup); err != nil {
		return err
	}
	if has, wants := a.Kernel.differs(kernel); has != wants {
		return fmt.Errorf("its kernel has %s, want %s", has, wants)
	}
	return nil
}

// ablatedKind is what an ablation is.
var ablatedKind = jsonfile.Kind{Name: "an ablation of mkgen bench --ablate", What: AblationWhat, Format: AblationFormat}

// ParseAblated reads a file strictly, as Parse does a profile.
func ParseAblated(data []byte) (*Ablated, error) {
	return jsonfile.ParseChecked[Ablated](data, ablatedKind)
}

// WriteFile checks the ablation and writes it whole or not at all; its directory is made.
func (a *Ablated) WriteFile(path string) error {
	if err := a.Check(); err != nil {
		return fmt.Errorf("no ablation is written: %w", err)
	}
	return jsonfile.Write(path, a)
}
