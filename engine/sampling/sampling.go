// Package sampling says how a token is drawn from logits, as Hugging Face transformers'
// generate does with do_sample: temperature, then top-k, then top-p, then min-p,
// each with the definition of transformers' logits processor of that name, then
// one draw from the softmax of what is left. Kernels draw so (package tasks/draw), and Sample
// does on the host.
//
// The draw is a pure function of the logits, the settings and the token's
// position, so that a generation that is interrupted and taken up again, or
// repeated, is the same. transformers draws from another generator: the
// distributions are equal, the tokens are not.
package sampling

import (
	"fmt"
	"math"

	"github.com/mkgen/mkgen/tasks/draw"
)

// Params say how a token is drawn. The zero value means greedy: the token with
// the highest logit, without any draw.
type Params struct {
	Temperature float64 // logits are divided by it; 0 for greedy, else positive and finite
	TopK        int     // keep this many of the highest logits, and those equal to the last of them; 0 for all
	// keep the fewest of the most probable tokens that together reach it, and those equal to the last of them; 0 or 1 for
	// all
	TopP float64
	MinP float64 // keep tokens at least this many times as probable as the most probable; 0 for all
	Seed uint64  // same seed, same tokens
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
			return &RangeError{f.name,
				fmt.Sprintf("found %v with temperature 0, which always takes the highest logit; want a temperature above 0",
					f.value)}
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
	row := p.Row()
	return row.Choose(logits, uint32(position)), nil
}

// Row is the parameters as a kernel takes them. p must have passed Check.
func (p Params) Row() (r draw.Row) {
	if p.Greedy() {
		return r
	}
	r[draw.RowFlags] = draw.FlagDraws
	// With an infinite scale, of a temperature that is all but 0, the highest logit's distance of 0 would be NaN.
	r[draw.RowScale] = f32(min(math.Log2E/p.Temperature, 1e30))
	r[draw.RowNats] = f32(min((1<<draw.NatBits)/p.Temperature, 1e30))
	r[draw.RowFar] = draw.Farthest
	if p.TopK > 0 {
		r[draw.RowFlags] |= draw.FlagTopK
		r[draw.RowTopK] = uint32(min(int64(p.TopK), math.MaxInt32))
	}
	if p.TopP > 0 && p.TopP < 1 {
		r[draw.RowFlags] |= draw.FlagTopP
		r[draw.RowTopP] = f32(max(p.TopP, 1e-30)) // not 0, which no weight is below: the highest logit stays
	}
	if p.MinP > 0 {
		r[draw.RowFar] = uint32(min(draw.Farthest, math.Floor(-math.Log(p.MinP)*(1<<draw.NatBits))))
	}
	r[draw.RowSeedLo], r[draw.RowSeedHi] = uint32(p.Seed), uint32(p.Seed>>32)
	return r
}

// f32 is a number as a kernel's parameter.
func f32(x float64) uint32 { return math.Float32bits(float32(x)) }

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
