package verify

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/engine/runtime"
)

// givenUp has the host give a launch up somewhere in its middle. Every warp must
// leave it, with nothing in flight and no access out of place, and the launch
// after it must leave the same logits as ever.
func (x *session) givenUp(r *Run) error {
	t := x.t
	if len(t.mk.Sites) == 0 {
		return nil
	}
	r.ran.mayGiveUp = true
	last := x.sim.Last.Steps
	if err := x.s.Rewind(t.context); err != nil {
		return err
	}
	x.s.HangTimeout = time.Minute // the executor says when
	defer func() { x.s.HangTimeout = 0 }()
	x.sim.ClaimStuck(rand.New(rand.NewPCG(r.seed, 0x67697665)).Int64N(max(last*3/4, 1)))
	_, err := x.s.Generate(t.tokens, 1)
	var hang *runtime.HangError
	var fault *interp.Fault
	switch {
	case errors.As(err, &fault):
		f := finding(fault, r.seed, 0)
		f.Text += " (in a launch that the host gave up)"
		r.Findings = append(r.Findings, f)
		return nil
	case err == nil: // it was through with all its waits
	case !errors.As(err, &hang):
		return err
	default:
		r.ran.gaveUp = true
		r.ran.count(x.sim.Last)
		if err := x.s.Rewind(t.context); err != nil {
			return err
		}
		if _, err := x.s.Generate(t.tokens, 1); errors.As(err, &fault) {
			r.Findings = append(r.Findings, finding(fault, r.seed, 0))
			return nil
		} else if err != nil {
			return err
		}
	}
	return x.sameLogits(r, "in a launch after one that was given up")
}
