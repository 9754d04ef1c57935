package verify

import (
	"context"
	"fmt"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
)

// Explored is what exploring a model's kernel came to.
type Explored struct {
	What string // the kernel that was explored
	*interp.Exploration
}

// Explore runs a step of a kernel of one layer, 2 SMs and 1 consumer warp with the model's templates in different
// orders of its synchronising operations, up to the bounds. A fault of an execution is an error that is an
// *interp.Fault.
func Explore(ctx context.Context, config models.Config, options megakernel.Options,
	b interp.Bounds) (*Explored, error) {
	real, err := megakernel.Build(config, options)
	if err != nil {
		return nil, err
	}
	c, o := shrink(real)
	c.Layers, o.SMs, o.Consumers = 1, 2, 1
	mk, err := megakernel.Build(c, o)
	if err != nil {
		return nil, fmt.Errorf("explore: a kernel of one layer on 2 SMs: %w", err)
	}
	t, err := newTrial(mk, 1, 2)
	if err != nil {
		return nil, err
	}
	x, err := t.start(mk.IR, 1)
	if err != nil {
		return nil, err
	}
	x.sim.Explore = &b
	_, err = x.s.Step(t.tokens[0])
	what := fmt.Sprintf("a step of one layer of %s on 2 SMs with 1 consumer warp and a producer each, behind %d cached tokens", config.Name, t.context)
	return &Explored{what, x.sim.Explored}, err
}
