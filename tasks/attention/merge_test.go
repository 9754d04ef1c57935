package attention_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/stretchr/testify/require"
)

// mergeStates merges [split][head·d] partial outputs with [split][head] LSEs in base 2.
func mergeStates(t testing.TB, heads, d, splits, sms, consumers int, part, lse []float32) []float64 {
	r := rig.New(t, rig.Setup{SMs: sms, Consumers: consumers})
	m := &attention.Merge{Heads: heads, D: d, Splits: splits, States: statesIn(r, d, part, lse),
		Out: rig.Out[dsl.BF16](r, "out", heads*d)}
	r.Body(func(*pipeline.Consumer) { m.Emit(r.Env) }, nil)
	return rig.Wide(rig.BF16s(r.Run()["out"]))
}

// statesIn are the words of states of d elements of a head, one after another.
func statesIn(r *rig.Rig, d int, part, lse []float32) dsl.Buf[dsl.B128] {
	var words []float32
	for i := 0; i < len(part); i += 2 {
		words = append(words, part[i], part[i+1], lse[i/d], 0)
	}
	words = append(words, 0, 0, 0, 0) // a buffer of nothing is none
	return rig.In[dsl.B128](r, "states", rig.F32Bytes(words), len(words)/4)
}

// statesOf is the reverse.
func statesOf(words []byte, d int) (part, lse []float64) {
	for i, x := range rig.F32s(words) {
		if i%4 < 2 {
			part = append(part, x)
		}
	}
	for _, x := range attention.StateLSE(words, d) {
		lse = append(lse, float64(x))
	}
	return part, lse
}

func mergeReference(heads, d, splits int, part, lse []float32) []float64 {
	var want []float64
	for h := range heads {
		var states []reference.State
		for s := range splits {
			at := (s*heads + h) * d
			states = append(states, reference.State{Out: rig.Wide32(part[at : at+d]), LSE: float64(lse[s*heads+h]) / math.Log2E})
		}
		want = append(want, reference.MergeStates(d, states...).Out...)
	}
	return want
}

func TestMerge(t *testing.T) {
	inf := float32(math.Inf(-1))
	for _, c := range []struct {
		heads, d, splits, sms, consumers int
		empty                            func(split, head int) bool
	}{
		{heads: 1, d: 16, splits: 1, sms: 1, consumers: 1},
		{heads: 3, d: 16, splits: 2, sms: 2, consumers: 2}, // 48 elements: half a warp left over
		{heads: 4, d: 80, splits: 3, sms: 3, consumers: 1},
		{heads: 8, d: 128, splits: 5, sms: 2, consumers: 4},
		{heads: 2, d: 32, splits: 17, sms: 1, consumers: 2},
		{heads: 2, d: 32, splits: 4, sms: 1, consumers: 1, empty: func(s, _ int) bool { return s < 3 }},
		{heads: 2, d: 32, splits: 4, sms: 1, consumers: 1, empty: func(s, _ int) bool { return s > 0 }},
		{heads: 5, d: 32, splits: 5, sms: 2, consumers: 2, empty: func(s, h int) bool { return s == h }},
	} {
		t.Run(fmt.Sprintf("%d heads of %d, %d splits, empty %v", c.heads, c.d, c.splits, c.empty != nil), func(t *testing.T) {
			rng := rig.Rand(uint64(c.d * c.splits))
			part, lse := rig.Floats(rng, c.splits*c.heads*c.d, 1), rig.Floats(rng, c.splits*c.heads, 6)
			for i := range lse {
				if c.empty != nil && c.empty(i/c.heads, i%c.heads) {
					lse[i] = inf
					clear(part[i*c.d : (i+1)*c.d]) // as Attention leaves an empty part
				}
			}
			want := mergeReference(c.heads, c.d, c.splits, part, lse)
			// bf16's 2⁻⁸ of the result, and f32 roundings of the terms, which cancel at worst.
			rig.Near(t, want, mergeStates(t, c.heads, c.d, c.splits, c.sms, c.consumers, part, lse),
				rig.Scaled(want, 0x1.01p-8, 1e-5),
				"")
		})
	}
}

func TestMergeOfOneStateIsThatState(t *testing.T) {
	part := []float32{1, -2, 3, 0.5, 1e30, -1e-30, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8}
	for _, lse := range []float32{0, 300, -300, 1e30} {
		require.Equal(t, func() []float64 {
			var v []half.BF16
			for _, x := range part {
				v = append(v, rig.ToBF16(float64(x)))
			}
			return rig.Wide(v)
		}(), mergeStates(t, 1, 16, 1, 1, 1, part, []float32{lse}))
	}
}

func TestMergeOfStatesFarApartIsTheLarger(t *testing.T) {
	part := append(rig.Floats(rig.Rand(1), 16, 1), rig.Floats(rig.Rand(2), 16, 1)...)
	for larger, lse := range [][]float32{{500, -500}, {-500, 500}} {
		want := make([]half.BF16, 16)
		for i := range want {
			want[i] = rig.ToBF16(float64(part[16*larger+i]))
		}
		require.Equal(t, rig.Wide(want), mergeStates(t, 1, 16, 2, 1, 1, part, lse))
	}
}

// The order of the splits changes nothing but rounding: one bf16 step at most.
func TestMergeOfPermutedSplits(t *testing.T) {
	const heads, d, splits = 2, 32, 6
	rng := rig.Rand(8)
	part, lse := rig.Floats(rng, splits*heads*d, 1), rig.Floats(rng, splits*heads, 3)
	base := mergeStates(t, heads, d, splits, 1, 2, part, lse)
	for range 6 {
		var p, l []float32
		for _, s := range rng.Perm(splits) {
			p, l = append(p, part[s*heads*d:(s+1)*heads*d]...), append(l, lse[s*heads:(s+1)*heads]...)
		}
		rig.Near(t, base, mergeStates(t, heads, d, splits, 1, 2, p, l), rig.Scaled(base, 0x1p-7, 1e-6), "")
	}
}

func TestMergePassesNaNOn(t *testing.T) {
	nan := float32(math.NaN())
	part := rig.Floats(rig.Rand(1), 64, 1)
	for i, v := range mergeStates(t, 2, 16, 2, 1, 1, part, []float32{0, 0, nan, 0}) {
		require.Equal(t, i < 16, math.IsNaN(v), "element %d: only head 0 is NaN", i)
	}
}
