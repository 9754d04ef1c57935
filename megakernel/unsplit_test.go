package megakernel

import (
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

// Two blocks of 16 tokens a warp, but at most 128 KiB of a KV head's K and V.
func TestDefaultUnsplit(t *testing.T) {
	for _, c := range []struct {
		model string
		o     Options
		want  int
	}{
		{"llama3-8b", Options{}, 256},                                    // heads of 128: 512 bytes a token
		{"llama3-8b", Options{Consumers: 4}, 128},                        // fewer warps
		{"llama3-8b", Options{Weights: pipeline.FormatMXFP4}, 256},       // 12 warps
		{"llama3.2-1b", Options{Weights: pipeline.FormatMXFP4}, 384},     // and heads of 64
		{"llama3-8b", Options{KV: attention.KVE4M3, Consumers: 12}, 384}, // 256 bytes a token
		{"gemma-3-4b", Options{}, 128},                                   // heads of 256, windows or not
		{"llama3-8b", Options{Unsplit: 7}, 7},
		{"llama3-8b", Options{Unsplit: UnsplitNone}, UnsplitNone},
		{"llama3-8b", Options{Splits: 1}, 0},
		{"llama3-8b", Options{Merge: MergePhase, Unsplit: 100}, 0},
		{"llama3-8b", Options{Merge: MergePhase, Unsplit: UnsplitNone}, UnsplitNone},
		{"llama3-8b", Options{Fault: FaultMergeShare, Unsplit: 100}, 0},
		{"llama3-8b", Options{Tokens: 2}, 0},
		{"llama3-8b", Options{Launch: LaunchGraph}, 0},
	} {
		mk := build(t, c.model, c.o)
		require.Equal(t, c.want, mk.Options.Unsplit, "%s %+v", c.model, c.o)
		_, at := mk.UnsplitIn(max(c.want, 0))
		_, behind := mk.UnsplitIn(c.want + 1)
		require.Equal(t, []bool{c.want > 0, false}, []bool{at, behind}, "%s %+v", c.model, c.o)
	}
}

func TestUnsplitIsRefusedWhereItCannotBe(t *testing.T) {
	config, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Unsplit: -2}, "options: -2 tokens, want 0 to 1048576"},
		{Options{Unsplit: 1<<20 + 1}, "options: 1048577 tokens, want 0 to 1048576"},
		{Options{Unsplit: 1, Tokens: 2}, "options: KV heads of up to 1 token unsplit with 2 query rows a step, where a launch's plan says what is split; want one row"},
		{Options{Unsplit: 2, Launch: LaunchGraph}, "options: KV heads of up to 2 tokens unsplit in a graph of kernels, want one kernel"},
	} {
		_, err := Build(config, c.o)
		require.EqualError(t, err, c.want)
		var refused *OptionError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "Unsplit", refused.Option)
	}
}

// The SMs that work on KV heads alone are those with the fewest weights.
func TestLeastLoadedSplit(t *testing.T) {
	plan := func(o, down []int) *pipeline.Plan {
		p := &pipeline.Plan{SMs: len(o), Layer: make([]pipeline.MatrixPlan, layerMatrices)}
		for i := range p.Layer {
			p.Layer[i] = pipeline.MatrixPlan{Matrix: pipeline.Matrix{K: 32}, KPadded: 32, Count: make([]int, len(o))}
		}
		p.Layer[MatrixO].Count, p.Layer[MatrixDown].Count = o, down
		return p
	}
	for _, c := range []struct {
		o, down       []int
		items, splits int
		want          int
	}{
		{[]int{1, 1, 1, 1, 0, 0}, []int{1, 1, 1, 1, 1, 1}, 2, 3, 2},
		{[]int{1, 1, 1, 1, 0, 0}, []int{1, 1, 1, 1, 1, 1}, 2, 2, 0}, // nobody has split 2
		{[]int{2, 2, 1, 1, 2, 2}, []int{1, 1, 2, 2, 2, 2}, 2, 3, 1}, // as many, but fewer of o
		{[]int{1, 1, 1, 1, 1, 1}, []int{1, 1, 1, 1, 1, 1}, 2, 3, 0}, // all the same
		{[]int{1, 0, 2}, []int{0, 0, 0}, 2, 3, 0},                   // SMs 0 1, 2 0, 1 2
		{[]int{3, 2, 0}, []int{0, 0, 0}, 2, 3, 2},
	} {
		require.Equal(t, c.want, leastLoaded(plan(c.o, c.down), c.items, c.splits), "%+v", c)
	}
}
