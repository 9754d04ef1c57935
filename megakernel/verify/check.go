package verify

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel"
)

// minSteps is the number of steps below which the KV cache's new tokens stay in
// one page.
const minSteps = 2

// StepsError is a Request of fewer steps than a check needs.
type StepsError struct{ Steps int }

func (e *StepsError) Error() string {
	unit := "steps"
	if e.Steps == 1 {
		unit = "step"
	}
	return fmt.Sprintf("verify: %d %s, want at least %d, so that the new tokens cross a page boundary", e.Steps, unit,
		minSteps)
}

// Check runs a check; it is a Checker. A few seconds for the registered models
// and four schedules, on two cores. A kernel that megakernel.Build refuses, real
// or shrunk, is an error.
func Check(ctx context.Context, r Request) (*Report, error) {
	return check(ctx, r, func(k *ir.Kernel) (*ir.Kernel, error) { return k, nil })
}

// check is Check of the shrunk kernel as edit leaves it.
func check(ctx context.Context, r Request, edit func(*ir.Kernel) (*ir.Kernel, error)) (*Report, error) {
	switch {
	case r.Seeds < 1:
		return nil, fmt.Errorf("verify: %d seeds, want at least 1", r.Seeds)
	case r.Steps < minSteps:
		return nil, &StepsError{r.Steps}
	}
	if r.Pin != 0 && r.Options.Tokens < 2 {
		return nil, &PinError{Pin: r.Pin}
	}
	seeds, err := r.schedules()
	if err != nil {
		return nil, err
	}
	if r.Prefill > 0 {
		return checkPrefill(ctx, r, seeds, edit)
	}
	real, err := megakernel.Build(r.Config, r.Options)
	if err != nil {
		return nil, err
	}
	small, err := fit(real, r.Options, r.Steps)
	if err != nil {
		return nil, fmt.Errorf("verify: the kernel with shrunk sizes: %w", err)
	}
	if real.Ragged() {
		return checkRagged(ctx, r, seeds, real, small, edit)
	}
	t, err := NewTrial(small, r.Steps)
	if err != nil {
		return nil, err
	}
	t.wish = within(small)
	k, err := edit(small.IR)
	if err != nil {
		return nil, err
	}
	report := &Report{Model: real.Config.Name, Steps: r.Steps}
	report.Equal, report.Shrunk = compare(real, small, t.context+t.steps)
	runs, err := t.seeds(ctx, k, seeds)
	if err != nil {
		return nil, err
	}
	t.judge(report, runs, real)
	if len(report.Findings) > 0 { // what is found at small sizes is read more easily
		return report, nil
	}
	ran := executed{}
	for _, run := range runs {
		ran.add(k, run.ran.ran)
	}
	if r.Wide {
		if err := checkWide(ctx, report, real, edit, ran); err != nil {
			return nil, err
		}
	}
	report.Coverage = ran.of(real.IR)
	return report, nil
}

// workers is how many schedules run at a time.
func workers() int { return runtime.GOMAXPROCS(0) }

// seeds runs k under these seeds, as many at a time as there are cores.
func (t *Trial) seeds(ctx context.Context, k *ir.Kernel, seeds []uint64) ([]*Run, error) {
	n := len(seeds)
	runs, errs := make([]*Run, n), make([]error, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, workers()) {
		wg.Go(func() {
			for i := range next {
				runs[i], errs[i] = t.Run(ctx, k, seeds[i])
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return runs, errors.Join(errs...)
}
