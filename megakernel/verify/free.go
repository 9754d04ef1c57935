package verify

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/dsl/interp"
)

// freeSteps is how many steps of one launch follow one another behind the LM head, each with
// the token that the step before it has chosen.
const freeSteps = 3

// free decodes freeSteps tokens in one launch, as they are in use, and then the same
// tokens in a launch for each. Both must choose the same tokens and leave the same logits.
func (x *session) free(r *Run) error {
	t := x.t
	var chosen []int
	var first int
	for _, first = range t.tokens { // until one leads to different tokens
		if err := x.s.Rewind(t.context); err != nil {
			return err
		}
		var err error
		var fault *interp.Fault
		if chosen, err = x.s.Generate([]int{first}, freeSteps); errors.As(err, &fault) {
			r.Findings = append(r.Findings, finding(fault, r.seed, 0))
			return nil
		} else if err != nil {
			return err
		}
		r.ran.count(x.sim.Last)
		if differentTokens(chosen) > 1 {
			break
		}
	}
	logits := make([]float32, t.mk.Config.Vocab)
	if err := x.s.Logits(logits); err != nil {
		return err
	}
	r.ran.free = differentTokens(chosen)
	if !t.mk.Options.Repeatable() {
		return nil // another sum may have chosen another token
	}
	if err := x.replay(r, first, chosen, logits, func(int) error { return nil }); err != nil || len(r.Findings) > 0 {
		return err
	}
	return x.stopToken(r, first, chosen)
}

// stopToken runs the launch again with a stop token among those it chose: the launch must end with
// it. One behind it, without it, must choose the rest.
func (x *session) stopToken(r *Run, token int, chosen []int) error {
	at := 0
	if len(chosen) > 2 && chosen[1] != chosen[0] {
		at = 1 // a step has read a token back before the launch ends
	}
	if err := x.s.Rewind(x.t.context); err != nil {
		return err
	}
	if err := x.s.SetEnds(endTokens(chosen[at], r.seed)); err != nil {
		return err
	}
	got, err := x.generate(r, token, len(chosen))
	if err := errors.Join(err, x.s.SetEnds(nil)); err != nil || got == nil {
		return err
	}
	if !slices.Equal(got, chosen[:at+1]) {
		r.Findings = append(r.Findings, Finding{Kind: "wrong token", Seed: r.seed, Text: fmt.Sprintf(
			"a launch with the stop token %d chose %v, want %v", chosen[at], got, chosen[:at+1])})
		return nil
	}
	want := chosen[at+1:]
	if got, err = x.generate(r, chosen[at], len(want)); err != nil || got == nil {
		return err
	}
	if r.ran.stopped = slices.Equal(got, want); !r.ran.stopped {
		r.Findings = append(r.Findings, Finding{Kind: "wrong token", Seed: r.seed, Step: at + 1,
			Text: fmt.Sprintf("behind a stop token a launch chose %v, want %v", got, want)})
	}
	return nil
}

// generate feeds a token and returns the n that one launch chooses, or nil where a fault or an
// error ended it.
func (x *session) generate(r *Run, token, n int) ([]int, error) {
	chosen, err := x.s.Generate([]int{token}, n)
	var fault *interp.Fault
	if errors.As(err, &fault) {
		r.Findings = append(r.Findings, finding(fault, r.seed, 0))
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	r.ran.count(x.sim.Last)
	return chosen, nil
}

// replay runs the steps of one launch, which began with a token, in a launch for each. rule says how a step draws.
func (x *session) replay(r *Run, token int, chosen []int, last []float32, rule func(step int) error) error {
	t := x.t
	if err := x.s.Rewind(t.context); err != nil {
		return err
	}
	logits := make([]float32, len(last))
	for i, want := range chosen {
		if err := rule(i); err != nil {
			return err
		}
		next, err := x.s.Step(token)
		var fault *interp.Fault
		if errors.As(err, &fault) {
			r.Findings = append(r.Findings, finding(fault, r.seed, i))
			return nil
		} else if err != nil {
			return err
		}
		if next != want {
			r.Findings = append(r.Findings, Finding{Kind: "wrong token", Seed: r.seed, Step: i,
				Text: fmt.Sprintf("step %d of one launch chose %d, a launch for each step %d", i, want, next)})
			return nil
		}
		token = want
	}
	if err := x.s.Logits(logits); err != nil {
		return err
	}
	for i, v := range last {
		if math.Float32bits(v) != math.Float32bits(logits[i]) {
			r.Findings = append(r.Findings, Finding{Kind: "wrong value", Seed: r.seed, Step: len(chosen) - 1,
				Text: fmt.Sprintf("logit %d is %g after one launch of %d steps, %g after a launch for each",
					i, v, len(chosen), logits[i])})
			return nil
		}
	}
	return nil
}

// differentTokens is how many different tokens are in the list.
func differentTokens(tokens []int) int {
	sorted := slices.Sorted(slices.Values(tokens))
	return len(slices.Compact(sorted))
}
