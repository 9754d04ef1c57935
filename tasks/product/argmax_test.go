package product_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// argmax runs the whole search over y (scale 1) and returns token and logits.
func argmax(t testing.TB, y []float32, sms, consumers int) (uint32, []float64) {
	n := len(y)
	y = append(append([]float32(nil), y...), make([]float32, (n+7)/8*8-n)...) // padding rows are 0
	r := rig.New(t, rig.Setup{SMs: sms, Consumers: consumers})
	a := &product.Argmax{Vocab: n, Logits: rig.Out[dsl.F32](r, "logits", n), Best: rig.Out[dsl.F32](r, "best", sms),
		Index: rig.Out[dsl.U32](r, "index", sms), SharedIndex: dsl.Shared[dsl.U32](r.K, "indices", consumers)}
	next := rig.Out[dsl.U32](r, "next", sms)
	yIn, counter := rig.In[dsl.F32](r, "y", rig.F32Bytes(y), len(y)), rig.InOut[dsl.U32](r, "barrier", rig.U32Bytes(0), 1)
	r.Body(func(*pipeline.Consumer) {
		bar := grid.NewGridBarrier(r.Env, counter, r.K.U32(0))
		epilogue, publish := a.Start(r.Env, product.KnownScale(r.K.F32(1)))
		r.EachRows(yIn, len(y), epilogue)
		publish()
		bar.Sync()
		r.Choose(a, next)
	}, nil)
	got := r.Run()
	tokens := rig.U32s(got["next"])
	for _, token := range tokens {
		require.Equal(t, tokens[0], token, "every CTA finds the same")
	}
	return tokens[0], rig.F32s(got["logits"])
}

func TestArgmax(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	flat := func(n int, v float32, at map[int]float32) []float32 {
		y := make([]float32, n)
		for i := range y {
			y[i] = v
		}
		for i, v := range at {
			y[i] = v
		}
		return y
	}
	for _, c := range []struct {
		what string
		y    []float32
		want uint32
	}{
		{"the last row", flat(200, 0, map[int]float32{199: 1}), 199},
		{"the first row", flat(200, 0, map[int]float32{0: 1}), 0},
		{"equal rows give the lowest", flat(200, 0, map[int]float32{17: 2, 16: 2, 150: 2, 90: 2}), 16},
		{"equal rows that meet in the wrong order", flat(200, 0, map[int]float32{16: 2, 32: 2, 8: 2, 40: 2}), 8},
		{"all equal", flat(203, 3, nil), 0},
		{"all negative, beside padding rows of 0", flat(203, -4, map[int]float32{100: -1}), 100},
		{"NaN is never chosen", flat(200, -5, map[int]float32{0: nan, 3: nan, 120: -1}), 120},
		{"-inf but one", flat(200, -inf, map[int]float32{77: -1e30}), 77},
		{"all -inf", flat(200, -inf, nil), 0},
		{"all NaN", flat(200, nan, nil), 0},
		{"+inf", flat(200, 1, map[int]float32{60: inf, 61: inf}), 60},
		{"zeros of both signs are equal", flat(64, float32(math.Copysign(0, -1)), map[int]float32{40: 0}), 0},
		{"one row", []float32{-7}, 0},
		{"a vocabulary not a multiple of 8", flat(13, 0, map[int]float32{12: 1}), 12},
		{"an odd one whose padding would win", flat(9, -1, map[int]float32{5: -0.5}), 5},
	} {
		for _, g := range []struct{ sms, consumers int }{{1, 1}, {1, 4}, {3, 2}, {33, 1}, {40, 2}} {
			t.Run(fmt.Sprintf("%s on %d SMs, %d warps", c.what, g.sms, g.consumers), func(t *testing.T) {
				next, logits := argmax(t, c.y, g.sms, g.consumers)
				require.Equal(t, c.want, next)
				for i, v := range rig.Wide32(c.y) {
					require.True(t, v == logits[i] || math.IsNaN(v) && math.IsNaN(logits[i]), "logit %d: %g, want %g", i, logits[i], v)
				}
			})
		}
	}
}

// Logits of a few whole numbers, so that the largest occurs many times, in every
// order in which lanes, warps and CTAs may meet.
func TestArgmaxOfManyTies(t *testing.T) {
	rng := rig.Rand(6)
	for _, g := range []struct{ sms, consumers int }{{1, 1}, {1, 4}, {3, 2}, {37, 1}} {
		for range 6 {
			y := make([]float32, 1+rng.IntN(700))
			for i := range y {
				y[i] = float32(rng.IntN(3) * rng.IntN(2) * rng.IntN(2))
			}
			next, _ := argmax(t, y, g.sms, g.consumers)
			require.EqualValues(t, reference.Argmax(rig.Wide32(y)), next, "%d rows on %d SMs, %d warps", len(y), g.sms,
				g.consumers)
		}
	}
}

// An SM without a row of the LM head runs the norm and publishes right after:
// nothing but the templates' own barriers separates the two uses of Scratch.
func TestArgmaxAfterNormOnAnSMWithoutRows(t *testing.T) {
	for _, consumers := range []int{2, 4} {
		rng := rig.Rand(5)
		x := rig.Floats(rng, 64, 1)
		r := rig.New(t, rig.Setup{SMs: 1, Consumers: consumers})
		a := &product.Argmax{Vocab: 8, Logits: rig.Out[dsl.F32](r, "logits", 8), Best: rig.Out[dsl.F32](r, "best", 1),
			Index: rig.Out[dsl.U32](r, "index", 1), SharedIndex: dsl.Shared[dsl.U32](r.K, "indices", consumers)}
		norm := product.NormInput{N: 64, X: product.FromBuf(rig.In[dsl.F32](r, "x", rig.F32Bytes(x), 64)),
			Gain: rig.In[dsl.BF16](r, "gain", rig.BF16Bytes(rig.Normals(rng, 64, 1)), 64),
			Dst:  dsl.Shared[dsl.BF16](r.K, "input", 64, dsl.Align(16))}
		r.Body(func(*pipeline.Consumer) {
			epilogue, publish := a.Start(r.Env, norm.Emit(r.Env, r.K.U32(0)))
			r.K.If(r.Env.Tid.GeC(4096), func() { epilogue(r.K.U32(0), r.K.F32(0), r.K.F32(0)) })
			publish()
		}, nil)
		got := r.Run()
		require.Equal(t, []float64{math.Inf(-1)}, rig.F32s(got["best"]))
		require.Equal(t, []uint32{0}, rig.U32s(got["index"]))
	}
}
