package sampling

import (
	"fmt"
	"math"
)

// Penalties change logits before a token is chosen, greedily or by a draw. The zero value changes none.
type Penalties struct {
	// Repetition is transformers' repetition_penalty: logits of tokens that the prompt or the answer has are
	// divided by it where they are positive, else multiplied. 0 or 1 for none.
	Repetition float64
	// Presence and Frequency are OpenAI's: a token of the answer loses Presence, and Frequency times as often
	// as it is there.
	Presence, Frequency float64
	// Bias is added to the logits of its tokens, before all else. -inf rules a token out.
	Bias map[int]float64
}

// none reports whether nothing changes.
func (p *Penalties) none() bool {
	return (p.Repetition == 0 || p.Repetition == 1) && p.Presence == 0 && p.Frequency == 0 && len(p.Bias) == 0
}

// Check refuses what cannot be, with a *RangeError.
func (p *Penalties) Check(vocab int) error {
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	switch {
	case !finite(p.Repetition) || p.Repetition < 0:
		return &RangeError{"Repetition", fmt.Sprintf("found %v, want a finite number above 0", p.Repetition)}
	case !finite(p.Presence):
		return &RangeError{"Presence", fmt.Sprintf("found %v, want a finite number", p.Presence)}
	case !finite(p.Frequency):
		return &RangeError{"Frequency", fmt.Sprintf("found %v, want a finite number", p.Frequency)}
	}
	for token, x := range p.Bias {
		if token < 0 || token >= vocab {
			return &RangeError{"Bias", fmt.Sprintf("found token %d, want 0 to %d", token, vocab-1)}
		}
		if math.IsNaN(x) || math.IsInf(x, 1) {
			return &RangeError{"Bias", fmt.Sprintf("found %v for token %d, want a finite number or -inf", x, token)}
		}
	}
	return nil
}

// History is which tokens a sequence has had, for its penalties.
type History struct {
	p       Penalties
	seen    map[int]struct{} // in prompt or answer
	answers map[int]int      // how often in the answer
}

// History starts with a prompt; nil where nothing changes logits.
func (p *Penalties) History(prompt []int) *History {
	if p.none() {
		return nil
	}
	h := &History{p: *p, seen: map[int]struct{}{}, answers: map[int]int{}}
	for _, token := range prompt {
		h.seen[token] = struct{}{}
	}
	return h
}

// Add notes a token of the answer.
func (h *History) Add(token int) {
	h.seen[token] = struct{}{}
	h.answers[token]++
}

// Apply changes logits: bias, repetition, presence and frequency, in this order.
func (h *History) Apply(logits []float32) {
	for token, x := range h.p.Bias {
		logits[token] = float32(float64(logits[token]) + x)
	}
	if r := h.p.Repetition; r != 0 && r != 1 {
		for token := range h.seen {
			if logits[token] > 0 {
				logits[token] = float32(float64(logits[token]) / r)
			} else {
				logits[token] = float32(float64(logits[token]) * r)
			}
		}
	}
	for token, n := range h.answers {
		logits[token] = float32(float64(logits[token]) - h.p.Presence - h.p.Frequency*float64(n))
	}
}
