// Package sampling draws a token from logits, as Hugging Face transformers'
// generate does with do_sample: temperature, then top-k, then top-p, then min-p,
// each with the definition of transformers' logits processor of that name, then
// one draw from the softmax of what is left.
//
// The draw is a pure function of the logits, the settings and the token's
// position, so that a generation that is interrupted and taken up again, or
// repeated, is the same. transformers draws from another generator: the
// distributions are equal, the tokens are not.
package sampling

import (
	"fmt"
	"math"
)

// Params say how a token is drawn. The zero value means greedy: the token with
// the highest logit, without any draw.
type Params struct {
	Temperature float64 // logits are divided by it; 0 for greedy, else positive and finite
	TopK        int     // keep this many of the highest logits, and those equal to the last of them; 0 for all
	TopP        float64 // keep the fewest of the most probable tokens that together reach it; 0 or 1 for all
	MinP        float64 // keep tokens at least this many times as probable as the most probable; 0 for all
	Seed        uint64  // same seed, same tokens
}

// Greedy says that no token is drawn.
func (p Params) Greedy() bool { return p.Temperature == 0 }

// RangeError is a setting that lies outside its range, or that has no meaning
// without a temperature.
type RangeError struct {
	Field   string // of Params
	Problem string // what was found and what is wanted
}

func (e *RangeError) Error() string { return e.Field + ": " + e.Problem }

// Check refuses what cannot be sampled with, with a *RangeError; NaN is refused
// everywhere.
func (p Params) Check() error {
	for _, f := range []struct {
		name     string
		value    float64
		ok       bool
		want     string
		sampling bool // means nothing to greedy
	}{
		{"Temperature", p.Temperature, p.Temperature >= 0 && !math.IsInf(p.Temperature, 0), "a finite number from 0", false},
		{"TopK", float64(p.TopK), p.TopK >= 0, "a whole number from 0", p.TopK != 0},
		{"TopP", p.TopP, p.TopP >= 0 && p.TopP <= 1, "0 to 1", p.TopP != 0 && p.TopP != 1},
		{"MinP", p.MinP, p.MinP >= 0 && p.MinP <= 1, "0 to 1", p.MinP != 0},
	} {
		if !f.ok {
			return &RangeError{f.name, fmt.Sprintf("found %v, want %s", f.value, f.want)}
		}
		if f.sampling && p.Greedy() {
			return &RangeError{f.name, fmt.Sprintf("found %v with temperature 0, which always takes the highest logit; want a temperature above 0", f.value)}
		}
	}
	return nil
}

// LogitError is a logit that no probability can be made of.
type LogitError struct {
	Token int // -1 when all logits are -inf
	Value float32
}

func (e *LogitError) Error() string {
	if e.Token < 0 {
		return "every logit is -inf"
	}
	return fmt.Sprintf("the logit of token %d is %v", e.Token, e.Value)
}

// Sample draws the token at a position of its sequence (the first token has
// position 0). logits has one entry a token and is left alone; a logit of -inf has
// probability 0. A NaN, a +inf, or nothing but -inf is a *LogitError. p must have
// passed Check; a greedy p takes the first of the highest logits.
func Sample(logits []float32, p Params, position int) (int, error) {
	best, err := check(logits)
	if err != nil || p.Greedy() {
		return best, err
	}
	kept := p.keep(logits, best)
	total := 0.0
	for _, c := range kept {
		total += c.weight
	}
	left := uniform(p.Seed, position) * total
	for _, c := range kept {
		if left -= c.weight; left < 0 {
			return c.token, nil
		}
	}
	return best, nil // rounding, beyond the last weight
}

// check finds the first of the highest logits.
func check(logits []float32) (best int, err error) {
	best = -1
	top := math.Inf(-1)
	for i, x := range logits {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 1) {
			return 0, &LogitError{i, x}
		}
		if float64(x) > top {
			best, top = i, float64(x)
		}
	}
	if best < 0 {
		return 0, &LogitError{-1, float32(top)}
	}
	return best, nil
}
