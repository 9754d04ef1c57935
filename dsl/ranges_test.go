package dsl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl"
)

func TestComparisonsThatComeOutTheSameEverywhereAreConstants(t *testing.T) {
	for want, preds := range map[string]map[string]func(lane u32) dsl.Pred{
		"1": {
			"lane < 32":            func(x u32) dsl.Pred { return x.LtC(32) },
			"lane ≤ 31":            func(x u32) dsl.Pred { return x.Le(x.MulC(0).AddC(31)) },
			"lane mod 4 + 8 ≥ 8":   func(x u32) dsl.Pred { return x.RemC(4).AddC(8).GeC(8) },
			"lane xor 40 ≠ 64":     func(x u32) dsl.Pred { return x.XorC(40).NeC(64) },
			"min(lane, 2) + 8 ≥ …": func(x u32) dsl.Pred { return x.MinC(2).AddC(8).Ge(x.MaxC(1).MinC(8)) },
		},
		"0": {
			"lane ≥ 32":              func(x u32) dsl.Pred { return x.GeC(32) },
			"lane mod 4 · 2 + 1 < 1": func(x u32) dsl.Pred { return x.RemC(4).MulC(2).AddC(1).LtC(1) },
			"lane / 8 > 3":           func(x u32) dsl.Pred { return x.DivC(8).Gt(x.MulC(0).AddC(3)) },
			"lane and 3 = 4":         func(x u32) dsl.Pred { return x.AndC(3).EqC(4) },
			"max(lane, 33) ≤ lane":   func(x u32) dsl.Pred { return x.MaxC(33).Le(x) },
		},
	} {
		for name, p := range preds {
			require.Equal(t, text("st.u32 @out[0], "+want),
				body(t, func(k *dsl.Kernel) { outPred(k, p(k.Lane())) }), name)
		}
	}
}

func TestComparisonsThatDependOnTheLaneStay(t *testing.T) {
	for name, p := range map[string]func(k *dsl.Kernel, x u32) dsl.Pred{
		"lane < 31":           func(_ *dsl.Kernel, x u32) dsl.Pred { return x.LtC(31) },
		"lane ≥ 1":            func(_ *dsl.Kernel, x u32) dsl.Pred { return x.GeC(1) },
		"lane = 31":           func(_ *dsl.Kernel, x u32) dsl.Pred { return x.EqC(31) },
		"lane · 2^28 wraps":   func(_ *dsl.Kernel, x u32) dsl.Pred { return x.MulC(1 << 28).GeC(1 << 31) },
		"lane − 1 wraps":      func(_ *dsl.Kernel, x u32) dsl.Pred { return x.SubC(1).LtC(1 << 31) },
		"lane / warp":         func(k *dsl.Kernel, x u32) dsl.Pred { return x.Div(k.Warp().AddC(1)).LtC(31) },
		"8 mod lane + 1 < 8":  func(k *dsl.Kernel, x u32) dsl.Pred { return k.U32(8).Rem(x.AddC(1)).LtC(8) },
		"a signed 31 − lane":  func(k *dsl.Kernel, x u32) dsl.Pred { return k.I32(0).Lt(dsl.Cast[dsl.I32](x)) },
		"a thread of the CTA": func(k *dsl.Kernel, x u32) dsl.Pred { return k.Tid().Max(x).LtC(4096) },
	} {
		got := body(t, func(k *dsl.Kernel) { outPred(k, p(k, k.Lane())) })
		require.NotContains(t, got, "st.u32 @out[0], 0", name)
		require.NotContains(t, got, "st.u32 @out[0], 1", name)
	}
}

func TestMinAndMaxOfApartRangesAreOneSide(t *testing.T) {
	for name, f := range map[string]func(x u32) u32{
		"min(lane, 31)":              func(x u32) u32 { return x.MinC(31) },
		"min(32, lane)":              func(x u32) u32 { return x.MulC(0).AddC(32).Min(x) },
		"max(lane, 0)":               func(x u32) u32 { return x.MaxC(0) },
		"max(lane, lane mod 8 − …)":  func(x u32) u32 { return x.Max(x.RemC(1)) },
		"min(min(lane, 40), 32 + …)": func(x u32) u32 { return x.MinC(40).Min(x.RemC(8).AddC(32)) },
	} {
		got := body(t, func(k *dsl.Kernel) { out(k, f(k.Lane())) })
		require.Equal(t, text("v0:u32 = lane", "st.u32 @out[0], v0"), got, name)
	}
}
