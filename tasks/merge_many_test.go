package tasks_test

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

func TestMergeOf128Splits(t *testing.T) {
	const heads, d, splits = 2, 16, 128
	rng := newRand(4)
	part, lse := floats(rng, splits*heads*d, 1), floats(rng, splits*heads, 6)
	want := mergeReference(heads, d, splits, part, lse)
	near(t, want, mergeStates(t, heads, d, splits, 1, 1, part, lse), scaled(want, 0x1.01p-8, 1e-5), "")
}

// An empty state in front takes 32 splits from registers to loops, and may not
// change a bit, with or without a bias on the last one.
func TestMergeInLoopsGivesTheSameBits(t *testing.T) {
	const heads, d, splits = 3, 16, 32
	rng := newRand(5)
	part, lse := floats(rng, splits*heads*d, 1), floats(rng, splits*heads, 2)
	empty := make([]float32, heads*d)
	none := []float32{float32(math.Inf(-1)), float32(math.Inf(-1)), float32(math.Inf(-1))}
	merge := func(splits int, bias float64, part, lse []float32) []half.BF16 {
		r := newRig(t, setup{sms: 2, consumers: 1})
		m := &tasks.Merge{Heads: heads, D: d, Splits: splits, LastBias: bias, States: statesIn(r, d, part, lse),
			Out: out[dsl.BF16](r, "out", heads*d)}
		r.body(func(*pipeline.Consumer) { m.Emit(r.e) }, nil)
		return bf16s(r.run()["out"])
	}
	plain := merge(splits, 0, part, lse)
	require.Equal(t, plain, merge(splits+1, 0, append(empty, part...), append(none, lse...)))
	biased := merge(splits, 3, part, lse)
	require.NotEqual(t, plain, biased)
	require.Equal(t, biased, merge(splits+1, 3, append(empty, part...), append(none, lse...)))
}
