package tune_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/lab/tune"
	"github.com/mkgen/mkgen/megakernel"
)

// field is a Pairer whose times and bits are functions of the options.
type field struct {
	micros   func(megakernel.Options) float64
	bits     func(o megakernel.Options, launch int) string // nil: the same for all
	refused  func(megakernel.Options) error                // what does not compile
	broken   func(o megakernel.Options, launch int) error  // what does not run
	report   *gate.Report
	before   func(launches int) // hears before each launch
	drift    float64            // each launch is so much slower than the one before, as a part
	launches int                // of all kernels
	running  []*runner          // that are loaded
	order    []megakernel.Options
	most     int // loaded at a time
	room     int // for this many kernels at a time; 0: for all

	mu       sync.Mutex
	compiled int
	early    int // compiled when the first was loaded
}

func (f *field) Compile(_ context.Context, mk *megakernel.Kernel) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.compiled++
	if f.refused != nil {
		return "fake 1.0", f.refused(mk.Options)
	}
	return "fake 1.0", nil
}

func (f *field) Judge(context.Context, *megakernel.Kernel) (*gate.Report, error) {
	return f.report, nil
}

func (f *field) Ceiling(context.Context) (ceiling.Measured, error) {
	return ceiling.Measured{GBps: 4000}, nil
}

func (f *field) Open(ctx context.Context, mk *megakernel.Kernel) (tune.Launcher, error) {
	if f.early == 0 {
		f.early = f.compiled
	}
	if f.room > 0 && len(f.running) == f.room {
		return nil, errors.New("out of memory")
	}
	r := &runner{f: f, options: mk.Options}
	f.running = append(f.running, r)
	f.most = max(f.most, len(f.running))
	return r, ctx.Err()
}

// runner is a kernel on a field.
type runner struct {
	f        *field
	options  megakernel.Options
	launches int
}

func (r *runner) Reset() error { return nil }

func (r *runner) Close() error {
	for i, other := range r.f.running {
		if other == r {
			r.f.running = append(r.f.running[:i:i], r.f.running[i+1:]...)
		}
	}
	return nil
}

func (r *runner) Launch(cached int) (l bench.Launch, err error) {
	f := r.f
	if f.before != nil {
		f.before(f.launches)
	}
	f.launches++
	r.launches++
	f.order = append(f.order, r.options)
	if f.broken != nil {
		err = f.broken(r.options, r.launches)
	}
	l = bench.Launch{Micros: f.micros(r.options) * (1 + float64(cached)/1000) * (1 + f.drift*float64(f.launches)),
		Bits: fmt.Sprint(cached)}
	if f.bits != nil {
		l.Bits += f.bits(r.options, r.launches)
	}
	return l, err
}
