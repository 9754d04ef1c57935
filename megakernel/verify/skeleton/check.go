package skeleton

import (
	"context"
	"errors"
	"fmt"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
)

// Request is what a check is asked for.
type Request struct {
	Config  models.Config      // the real model
	Options megakernel.Options // as for megakernel.Build; one row a step, and no graph
	Layers  int                // that the kernel runs; 0: 2, or as many as the model has
	Steps   int                // of the first launch, the others make one; 0: 3
	// Contexts are how many tokens the cache holds before each launch, at least 1 each, in
	// ascending order; nil: 100, 5000 and 33000. Those that the model has no positions for
	// become the largest possible.
	Contexts []int
	Seed     uint64 // chooses schedule and page table
	// Races checks happens-before and lets loads return older values; takes about five times as long.
	Races bool
}

// complete fills in what was left open.
func (r Request) complete() (Request, error) {
	switch {
	case r.Options.Tokens > 1:
		return r, fmt.Errorf("skeleton: a kernel of %d rows a step, want one of 1", r.Options.Tokens)
	case r.Layers < 0 || r.Layers > r.Config.Layers:
		return r, fmt.Errorf("skeleton: %d layers of %s, want 1 to %d", r.Layers, r.Config.Name, r.Config.Layers)
	case r.Steps < 0:
		return r, fmt.Errorf("skeleton: %d steps, want at least 1", r.Steps)
	}
	if r.Layers == 0 {
		r.Layers = min(2, r.Config.Layers)
	}
	if r.Steps == 0 {
		r.Steps = 3
	}
	if r.Contexts == nil {
		r.Contexts = []int{100, 5000, 33000}
	}
	var contexts []int
	for i, n := range r.Contexts {
		n = min(n, r.Config.MaxPositions-r.steps(i))
		if n < 1 {
			return r, fmt.Errorf("skeleton: a context of %d tokens, want at least 1", n)
		}
		if k := len(contexts); k > 0 && contexts[k-1]+r.steps(k-1) > n {
			continue
		}
		contexts = append(contexts, n)
	}
	r.Contexts = contexts
	return r, nil
}

// steps is how many launch i makes.
func (r *Request) steps(i int) int {
	if i > 0 {
		return 1
	}
	return r.Steps
}

// Check runs the launches, up to the first that something is wrong with. What is wrong with
// the kernel is in the report; the error is for what kept the check from running.
func Check(ctx context.Context, r Request) (*Report, error) {
	return check(ctx, r, func(k *ir.Kernel) (*ir.Kernel, error) { return k, nil })
}

// check is Check of the kernel as edit leaves it.
func check(ctx context.Context, r Request, edit func(*ir.Kernel) (*ir.Kernel, error)) (*Report, error) {
	r, err := r.complete()
	if err != nil {
		return nil, err
	}
	whole := r.Config.Layers
	r.Config.Layers = r.Layers
	mk, err := megakernel.Build(r.Config, r.Options)
	if err != nil {
		return nil, err
	}
	if mk.Graph != nil {
		return nil, errors.New("skeleton: a step that is a graph of kernels, want one kernel")
	}
	k, err := edit(mk.IR)
	if err != nil {
		return nil, err
	}
	k, counts := ir.Skeleton(k)
	report := &Report{Model: mk.Config.Name, SMs: mk.Options.SMs, Layers: r.Layers, OfLayers: whole, Seed: r.Seed,
		Races: r.Races, Roles: counts}
	d, err := open(ctx, mk, k, &r)
	if err != nil {
		return nil, err
	}
	for i, n := range r.Contexts {
		l, finding, err := d.launch(ctx, n, r.steps(i))
		if err != nil {
			return nil, err
		}
		report.Launches = append(report.Launches, *l)
		if finding != nil {
			report.Findings = append(report.Findings, *finding)
			break
		}
	}
	return report, nil
}

// launch runs one launch of n steps at context n.
func (d *device) launch(ctx context.Context, n, steps int) (*Launch, *Finding, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err := d.fillCache(n); err != nil {
		return nil, nil, err
	}
	w := newWatch(d, n, steps)
	d.sim.Options.Watch = w
	_, err := d.session.Generate([]int{firstToken}, steps)
	l := &w.launch
	if err == nil {
		l.Instructions = d.sim.Last.Steps
		err = w.end()
	}
	if err == nil {
		err = d.checkArrivals(steps)
	}
	if err == nil {
		return l, nil, nil
	}
	f := &Finding{Kind: "plan", Context: n, Text: err.Error()}
	var fault *interp.Fault
	if errors.As(err, &fault) {
		f.Kind, f.Text, f.Sides = fault.Kind.String(), fault.Text, fault.Sides
	} else if missing := new(missingError); errors.As(err, &missing) {
		f.Sides = missing.sides
	}
	return l, f, nil
}

// firstToken is what every launch is fed; any token does.
const firstToken = 1
