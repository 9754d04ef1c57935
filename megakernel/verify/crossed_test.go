package verify

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

// The factors that are crossed. Rows are 1 to 16.
var (
	crossedFormats   = append(pipeline.Formats(), "i4g64-zeros", "i8g32-zeros-f16", "i4g128,qkv=bf16,down=i8")
	crossedAttention = []string{"", "alibi", "sigmoid=-3", "streaming=24+sinks=4", "mask", "head-scale", "softcap=1.5",
		"window=24", "window=24+sinks=4"}
	crossedKV = []attention.KVType{attention.KVBF16, attention.KVE4M3}
)

const crossedRows = 16

// crossing is a level of each factor: format of weights, attention, KV format and rows less one.
type crossing [4]int

// options has a head of a format, too: another one for each number of rows.
func (x crossing) options() megakernel.Options {
	heads := pipeline.Formats()
	return megakernel.Options{SMs: 3, Consumers: 2, Page: 4, Weights: crossedFormats[x[0]],
		Attention: crossedAttention[x[1]], KV: crossedKV[x[2]], Tokens: x[3] + 1, Head: heads[(x[0]+2*x[3])%len(heads)]}
}

func (x crossing) String() string {
	o := x.options()
	return fmt.Sprintf("%s %s KV %s %d rows, head %s", o.Weights, o.Attention, o.KV, o.Tokens, o.Head)
}

// can is whether there is such a kernel: a step of one row has no mask. Factors of -1 are open.
func (x crossing) can() bool {
	return x[1] < 0 || crossedAttention[x[1]] != "mask" || x[3] != 0
}

// crossings is a covering array: every two levels of two factors that can be together are in one of them. Each begins
// with the first pair that is missing, and takes of every other factor the level that brings the most missing pairs,
// from another one on each time.
func crossings() (all []crossing) {
	levels := crossing{len(crossedFormats), len(crossedAttention), len(crossedKV), crossedRows}
	type pair [4]int // factor, level, factor, level
	var order []pair
	missing := map[pair]bool{}
	for _, f := range [][2]int{{0, 3}, {0, 1}, {1, 3}, {0, 2}, {1, 2}, {2, 3}} { // the most levels first
		for a := range levels[f[0]] {
			for b := range levels[f[1]] {
				x := crossing{-1, -1, -1, -1}
				if x[f[0]], x[f[1]] = a, b; x.can() {
					p := pair{f[0], a, f[1], b}
					order, missing[p] = append(order, p), true
				}
			}
		}
	}
	gains := func(x crossing, factor int) (n int) {
		for other, level := range x {
			i, j := min(factor, other), max(factor, other)
			if other != factor && level >= 0 && missing[pair{i, x[i], j, x[j]}] {
				n++
			}
		}
		return n
	}
	for _, first := range order {
		if !missing[first] {
			continue
		}
		x := crossing{-1, -1, -1, -1}
		x[first[0]], x[first[2]] = first[1], first[3]
		for factor := range x {
			if x[factor] >= 0 {
				continue
			}
			best, most := -1, -1
			for i := range levels[factor] {
				y := x
				if y[factor] = (i + 5*len(all)) % levels[factor]; y.can() && gains(y, factor) > most {
					best, most = y[factor], gains(y, factor)
				}
			}
			x[factor] = best
		}
		for i := range x {
			for j := i + 1; j < len(x); j++ {
				delete(missing, pair{i, x[i], j, x[j]})
			}
		}
		all = append(all, x)
	}
	return all
}

// check compares logits with float64's: of one row two steps behind a cache, of several launches of sequences that are
// fed several tokens, draft trees and several steps.
func (x crossing) check(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.Intermediate, c.Vocab = 1, 4, 2, 16, 96, 72
	c.BOS, c.EOS = models.NoToken, nil
	mk, err := megakernel.Build(c, x.options())
	require.NoError(t, err)
	if !mk.Ragged() {
		oneRunOf(t, mk)
		return
	}
	trial := newRaggedTrial(mk, 0, 0)
	s, err := trial.start(mk.IR, 1, 1)
	require.NoError(t, err)
	for _, launch := range []func() shape{s.mixed, s.tree, s.grow} {
		require.NoError(t, s.launch(t.Context(), launch()))
		require.Empty(t, s.run.Findings)
		s.run.launches++
	}
	logits := trial.raggedLogits(s.run)
	require.True(t, logits.OK(), "%+v", logits)
}

// oneRunOf compares what one schedule of two steps writes with float64.
func oneRunOf(t *testing.T, mk *megakernel.Kernel) {
	t.Helper()
	trial, err := NewTrial(mk, 2)
	require.NoError(t, err)
	run, err := trial.Run(t.Context(), mk.IR, 1)
	require.NoError(t, err)
	require.Empty(t, run.Findings)
	for _, c := range []Comparison{trial.compareLogits(run, ""), trial.compareCache(run, "")} {
		require.True(t, c.OK(), "%+v", c)
	}
}

// Formats of weights, kinds of attention, KV formats and numbers of rows by pairs; some of them in the quick run.
func TestFormatsAttentionAndRowsCrossed(t *testing.T) {
	all := crossings()
	n := len(crossedFormats)
	slices.SortStableFunc(all, func(a, b crossing) int { return (a[0]+a[3])%n - (b[0]+b[3])%n })
	for _, x := range deep.Most(all, crossedRows) { // in the first are each format and each number of rows
		t.Run(x.String(), func(t *testing.T) {
			t.Parallel()
			x.check(t)
		})
	}
}

func TestCrossingsCoverEveryPair(t *testing.T) {
	all := crossings()
	require.Len(t, all, len(crossedFormats)*crossedRows, "as many as two factors alone take")
	for a := range crossedFormats {
		for b := range crossedRows {
			require.True(t, slices.ContainsFunc(all, func(x crossing) bool { return x[0] == a && x[3] == b }))
		}
		for b := range crossedAttention {
			require.True(t, slices.ContainsFunc(all, func(x crossing) bool { return x[0] == a && x[1] == b }))
		}
	}
	for a, kind := range crossedAttention {
		for b := range crossedRows {
			has := slices.ContainsFunc(all, func(x crossing) bool { return x[1] == a && x[3] == b })
			require.Equal(t, kind != "mask" || b > 0, has, "%s, %d rows", kind, b+1)
		}
	}
	for kv := range crossedKV {
		for factor, n := range []int{len(crossedFormats), len(crossedAttention), 0, crossedRows} {
			for level := range n {
				require.True(t, slices.ContainsFunc(all, func(x crossing) bool { return x[2] == kv && x[factor] == level }))
			}
		}
	}
}
