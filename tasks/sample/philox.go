package sample

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/draw"
)

// philox is Philox4x32-10, draw.Philox: four words of random bits of a key and a counter.
func philox(k *dsl.Kernel, key [2]u32, c [4]u32) [4]u32 {
	word := func(x uint32) u32 { return dsl.Lit[dsl.U32](k, int64(x)) }
	for round := range draw.PhiloxRounds {
		a, b := key[0], key[1]
		if round > 0 {
			a, b = a.Add(word(uint32(round)*draw.PhiloxW0)), b.Add(word(uint32(round)*draw.PhiloxW1))
		}
		m0, m1 := word(draw.PhiloxM0), word(draw.PhiloxM1)
		c = [4]u32{dsl.MulHi(c[2], m1).Xor(c[1]).Xor(a), c[2].Mul(m1), dsl.MulHi(c[0], m0).Xor(c[3]).Xor(b), c[0].Mul(m0)}
	}
	return c
}

// exponential is an exponentially distributed number of random bits: draw says how, and why with a series.
func exponential(k *dsl.Kernel, bits u32) f32 {
	v := dsl.Cast[dsl.F32](bits).Mul(k.F32(1.0 / (1 << 32))).Add(k.F32(1.0 / (1 << 33)))
	series := k.F32(float64(draw.SeriesTerms[0]))
	for _, c := range draw.SeriesTerms[1:] {
		series = v.Mul(series).Add(k.F32(float64(c)))
	}
	far := dsl.Log2(k.F32(1).Sub(v)).Mul(k.F32(-math.Ln2))
	return dsl.Select(v.Lt(k.F32(draw.Series)), series.Mul(v), far)
}
