package tune

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
)

// Pairer is where an ablation's kernels run: two at a time, launched in turns.
type Pairer interface {
	// Compile is as in Measurer.
	Compile(ctx context.Context, mk *megakernel.Kernel) (compiler string, err error)
	// Judge runs the gate on a kernel; nil without a reference.
	Judge(ctx context.Context, mk *megakernel.Kernel) (*gate.Report, error)
	// Ceiling measures the streaming ceiling; nothing is loaded meanwhile.
	Ceiling(ctx context.Context) (ceiling.Measured, error)
	// Open loads a kernel beside what is loaded.
	Open(ctx context.Context, mk *megakernel.Kernel) (Launcher, error)
}

// Launcher is a loaded kernel: bench.Launcher.
type Launcher interface {
	// Launch launches the kernel with n tokens in the cache.
	Launch(cached int) (bench.Launch, error)
	// Reset brings its KV cache back to what it was at first.
	Reset() error
	Close() error
}

// Ablation measures variants of a kernel, which differ from it in one thing each, beside
// it.
type Ablation struct {
	Kernel   *megakernel.Kernel
	Most     int   // variants of a group at most; 0: all
	Codes    bool  // weights are a checkpoint's codes, which no other format has: there are no variants of formats
	Setup    Setup // as Search's
	Driver   string
	CUDA     string
	Pairer   Pairer
	Budget   time.Duration        // after which no variant is begun, from the ceiling on; 0: none
	Save     func(*Ablated) error // hears of what was measured after every variant
	Progress func(what string)    // hears what is done next; nil is allowed
	Now      func() time.Time     // nil: time.Now

	begun time.Time
	out   *Ablated
	own   []bench.Timing // the kernel's launches of the whole run
	bits  []string       // and what they computed, by context
}

// Run compiles the kernel and all variants, judges the kernel where there is a reference,
// measures the ceiling and then every variant. One that is refused, does not compile or
// fails is a row that says so. An error is that the kernel itself fails, does not pass the
// gate or computes something else from one launch to the next, or that the context ended;
// what was measured by then is returned, too, unless nothing was.
func (a *Ablation) Run(ctx context.Context) (*Ablated, error) {
	if a.Now == nil {
		a.Now = time.Now
	}
	if !a.Kernel.Options.Repeatable() {
		return nil, fmt.Errorf("the kernel itself is not repeatable, with --%s %s; want %s, of which that is a variant",
			MLPName, a.Kernel.Options.MLP, megakernel.MLPRows)
	}
	all := variants(a.Kernel, a.Most, !a.Codes)
	compiler, err := a.compile(ctx, all)
	if err != nil {
		return nil, err
	}
	a.out = a.record(compiler, all)
	if err := a.judge(ctx); err != nil {
		return nil, err
	}
	a.begun = a.Now()
	if a.out.Ceiling, err = a.Pairer.Ceiling(ctx); err != nil {
		return nil, err
	}
	a.say("loading the kernel")
	kernel, err := a.Pairer.Open(ctx, a.Kernel)
	if err != nil {
		return nil, err
	}
	err = a.measure(ctx, kernel, all)
	if err = errors.Join(err, kernel.Close()); a.out.Micros == nil {
		return nil, err
	}
	return a.out, err
}

func (a *Ablation) say(format string, args ...any) {
	if a.Progress != nil {
		a.Progress(fmt.Sprintf(format, args...))
	}
}

// compile compiles the variants, of which the first is the kernel itself. What does not
// compile loses its kernel.
func (a *Ablation) compile(ctx context.Context, all []variant) (compiler string, err error) {
	a.say("compiling the kernel and %d variants", len(all)-1)
	kernels := make([]*megakernel.Kernel, len(all))
	for i, v := range all {
		kernels[i] = v.kernel
	}
	compilers, failed := CompileAll(ctx, a.Pairer.Compile, kernels)
	if err := errors.Join(ctx.Err(), failed[0]); err != nil {
		return "", err
	}
	for i, err := range failed {
		if err != nil {
			all[i].kernel, all[i].problem = nil, fmt.Errorf("it does not compile: %w", err)
		}
	}
	return compilers[0], nil
}

