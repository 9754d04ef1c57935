package bench

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/tasks/draw"
)

// Choice is a way in which rounds choose their tokens, of those that are measured beside each other. The zero value
// is greedy.
type Choice struct {
	Name      string // in tables and records; "" for greedy
	Draw      sampling.Params
	Penalties sampling.Penalties
	Logprobs  int  // most probable tokens whose log-probabilities the kernel makes beside the chosen one's; 0: none at all
	Masks     bool // the host gives each step of a launch a mask, of half the vocabulary, when it has seen the step before
}

// BesideGreedy are the choices that a sampled run compares: greedy, sampled, and sampled with penalties and a bias,
// with log-probabilities, and with masks.
func BesideGreedy(p sampling.Params) []Choice {
	return []Choice{{}, {Name: "sampled", Draw: p}, {Name: "with penalties", Draw: p,
		Penalties: sampling.Penalties{Repetition: 1.1, Presence: 0.2, Frequency: 0.1, Bias: map[int]float64{firstToken: 1}}},
		{Name: "with log-probabilities", Draw: p, Logprobs: draw.MaxTops}, {Name: "with masks", Draw: p, Masks: true}}
}

// String is the choice's name.
func (c Choice) String() string { return cmp.Or(c.Name, "greedy") }

// rules are how a step's rows choose when a round begins. The rows' seeds follow each other.
func (c Choice) rules(rows, vocab int) (all []draw.Rule) {
	for i := range rows {
		p := c.Draw
		if !p.Greedy() {
			p.Seed += uint64(i)
		}
		rule := p.Rule(&c.Penalties, []int{firstToken}, nil, 0)
		if c.Logprobs > 0 {
			rule.SetTops(c.Logprobs)
		}
		if c.Masks {
			rule.SetMask(slices.Repeat([]uint32{0x55555555}, draw.MaskWords(vocab)))
		}
		all = append(all, rule)
	}
	return all
}

// masks are those of the steps behind a launch's first, nil where there are none.
func (c Choice) masks(rules []draw.Rule) func(row int) []uint32 {
	if !c.Masks {
		return nil
	}
	return func(row int) []uint32 { return rules[row].Mask }
}

// Drawn reports whether some of the cases are not greedy.
func Drawn(cases []Case) bool {
	return slices.ContainsFunc(cases, func(c Case) bool { return c.Choice != "" })
}

// eachChoice measures a case for each choice, greedy alone where there are none.
func eachChoice(choices []Choice, choose func(Choice), measure func() (Case, error)) (cases []Case, err error) {
	if len(choices) == 0 {
		choices, choose = []Choice{{}}, func(Choice) {}
	}
	for _, choice := range choices {
		choose(choice)
		c, err := measure()
		if err != nil && len(choices) > 1 {
			err = fmt.Errorf("%s: %w", choice, err)
		}
		if err != nil {
			return nil, err
		}
		c.Choice = choice.Name
		cases = append(cases, c)
	}
	besideGreedy(cases)
	return cases, nil
}

// besideGreedy fills in how much of greedy's speed the other choices have at the same context, where greedy comes
// first.
func besideGreedy(cases []Case) {
	for i := 1; i < len(cases); i++ {
		if cases[i].Choice != "" {
			cases[i].OfGreedy = significant(cases[0].DeviceMicros / cases[i].DeviceMicros)
		}
	}
}
