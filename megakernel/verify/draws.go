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

// draw is how row i of the launch draws its tokens; those of a tree, whose positions are not their order, do not.
func (x *scene) draw(s shape, i int) (p sampling.Params) {
	if !x.drawsIn(s) {
		return p
	}
	return drawOf(x.run.launches+i, x.t.mk.Config.Vocab)
}

// tops is how many of the most probable tokens its scores have, -1 for no scores.
func (x *scene) tops(s shape, i int) int {
	if !x.drawsIn(s) {
		return -1
	}
	return topsOf(x.run.launches + i)
}

func (x *scene) drawsIn(s shape) bool {
	return x.t.mk.Draws() && !slices.ContainsFunc(s.parts, func(p part) bool { return p.parents != nil })
}

func (x *scene) draws(s shape) (rows []draw.Row) {
	for i := range x.t.mk.Options.Tokens {
		row := x.draw(s, i).Row()
		row.SetTops(x.tops(s, i))
		rows = append(rows, row)
	}
	return rows
}

// drew looks whether the last step's rows drew their tokens from their logits.
func (x *scene) drew(s shape, chosen [][]int) error {
	row, logits, last := 0, make([]float32, x.t.mk.Config.Vocab), len(chosen)-1
	for _, p := range s.parts {
		for j := range p.new {
			if err := x.r.RowLogits(row, logits); err != nil {
				return err
			}
			if wrong := drawn(chosen[last][row], logits, x.draw(s, row), p.ref.Len()+j+last+1); wrong != "" {
				x.finding("wrong token", fmt.Sprintf("row %d of launch %d (%s): %s", row, x.run.launches, s.name, wrong))
				return nil
			}
			if tops := x.tops(s, row); tops >= 0 {
				got, err := x.r.RowLogprobs(row, p.ref.Len()+j+last+1, chosen[last][row])
				if err != nil {
					return err
				}
				if wrong := scored(chosen[last][row], logits, got, tops); wrong != "" {
					x.finding("wrong log-probabilities", fmt.Sprintf("row %d of launch %d (%s): %s", row, x.run.launches, s.name, wrong))
					return nil
				}
			}
			row++
		}
	}
	return nil
}
