package verify

import (
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/tasks/draw"
)

// drawOf is how the n-th row draws its token: in turn not at all, plainly, with all that truncates, and so that what is drawn
// first rarely stays.
func drawOf(n, vocab int) sampling.Params {
	seed := uint64(n)<<32 | 5
	return []sampling.Params{
		{},
		{Temperature: 3, TopK: 1 + vocab/3, TopP: 0.4, MinP: 0.01, Seed: seed},
		{Temperature: 1.5, Seed: seed},
		{Temperature: 5, TopK: 3, Seed: seed},
		{Temperature: 2, TopP: 0.2, Seed: seed},
	}[n%5]
}

// topsOf is how many of the most probable tokens the n-th row's scores have, -1 for no scores.
func topsOf(n int) int { return []int{-1, draw.MaxTops, 0, 3}[n/3%4] }

// scored says what is wrong with log-probabilities that a kernel made of logits; "" for nothing.
func scored(token int, logits []float32, got sampling.Logprobs, tops int) string {
	want, err := sampling.LogprobsOf(logits, token, tops)
	if err != nil {
		return err.Error()
	}
	near := func(a, b sampling.Logprob) bool {
		return a.Token == b.Token && (a.Logprob == b.Logprob || math.Abs(a.Logprob-b.Logprob) < 1e-5)
	}
	if !near(got.Logprob, want.Logprob) || !slices.EqualFunc(got.Top, want.Top, near) {
		return fmt.Sprintf("the kernel's log-probabilities are %v, those of its own logits %v", got, want)
	}
	return ""
}

// drawn says what is wrong with the token that a kernel drew from logits at a position; "" for nothing.
func drawn(token int, logits []float32, p sampling.Params, position int) string {
	row := p.Row()
	if want := row.Choose(logits, uint32(position)); token != want {
		how := "drawn from"
		if p.Greedy() {
			how = "the largest of"
		}
		return fmt.Sprintf("the kernel chose %d, %s its own logits is %d", token, how, want)
	}
	return ""
}
