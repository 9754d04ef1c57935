package tests

import (
	"slices"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/attend"
	"github.com/mkgen/mkgen/tasks/attention"
)

// attentionPlays are attention-only kernels of one class of layers, or of two, and
// plans that make their code take all its turns between them. What the last layer
// does shows in the output, so the last layer is of either class in some.
func attentionPlays(t *testing.T, classes int) (all []*attentionPlay) {
	t.Helper()
	add := func(change func(c *attend.Config), launches ...attentionLaunch) {
		c := attend.Config{Heads: 5, KVHeads: 1, HeadDim: 16, Layers: 3, Page: 4, Rows: 16, SMs: 2, Consumers: 3,
			StageBytes: 1024, Stages: 3, InFlight: 2, ItemsPerCTA: 40, Partials: 256}
		if classes == 2 {
			c.Variants = func(*dsl.Kernel) []*attention.Variant {
				return []*attention.Variant{attention.SlidingWindow(40, 4), nil}
			}
		}
		change(&c)
		all = append(all, newAttentionPlay(t, c, launches...))
	}
	// split, and merged in shares
	one, two := attentionLaunch{seqs: [][2]int{{130, 1}}}, attentionLaunch{seqs: [][2]int{{130, 2}}}
	several := attentionLaunch{seqs: [][2]int{{90, 1}, {0, 6}, {5, 1}, {40, 3}}} // not split
	// split, and merged in a phase
	pinned := attentionLaunch{seqs: several.seqs, pin: 32}
	// more items than a warp looks at once
	many := attentionLaunch{seqs: slices.Repeat([][2]int{{33, 1}}, 16), pin: 16}
	add(func(*attend.Config) {}, one, many, several, pinned)
	// rows of one token on several warps
	add(func(c *attend.Config) { c.Heads, c.Layers = 17, 2 }, one, several)
	// too many rows to meet all at once, on one tile
	add(func(c *attend.Config) { c.Heads, c.Layers = 9, 2 }, one, two)
	// outputs in slices
	add(func(c *attend.Config) { c.Consumers, c.HeadDim, c.StageBytes = 11, 48, 3072 }, one, two, pinned)
	// new tokens lie where maxima meet
	add(func(c *attend.Config) { c.Heads, c.Rows, c.Consumers = 2, 8, 8 },
		attentionLaunch{seqs: [][2]int{{20, 6}, {40, 1}}})
	return all
}

// Every synchronisation of attention-only kernels, broken, is reported, but for
// what ringExcuses, raggedExcuses and attentionExcuses explain.
func TestMutantsOfAttentionAreReported(t *testing.T) {
	deep.Only(t)
	start := time.Now()
	excuses := slices.Concat(ringExcuses, raggedExcuses, attentionExcuses)
	var outcomes []outcome
	for classes := 1; classes <= 2; classes++ {
		plays := attentionPlays(t, classes)
		first := plays[0].subject(t)
		found := first.tryAll(t, sample(t, first.ir, attentionEvery, excuses), excuses)
		for _, p := range plays[1:] {
			tryAgain(t, found, excuses, func() *subject { return p.subject(t) })
		}
		outcomes = append(outcomes, found...)
	}
	judge(t, "mutants of attention-only kernels on the executor", outcomes, excuses, attentionExcuses, start)
}
