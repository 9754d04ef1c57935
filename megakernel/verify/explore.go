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
// orders of its synchronising operations, up to the bounds. A kernel whose consumers get the registers of idle warps
// keeps all of them. A fault of an execution is an error that is an *interp.Fault.
func Explore(ctx context.Context, config models.Config, options megakernel.Options,
	b interp.Bounds) (*Explored, error) {
	real, err := megakernel.Build(config, options)
	if err != nil {
		return nil, err
	}
	c, o := shrink(real)
	c.Layers, o.SMs = 1, 2
	if real.IR.Warps == real.Options.Consumers+1 {
		o.Consumers = 1
	}
	mk, err := megakernel.Build(c, o)
	if err != nil {
		return nil, fmt.Errorf("explore: a kernel of one layer on 2 SMs: %w", err)
	}
	if mk.Ragged() {
		return exploreRows(ctx, mk, b)
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
	return &Explored{layerOf(mk) + fmt.Sprintf(", behind %d cached tokens", t.context), x.sim.Explored}, err
}

// exploreRows is Explore of a kernel of several rows a step: a launch of two sequences, one of which is fed one token
// and the other as many as the step takes.
func exploreRows(ctx context.Context, mk *megakernel.Kernel, b interp.Bounds) (*Explored, error) {
	x, err := newRaggedTrial(mk, 1, 0).start(mk.IR, 1, 1)
	if err != nil {
		return nil, err
	}
	s := shape{parts: []part{{sequence: x.texts[0], new: mk.Options.Tokens - 1}, {sequence: x.texts[1], new: 1}}}
	q, err := x.request(&s)
	if err != nil {
		return nil, err
	}
	if err := x.r.SetDraws(x.rules(s)...); err != nil {
		return nil, err
	}
	x.sim.Explore = &b
	_, err = x.r.Launch(ctx, q, nil)
	return &Explored{layerOf(mk) + fmt.Sprintf(", %d rows of 2 sequences", mk.Options.Tokens), x.sim.Explored}, err
}

// layerOf is what is explored of a kernel.
func layerOf(mk *megakernel.Kernel) string {
	return fmt.Sprintf("a step of one layer of %s on 2 SMs with %s each", mk.Config.Name, rolesOf(mk.IR))
}