// record is the file before anything was measured.
func (a *Ablation) record(compiler string, all []variant) *Ablated {
	setup := a.Setup.Of(a.Kernel)
	setup.Compiler = compiler
	r := &Ablated{What: AblationWhat, Format: AblationFormat, Setup: setup, Driver: a.Driver, CUDA: a.CUDA,
		Gate: bench.Ungated, Kernel: ChoiceOf(a.Kernel)}
	for _, v := range all {
		row := Row{Group: v.group, Differs: v.differs, Why: notYet}
		if v.kernel != nil {
			row.Options, row.Watchdog = ChoiceOf(v.kernel), string(v.kernel.Options.Watchdog)
		} else {
			row.Why = firstLine(v.problem)
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// judge runs the gate, which the kernel must pass.
func (a *Ablation) judge(ctx context.Context) error {
	report, err := a.Pairer.Judge(ctx, a.Kernel)
	if err != nil || report == nil {
		return err
	}
	if err := report.Err(); err != nil {
		return err
	}
	a.out.Gate, a.out.Judged = Gated, &report.Gate
	return nil
}

// measure measures every variant until the time is over; the first in any case, as the
// kernel's own time is of what stands beside it.
func (a *Ablation) measure(ctx context.Context, kernel Launcher, all []variant) error {
	a.own, a.bits = make([]bench.Timing, len(a.Setup.Contexts)), make([]string, len(a.Setup.Contexts))
	for i, v := range all {
		row := &a.out.Rows[i]
		if v.kernel == nil {
			continue
		}
		if i > 0 && a.Budget > 0 && a.Now().Sub(a.begun) >= a.Budget {
			row.Why = overTime
			continue
		}
		a.say("%s: %s", v.group, v.differs)
		if err := a.row(ctx, row, kernel, v.kernel); err != nil {
			return err
		}
		a.out.complete(a.own, all)
		if err := a.Save(a.out); err != nil {
			return err
		}
	}
	return a.Save(a.out)
}

// row measures a variant. Its own failures are what the row says.
func (a *Ablation) row(ctx context.Context, row *Row, kernel Launcher, mk *megakernel.Kernel) error {
	v, err := a.Pairer.Open(ctx, mk)
	if err == nil {
		var new, old []bench.Timing
		new, old, row.Bits, err = a.beside(ctx, kernel, v)
		if err = errors.Join(err, v.Close()); err == nil {
			err = usable(new, a.Setup.Contexts)
		}
		if err == nil {
			if !mk.Options.Repeatable() {
				row.Bits = NotRepeatable // though a few launches may be the same by chance
			}
			row.judge(new, old)
			row.Why = ""
			return nil
		}
	}
	var own *ownError
	if mk == a.Kernel && !errors.As(err, &own) { // its second copy
		err = &ownError{err}
	}
	if ctx.Err() != nil || errors.As(err, &own) {
		return errors.Join(ctx.Err(), err)
	}
	row.Why, row.Bits = firstLine(err), ""
	return nil
}

// ownError is a failure of the kernel that the others are variants of.
type ownError struct{ err error }

func (e *ownError) Error() string { return "the kernel itself: " + e.err.Error() }

func (e *ownError) Unwrap() error { return e.err }

// beside takes launches of both kernels in turns, now the one first and now the other, at
// every context after one of each that warms up and whose bits count, too.
func (a *Ablation) beside(ctx context.Context, kernel, v Launcher) (new, old []bench.Timing, bits Bits, err error) {
	if err := kernel.Reset(); err != nil { // v has just been loaded
		return nil, nil, "", &ownError{err}
	}
	bits = SameBits
	for c, cached := range a.Setup.Contexts {
		n, o := bench.Timing{Context: cached}, bench.Timing{Context: cached}
		first := ""
		for i := range 1 + a.Setup.Launches {
			for j := range 2 {
				if err := ctx.Err(); err != nil {
					return nil, nil, "", err
				}
				if (i+j)%2 == 0 {
					err = a.launchOwn(kernel, c, i > 0, &o)
				} else {
					err = launch(v, cached, i > 0, &n, &first, &bits)
				}
				if err != nil {
					return nil, nil, "", err
				}
			}
		}
		if first != a.bits[c] && bits != NotRepeatable {
			bits = OtherBits
		}
		new, old = append(new, n), append(old, o)
		a.own[c].Context = cached
		a.own[c].Launches = append(a.own[c].Launches, o.Launches...)
	}
	return new, old, bits, nil
}

// launchOwn launches the kernel at a context, by index. It must always compute the same.
func (a *Ablation) launchOwn(kernel Launcher, c int, counts bool, to *bench.Timing) error {
	l, err := kernel.Launch(to.Context)
	if err != nil {
		return &ownError{err}
	}
	if a.bits[c] == "" {
		a.bits[c] = l.Bits
	}
	if l.Bits != a.bits[c] {
		return &ownError{fmt.Errorf(
			"context %d: two launches from the same state computed different bits: it is not repeatable", to.Context)}
	}
	if counts {
		to.Launches = append(to.Launches, l.Micros)
	}
	return nil
}

func launch(v Launcher, cached int, counts bool, to *bench.Timing, first *string, bits *Bits) error {
	l, err := v.Launch(cached)
	if err != nil {
		return err
	}
	if *first == "" {
		*first = l.Bits
	}
	if l.Bits != *first {
		*bits = NotRepeatable
	}
	if counts {
		to.Launches = append(to.Launches, l.Micros)
	}
	return nil
}
