package verify

import (
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/tasks/draw"
)

// ruleOf is how the n-th row draws its token: in turn not at all, plainly, with all that truncates, and so that what
// is drawn first rarely stays. Every third has a history that changes its logits, of which the end tokens are barred
// up to a position, and some others a mask.
func ruleOf(n, vocab, position int) draw.Rule {
	seed := uint64(n)<<32 | 5
	p := []sampling.Params{
		{},
		{Temperature: 3, TopK: 1 + vocab/3, TopP: 0.4, MinP: 0.01, Seed: seed},
		{Temperature: 1.5, Seed: seed},
		{Temperature: 5, TopK: 3, Seed: seed},
		{Temperature: 2, TopP: 0.2, Seed: seed},
	}[n%5]
	if n%3 > 0 {
		r := draw.Rule{Row: p.Row()}
		if n%4 == 2 {
			r.SetMask(slices.Repeat([]uint32{uint32(n)*0x9e3779b1 | 1}, draw.MaskWords(vocab)))
		}
		return r
	}
	token := func(i int) int { return (n*n + 7*i) % vocab }
	r := p.Rule(&sampling.Penalties{Repetition: 1.5, Presence: 0.5, Frequency: 0.25,
		Bias: map[int]float64{token(0): 2, token(1): -3, token(2): math.Inf(-1)}},
		[]int{token(3), token(4), token(5)}, []int{token(0), token(6)}, 0)
	r.Row[draw.RowLeast] = uint32(position + n/3%3 - 1)
	r.Took(token(5))
	r.Took(token(7))
	return r
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
func drawn(token int, logits []float32, r draw.Rule, position int) string {
	if want := r.Choose(logits, uint32(position)); token != want {
		how := "drawn from"
		if greedy(r) {
			how = "the largest of"
		}
		return fmt.Sprintf("the kernel chose %d, %s its own logits is %d", token, how, want)
	}
	return ""
}

// greedy is whether a row takes the highest of the model's own logits.
func greedy(r draw.Rule) bool { return r.Modes()&^draw.ModeScores == 0 }

// rule is how row i of the launch draws its token; those of a tree, whose positions are not their order, do not.
func (x *scene) rule(s shape, i int) (r draw.Rule) {
	if x.drawsIn(s) {
		n := x.run.launches + i
		r = ruleOf(n, x.t.mk.Config.Vocab, x.t.mk.Config.MaxPositions/2)
		r.SetTops(topsOf(n))
		if n%2 == 0 {
			r.SetTarget(7 * n % x.t.mk.Config.Vocab)
		}
	}
	return r
}

func (x *scene) drawsIn(s shape) bool {
	return x.t.mk.Draws() && !slices.ContainsFunc(s.parts, func(p part) bool { return p.parents != nil })
}

func (x *scene) rules(s shape) (rows []draw.Rule) {
	for i := range x.t.mk.Options.Tokens {
		rows = append(rows, x.rule(s, i))
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
			r, position := x.rule(s, row), p.ref.Len()+j+last+1
			for _, tokens := range chosen[:last] {
				r.Took(tokens[row])
			}
			if wrong := drawn(chosen[last][row], logits, r, position); wrong != "" {
				x.finding("wrong token", fmt.Sprintf("row %d of launch %d (%s): %s", row, x.run.launches, s.name, wrong))
				return nil
			}
			if tops := r.Tops(); tops >= 0 {
				token := r.Scored(chosen[last][row])
				got, err := x.r.RowLogprobs(row, position, token)
				if err != nil {
					return err
				}
				if wrong := scored(token, logits, got, tops); wrong != "" {
					x.finding("wrong log-probabilities", fmt.Sprintf("row %d of launch %d (%s): %s", row, x.run.launches, s.name,
						wrong))
					return nil
				}
			}
			row++
		}
	}
	return nil
}
