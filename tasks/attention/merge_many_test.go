package attention_test

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/stretchr/testify/require"
)

func TestMergeOf128Splits(t *testing.T) {
	const heads, d, splits = 2, 16, 128
	rng := rig.Rand(4)
	part, lse := rig.Floats(rng, splits*heads*d, 1), rig.Floats(rng, splits*heads, 6)
	want := mergeReference(heads, d, splits, part, lse)
	rig.Near(t, want, mergeStates(t, heads, d, splits, 1, 1, part, lse), rig.Scaled(want, 0x1.01p-8, 1e-5), "")
}

// An empty state in front takes 32 splits from registers to loops, and may not
// change a bit, with or without a bias on the last one.
func TestMergeInLoopsGivesTheSameBits(t *testing.T) {
	const heads, d, splits = 3, 16, 32
	rng := rig.Rand(5)
	part, lse := rig.Floats(rng, splits*heads*d, 1), rig.Floats(rng, splits*heads, 2)
	empty := make([]float32, heads*d)
	none := []float32{float32(math.Inf(-1)), float32(math.Inf(-1)), float32(math.Inf(-1))}
	merge := func(splits int, bias float64, part, lse []float32) []half.BF16 {
		r := rig.New(t, rig.Setup{SMs: 2, Consumers: 1})
		m := &attention.Merge{Heads: heads, D: d, Splits: splits, LastBias: bias, States: statesIn(r, d, part, lse),
			Out: rig.Out[dsl.BF16](r, "out", heads*d)}
		r.Body(func(*pipeline.Consumer) { m.Emit(r.Env) }, nil)
		return rig.BF16s(r.Run()["out"])
	}
	plain := merge(splits, 0, part, lse)
	require.Equal(t, plain, merge(splits+1, 0, append(empty, part...), append(none, lse...)))
	biased := merge(splits, 3, part, lse)
	require.NotEqual(t, plain, biased)
	require.Equal(t, biased, merge(splits+1, 3, append(empty, part...), append(none, lse...)))
}
