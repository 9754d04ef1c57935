package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/tasks/draw"
)

// masked decodes freeSteps tokens in one launch whose host gives each step a mask of its own while the kernel runs:
// as soon as the step before has chosen or, under odd seeds, when no warp can go on without it. Launches of one step
// with the same masks must choose the same tokens and leave the same logits. It does nothing where the kernel does not
// draw.
func (x *session) masked(r *Run) error {
	t, step := x.t, 0
	if !t.mk.Draws() {
		return nil
	}
	if err := errors.Join(x.s.Rewind(t.context), x.s.SetDraw(t.maskedRule(0))); err != nil {
		return err
	}
	x.s.SetNextMask(func(int) []uint32 { return t.maskedRule(step).Mask })
	x.s.HangTimeout, x.sim.Late = time.Minute, r.seed%2 == 1 // the executor says when it hangs
	chosen, err := x.s.Stream(context.Background(), t.tokens[:1], freeSteps, func(int) bool { step++; return true })
	x.s.SetNextMask(nil)
	x.s.HangTimeout, x.sim.Late = 0, false
	var fault *interp.Fault
	var hang *runtime.HangError
	switch {
	case errors.As(err, &fault):
		r.Findings = append(r.Findings, finding(fault, r.seed, step))
		return nil
	case errors.As(err, &hang):
		r.Findings = append(r.Findings, Finding{Kind: interp.Deadlock.String(), Seed: r.seed, Step: step,
			Text: "a launch with masks for each step: " + hang.Error()})
		return nil
	case err != nil:
		return err
	}
	r.ran.count(x.sim.Last)
	for i, token := range chosen {
		if mask := t.maskedRule(i).Mask; mask[token/32]>>(token%32)&1 == 0 {
			r.Findings = append(r.Findings, Finding{Kind: "wrong token", Seed: r.seed, Step: i,
				Text: fmt.Sprintf("a launch with masks for each step chose %v, of which the mask of step %d bars %d", chosen, i,
					token)})
			return nil
		}
	}
	logits := make([]float32, t.mk.Config.Vocab)
	if err := x.s.Logits(logits); err != nil || !t.mk.Options.Repeatable() {
		return err
	}
	return x.replay(r, t.tokens[0], chosen, logits, func(i int) error { return x.s.SetDraw(t.maskedRule(i)) })
}

// greedy decodes two tokens in one launch that draws nothing, by a kernel that could.
func (x *session) greedy(r *Run) error { return x.two(r, draw.Rule{}, "a launch that draws nothing") }

// listed decodes two tokens in one launch that draws from few tokens and makes log-probabilities, of logits that
// nothing changes.
func (x *session) listed(r *Run) error {
	rule := draw.Rule{Row: sampling.Params{Temperature: 2, TopK: 5, TopP: 0.9, Seed: 12}.Row()}
	rule.SetTops(draw.MaxTops)
	return x.two(r, rule, "a launch that draws from few tokens")
}

// two decodes two tokens in one launch by a rule.
func (x *session) two(r *Run, rule draw.Rule, what string) error {
	t := x.t
	if !t.mk.Draws() {
		return nil
	}
	if err := errors.Join(x.s.Rewind(t.context), x.s.SetDraw(rule)); err != nil {
		return err
	}
	chosen, err := x.generate(r, t.tokens[0], 2)
	if err != nil || len(r.Findings) > 0 {
		return err
	}
	logits := make([]float32, t.mk.Config.Vocab)
	if err := x.s.Logits(logits); err != nil {
		return err
	}
	kind, wrong := "wrong token", drawn(chosen[1], logits, rule, t.context+2)
	if wrong == "" && rule.Tops() >= 0 {
		got, err := x.s.Logprobs(chosen[1])
		if err != nil {
			return err
		}
		kind, wrong = "wrong log-probabilities", scored(chosen[1], logits, got, rule.Tops())
	}
	if wrong != "" {
		r.Findings = append(r.Findings, Finding{Kind: kind, Seed: r.seed, Step: 1, Text: what + ": " + wrong})
	}
	return nil
}

// maskedRule is how a step of a launch with masks for each step draws its token: one in four may be chosen, others in
// the next step.
func (t *Trial) maskedRule(step int) draw.Rule {
	r := draw.Rule{Row: sampling.Params{Temperature: 2, TopK: 5, Seed: 11}.Row()}
	r.SetMask(slices.Repeat([]uint32{0x11111111 << (step % 4)}, draw.MaskWords(t.mk.Config.Vocab)))
	return r
}
