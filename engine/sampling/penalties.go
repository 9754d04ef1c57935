package sampling

import (
	"fmt"
	"math"

	"github.com/mkgen/mkgen/tasks/draw"
)

// Penalties change logits before a token is chosen, greedily or by a draw. The zero value changes none.
type Penalties struct {
	// Repetition is transformers' repetition_penalty: logits of tokens that the prompt or the answer has are
	// divided by it where they are positive, else multiplied. 0 or 1 for none.
	Repetition float64
	// Presence and Frequency are OpenAI's: a token of the answer loses Presence, and Frequency times as often
	// as it is there.
	Presence, Frequency float64
	// Bias is added to the logits of its tokens, before all else, in float32. -inf rules a token out.
	Bias map[int]float64
}

// leastRepetition keeps a logit and its quotient far from what float32 cannot hold.
const leastRepetition = 1e-3

// None reports whether nothing changes.
func (p *Penalties) None() bool {
	return (p.Repetition == 0 || p.Repetition == 1) && p.Presence == 0 && p.Frequency == 0 && len(p.Bias) == 0
}

// Check refuses what cannot be, with a *RangeError.
func (p *Penalties) Check(vocab int) error {
	finite := func(x float64) bool { return math.Abs(x) <= math.MaxFloat32 } // not NaN
	switch {
	case p.Repetition != 0 && !(p.Repetition >= leastRepetition && p.Repetition <= 1/leastRepetition):
		return &RangeError{"Repetition", fmt.Sprintf("found %v, want %v to %v, or 0 for none", p.Repetition,
			leastRepetition, 1/leastRepetition)}
	case !finite(p.Presence):
		return &RangeError{"Presence", fmt.Sprintf("found %v, want a finite number", p.Presence)}
	case !finite(p.Frequency):
		return &RangeError{"Frequency", fmt.Sprintf("found %v, want a finite number", p.Frequency)}
	}
	for token, x := range p.Bias {
		if token < 0 || token >= vocab {
			return &RangeError{"Bias", fmt.Sprintf("found token %d, want 0 to %d", token, vocab-1)}
		}
		if !finite(x) && !math.IsInf(x, -1) {
			return &RangeError{"Bias", fmt.Sprintf("found %v for token %d, want a finite number or -inf", x, token)}
		}
	}
	return nil
}

// Rule is p, penalties and what ends a text (each of ends, but not before least tokens are chosen) as a kernel and
// Sample take them, for the answer to a prompt. All must have passed Check; ends are tokens.
func (p Params) Rule(penalties *Penalties, prompt, ends []int, least int) draw.Rule {
	r := draw.Rule{Row: p.Row()}
	if penalties.None() && least == 0 {
		return r
	}
	r.History = draw.NewHistory(prompt)
	for token, x := range penalties.Bias {
		r.History.Bias(token, float32(x))
	}
	for _, token := range ends {
		r.History.End(token)
	}
	repetition := penalties.Repetition
	if repetition == 0 {
		repetition = 1
	}
	r.Row[draw.RowFlags] |= draw.FlagChanges
	r.Row[draw.RowInverse] = math.Float32bits(1 / float32(repetition))
	r.Row[draw.RowRepetition], r.Row[draw.RowPresence], r.Row[draw.RowFrequency] = f32(repetition),
		f32(penalties.Presence), f32(penalties.Frequency)
	r.Row[draw.RowLeast] = uint32(len(prompt) + least)
	return r
}
