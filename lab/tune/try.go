package tune

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/megakernel"
)

// Ahead compiles the kernel to begin with and what the first round tries against it, several
// at a time, as far as Before has no trial of it: for before the GPU is there, so that a
// search compiles beside it only what an incumbent brings up that was found on the way. A
// candidate that does not compile is no error here, but a trial of the search.
func (s *Search) Ahead(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	var kernels []*megakernel.Kernel
	start := ChoiceOf(s.Start)
	seen := []Choice{start}
	for _, name := range s.dimensions() {
		for _, mk := range s.candidates(s.Start, name) {
			c := ChoiceOf(mk)
			if _, ok := s.known(c, start); !ok && !slices.Contains(seen, c) {
				seen, kernels = append(seen, c), append(kernels, mk)
			}
		}
	}
	if len(kernels) > 0 {
		s.say("compiling %s before the GPU is used", plural.Of(len(kernels), "candidate"))
	}
	CompileAll(ctx, s.Measurer.Compile, kernels)
	return ctx.Err()
}

// candidates are those of a dimension that may be tried.
func (s *Search) candidates(incumbent *megakernel.Kernel, name string) []*megakernel.Kernel {
	kernels := slices.DeleteFunc(candidates(incumbent, name, s.dimensions()),
		func(mk *megakernel.Kernel) bool { return slices.Contains(s.beaten, ChoiceOf(mk)) })
	if s.Most > 0 {
		kernels = kernels[:min(s.Most, len(kernels))]
	}
	return kernels
}

// compile compiles the candidates that are not known yet, several at a time, before any
// of them is run; failed has their errors by index. After the time is over there is
// nothing to compile.
func (s *Search) compile(ctx context.Context, name string, incumbent *megakernel.Kernel,
	kernels []*megakernel.Kernel) (failed []error, err error) {
	failed = make([]error, len(kernels))
	if s.over() {
		return failed, ctx.Err()
	}
	open := make([]*megakernel.Kernel, len(kernels)) // nil: known
	n := 0
	for i, mk := range kernels {
		if _, ok := s.known(ChoiceOf(mk), ChoiceOf(incumbent)); ok {
			continue
		}
		if n++; n == 1 {
			s.say("%s: compiling", name)
		}
		open[i] = mk
	}
	_, failed = CompileAll(ctx, s.Measurer.Compile, open)
	return failed, ctx.Err()
}

// CompileAll compiles those kernels that are not nil, as many at a time as there are
// processors; compilers and failed have what became of each by index.
func CompileAll(ctx context.Context, compile func(context.Context, *megakernel.Kernel) (string, error),
	kernels []*megakernel.Kernel) (compilers []string, failed []error) {
	compilers, failed = make([]string, len(kernels)), make([]error, len(kernels))
	room := make(chan struct{}, runtime.NumCPU())
	var wait sync.WaitGroup
	for i, mk := range kernels {
		if mk == nil {
			continue
		}
		wait.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			compilers[i], failed[i] = compile(ctx, mk)
		})
	}
	wait.Wait()
	return compilers, failed
}

// look: the first look at a candidate is at one in look of the launches.
const look = 3

// Judged are how many launches a candidate has had, at each context, when it is judged: one
// that is slower by more than the noise in the first of them is measured no further, and one
// that is not better in the second.
func (s Setup) Judged() [3]int {
	return [3]int{(s.Launches + look - 1) / look, s.Launches, 2 * s.Launches}
}

// try measures a candidate beside the incumbent: a third of the launches; where that does
// not look slower the rest, and where all together look better as many again, each time in
// the other order. All launches are judged together.
func (s *Search) try(ctx context.Context, name string, candidate, incumbent *megakernel.Kernel,
	failed error) (t Trial, err error) {
	t = Trial{Dimension: name, Options: ChoiceOf(candidate), Against: ChoiceOf(incumbent)}
	if failed != nil {
		t.Error = failed.Error()
		return t, nil
	}
	s.say("%s %s against %s", name, t.Options.Value(name), t.Against.Value(name))
	var old, new []bench.Timing
	for turn, all := range s.Setup.Judged() {
		launches := all - t.Launches
		if launches == 0 {
			continue
		}
		pair := []*megakernel.Kernel{incumbent, candidate}
		if turn == 1 {
			slices.Reverse(pair)
		}
		for _, mk := range pair {
			got, err := s.Measurer.Measure(ctx, mk, launches)
			if err == nil {
				err = usable(got, s.Setup.Contexts)
			}
			switch {
			case ctx.Err() != nil:
				return t, ctx.Err()
			case err != nil && mk == incumbent:
				return t, fmt.Errorf("%s: %w", t.Against, err)
			case err != nil:
				return Trial{Dimension: name, Options: t.Options, Against: t.Against, Error: err.Error()}, nil
			case mk == incumbent:
				old = joined(old, got)
			default:
				new = joined(new, got)
			}
		}
		t.judge(new, old)
		t.Launches += launches
		if slower := t.Ratio-1 > t.Noise; slower || t.Launches >= s.Setup.Launches && !t.Better {
			return t, nil
		}
	}
	return t, nil
}

// joined are the launches of two measurements at the same contexts.
func joined(a, b []bench.Timing) []bench.Timing {
	if a == nil {
		return b
	}
	all := make([]bench.Timing, len(a))
	for i := range a {
		all[i] = bench.Timing{Context: a[i].Context,
			Launches: append(append([]float64(nil), a[i].Launches...), b[i].Launches...)}
	}
	return all
}
