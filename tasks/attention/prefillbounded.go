package attention

import (
	"slices"

	"github.com/mkgen/mkgen/dsl"
)

// Weights of scores that a variant bounds are powers of 2 of the scores themselves: softmax subtracts a row's maximum
// so that none overflows, and these cannot. So there is nothing to search, to share among lanes or to scale.

// maxBound is the largest bound, in base 2, of scores whose weights need no maximum. A weight is 2⁸⁰ at most, the sum
// of those of 2²⁰ tokens 2¹⁰⁰, and that times values of up to 2²⁷ a float32; the least weight, 2⁻⁸⁰, is one, too.
const maxBound = 80

// bounded is whether weights are made without a maximum: not beside outputs of more than 128 dimensions, which leave no
// registers for it.
func (t *PrefillAttention) bounded() bool {
	return t.Variant != nil && 0 < t.Variant.Bound && t.Variant.Bound <= maxBound && t.QueryBytes() == 0
}

// weighBounded turns the scores of the block at positions from … into weights where they need no maximum, and those
// that hide says a row may not see into 0. A warp whose scores are all near 0 takes a cheaper way of the variant's.
// What follows stands behind a branch, and so does the wait for the product of values under way: ptxas puts a wait to
// the front of what is between branches, and these exponentials stay in front of it.
func (w *prefillTile) weighBounded(hide dsl.Pred, from u32) {
	k, v := w.e.K, w.t.Variant
	var sums [2]*dsl.Var[dsl.F32]
	for half := range sums {
		sums[half] = dsl.NewVar(k.F32(0), "sum")
	}
	sum := func(weight func(i int, s f32) f32) {
		for i, s := range w.scores {
			s.Set(weight(i, s.Get()))
		}
		for half, sum := range sums {
			sum.Set(w.fold(half, func(_ *dsl.Var[dsl.F32], x f32) f32 { return x }, f32.Add))
		}
	}
	c := w.columns(from)
	of := func() { sum(func(i int, s f32) f32 { return dsl.Exp2(c.logit(i, s)) }) }
	if len(v.Near) > 0 {
		size := func(_ *dsl.Var[dsl.F32], s f32) f32 { return s.Abs() }
		most := w.fold(0, size, f32.Max).Max(w.fold(1, size, f32.Max)).Named("largest")
		for _, near := range slices.Backward(v.Near) {
			farther := of
			of = func() {
				k.IfElse(dsl.Any(most.Gt(k.F32(near.To))), farther, func() {
					sum(func(_ int, s f32) f32 { return dsl.Exp2(near.Logit(k, s)) })
				})
			}
		}
	}
	of()
	k.If(hide, func() {
		w.hide(from)
		sum(func(_ int, s f32) f32 { return s })
	})
	for half, total := range w.total {
		total.Set(total.Get().Add(sums[half].Get()))
	}
}
