package dsl_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl"
)

var corners = []int64{0, 1, 2, 3, 7, 31, 32, 255, 1 << 15, 1<<31 - 1, 1 << 31, 1<<32 - 1, -1, -2, -7, math.MinInt32}

// folded is the constant a build stores, or "" if it stores something computed.
func folded[T dsl.Elem](t *testing.T, make func(k *dsl.Kernel) dsl.Val[T], t2 string) string {
	t.Helper()
	got := body(t, func(k *dsl.Kernel) { out(k, make(k)) })
	var c string
	if n, _ := fmt.Sscanf(got, "st."+t2+" @out[0], %s", &c); n == 1 && c[0] != 'v' {
		return c
	}
	return ""
}

func TestFoldingU32AgreesWithGo(t *testing.T) {
	for _, x := range corners {
		for _, y := range corners {
			a, b := uint32(x), uint32(y)
			want := map[string]uint32{"add": a + b, "sub": a - b, "mul": a * b, "and": a & b, "or": a | b, "xor": a ^ b,
				"min": min(a, b), "max": max(a, b), "shl": a << b, "shr": a >> b}
			ops := map[string]func(a, b u32) u32{"add": u32.Add, "sub": u32.Sub, "mul": u32.Mul, "and": u32.And, "or": u32.Or,
				"xor": u32.Xor, "min": u32.Min, "max": u32.Max, "shl": u32.Shl, "shr": u32.Shr}
			if b != 0 {
				want["div"], want["rem"] = a/b, a%b
				ops["div"], ops["rem"] = u32.Div, u32.Rem
			}
			for name, op := range ops {
				got := folded(t, func(k *dsl.Kernel) u32 { return op(k.U32(int(a)), k.U32(int(b))) }, "u32")
				require.Equal(t, fmt.Sprint(want[name]), got, "%d %s %d", a, name, b)
			}
		}
	}
}

func TestFoldingI32AgreesWithGo(t *testing.T) {
	for _, x := range corners {
		for _, y := range corners {
			a, b := int32(x), int32(y)
			want := map[string]int32{"add": a + b, "sub": a - b, "mul": a * b, "min": min(a, b), "max": max(a, b)}
			ops := map[string]func(a, b i32) i32{"add": i32.Add, "sub": i32.Sub, "mul": i32.Mul, "min": i32.Min, "max": i32.Max}
			for name, op := range ops {
				got := folded(t, func(k *dsl.Kernel) i32 { return op(k.I32(int(a)), k.I32(int(b))) }, "i32")
				require.Equal(t, fmt.Sprint(want[name]), got, "%d %s %d", a, name, b)
			}
		}
	}
}

func TestFoldingU64KeepsAllBits(t *testing.T) {
	big := uint64(math.MaxUint64 - 4)
	u64 := func(op func(a, b dsl.Val[dsl.U64]) dsl.Val[dsl.U64], x, y uint64) string {
		return folded(t, func(k *dsl.Kernel) dsl.Val[dsl.U64] { return op(k.U64(x), k.U64(y)) }, "u64")
	}
	require.Equal(t, fmt.Sprint(big+9), u64(dsl.Val[dsl.U64].Add, big, 9))
	require.Equal(t, fmt.Sprint(big/9), u64(dsl.Val[dsl.U64].Div, big, 9))
	require.Equal(t, fmt.Sprint(big), u64(dsl.Val[dsl.U64].Max, big, 9))
}

func TestFoldingComparesAsTheTypeDoes(t *testing.T) {
	for _, c := range []struct {
		name string
		pred func(k *dsl.Kernel) dsl.Pred
		want string
	}{
		{"-1 < 1 signed", func(k *dsl.Kernel) dsl.Pred { return k.I32(-1).Lt(k.I32(1)) }, "1"},
		{"2^32-1 < 1 unsigned", func(k *dsl.Kernel) dsl.Pred { return k.U32(math.MaxUint32).LtC(1) }, "0"},
		{"3 = 3", func(k *dsl.Kernel) dsl.Pred { return k.U32(3).EqC(3) }, "1"},
		{"3 ≠ 3", func(k *dsl.Kernel) dsl.Pred { return k.U32(3).NeC(3) }, "0"},
		{"3 ≤ 3", func(k *dsl.Kernel) dsl.Pred { return k.U32(3).Le(k.U32(3)) }, "1"},
		{"3 > 3", func(k *dsl.Kernel) dsl.Pred { return k.U32(3).Gt(k.U32(3)) }, "0"},
		{"3 ≥ 4", func(k *dsl.Kernel) dsl.Pred { return k.U32(3).GeC(4) }, "0"},
		{"true and false", func(k *dsl.Kernel) dsl.Pred { return k.Bool(true).And(k.Bool(false)) }, "0"},
		{"true or false", func(k *dsl.Kernel) dsl.Pred { return k.Bool(true).Or(k.Bool(false)) }, "1"},
		{"true xor true", func(k *dsl.Kernel) dsl.Pred { return k.Bool(true).Xor(k.Bool(true)) }, "0"},
		{"lane < 3 and false", func(k *dsl.Kernel) dsl.Pred { return k.Lane().LtC(3).And(k.Bool(false)) }, "0"},
		{"true or lane < 3", func(k *dsl.Kernel) dsl.Pred { return k.Bool(true).Or(k.Lane().LtC(3)) }, "1"},
	} {
		got := body(t, func(k *dsl.Kernel) { outPred(k, c.pred(k)) })
		require.Equal(t, "st.u32 @out[0], "+c.want, got, c.name)
	}
}

func TestNeutralOperandsEmitNothing(t *testing.T) {
	for name, f := range map[string]func(k *dsl.Kernel, x u32) u32{
		"x+0":       func(k *dsl.Kernel, x u32) u32 { return x.AddC(0) },
		"0+x":       func(k *dsl.Kernel, x u32) u32 { return k.U32(0).Add(x) },
		"x-0":       func(k *dsl.Kernel, x u32) u32 { return x.SubC(0) },
		"x*1":       func(k *dsl.Kernel, x u32) u32 { return x.MulC(1) },
		"1*x":       func(k *dsl.Kernel, x u32) u32 { return k.U32(1).Mul(x) },
		"x/1":       func(k *dsl.Kernel, x u32) u32 { return x.DivC(1) },
		"x<<0":      func(k *dsl.Kernel, x u32) u32 { return x.ShlC(0) },
		"x>>0":      func(k *dsl.Kernel, x u32) u32 { return x.ShrC(0) },
		"true?x:y":  func(k *dsl.Kernel, x u32) u32 { return dsl.Select(k.Bool(true), x, k.Warp()) },
		"false?y:x": func(k *dsl.Kernel, x u32) u32 { return dsl.Select(k.Bool(false), k.Warp(), x) },
	} {
		got := body(t, func(k *dsl.Kernel) { out(k, f(k, k.Lane())) })
		require.Equal(t, text("v0:u32 = lane", "st.u32 @out[0], v0"), got, name)
	}
}

func TestConstantsBehindAConstantAreOne(t *testing.T) {
	for want, f := range map[string]func(x u32) u32{
		"v2:u32 = add v0, 1280":       func(x u32) u32 { return x.AddC(256).AddC(1024) },
		"v2:u32 = mul v0, 4096":       func(x u32) u32 { return x.MulC(1024).MulC(4) },
		"v2:u32 = add v0, 4294967295": func(x u32) u32 { return x.AddC(1<<31 - 1).AddC(1 << 31) },
		"v3:u32 = mul v0, 24":         func(x u32) u32 { return x.MulC(2).MulC(3).MulC(4) },
	} {
		got := body(t, func(k *dsl.Kernel) { out(k, f(k.Lane())) })
		require.Equal(t, text("v0:u32 = lane", want, "st.u32 @out[0], "+want[:2]), got)
	}
}

func TestConstantsWhoseSumOrProductWrapsStay(t *testing.T) {
	for want, f := range map[string]func(x u32) u32{
		"add v0, 5; add v1, 4294967295": func(x u32) u32 { return x.AddC(5).AddC(-1) },
		"mul v0, 65536; mul v1, 65536":  func(x u32) u32 { return x.MulC(1 << 16).MulC(1 << 16) },
		"add v0, 5; mul v1, 3":          func(x u32) u32 { return x.AddC(5).MulC(3) },
	} {
		first, second, _ := strings.Cut(want, "; ")
		got := body(t, func(k *dsl.Kernel) { out(k, f(k.Lane())) })
		require.Equal(t, text("v0:u32 = lane", "v1:u32 = "+first, "v2:u32 = "+second, "st.u32 @out[0], v2"), got)
	}
	got := body(t, func(k *dsl.Kernel) {
		x := dsl.Cast[dsl.I32](k.Lane())
		k.If(x.AddC(-7).AddC(-8).Lt(k.I32(0)), func() { out(k, k.Lane()) })
	})
	require.Contains(t, got, "add v2, -8", "of i32, whose constants are kept with their sign")
}

func TestAnOperandOfAFoldedConstantThatIsUsedStays(t *testing.T) {
	got := body(t, func(k *dsl.Kernel) { x := k.Lane().AddC(256); out(k, x, x.AddC(1024)) })
	require.Equal(t, text("v0:u32 = lane", "v1:u32 = add v0, 256", "v2:u32 = add v0, 1280",
		"st.u32 @out[0], v1", "st.u32 @out[1], v2"), got)
}

func TestWhatFoldingLeavesOverIsDropped(t *testing.T) {
	for name, f := range map[string]func(k *dsl.Kernel, x u32) u32{
		"x*0": func(k *dsl.Kernel, x u32) u32 { return x.AddC(3).MulC(0) },
		"0*x": func(k *dsl.Kernel, x u32) u32 { return k.U32(0).Mul(x) },
		"x%1": func(k *dsl.Kernel, x u32) u32 { return x.Add(k.Warp()).RemC(1) },
	} {
		got := body(t, func(k *dsl.Kernel) {
			k.If(k.Tid().EqC(0), func() { out(k, f(k, k.Lane())) })
		})
		require.Equal(t, text("v0:u32 = tid", "v1:pred = eq v0, 0", "if v1 {", "st.u32 @out[0], 0", "}"), got, name)
	}
}

func TestWhatFoldingLeavesOverStaysWhereItIsUsed(t *testing.T) {
	got := body(t, func(k *dsl.Kernel) { x := k.Lane(); out(k, x.MulC(0), x) })
	require.Equal(t, text("v0:u32 = lane", "st.u32 @out[0], 0", "st.u32 @out[1], v0"), got)
}

func TestWhatTheAuthorLeftUnusedIsStillRefused(t *testing.T) {
	require.Equal(t, "add: v2:u32 is computed and nothing uses it", mistakes(t, func(k *dsl.Kernel) {
		out(k, k.Lane().MulC(0))
		k.Warp().AddC(1)
	}))
}

func TestFloatsAreNotFolded(t *testing.T) {
	got := body(t, func(k *dsl.Kernel) { out(k, k.F32(1).Add(k.F32(0))) })
	require.Equal(t, text("v0:f32 = add 1.0, 0.0", "st.f32 @out[0], v0"), got)
}

func TestCastFoldsIntegersByWidth(t *testing.T) {
	require.Equal(t, "4294967295", folded(t, func(k *dsl.Kernel) u32 { return dsl.Cast[dsl.U32](k.I32(-1)) }, "u32"))
	require.Equal(t, "5", folded(t, func(k *dsl.Kernel) u32 { return dsl.Cast[dsl.U32](k.U64(1<<32 + 5)) }, "u32"))
	require.Equal(t, "-1", folded(t, func(k *dsl.Kernel) i32 { return dsl.Cast[dsl.I32](k.U32(math.MaxUint32)) }, "i32"))
	require.Equal(t, "18446744073709551615",
		folded(t, func(k *dsl.Kernel) dsl.Val[dsl.U64] { return dsl.Cast[dsl.U64](k.I32(-1)) }, "u64"))
}

func TestConstantsMustFit(t *testing.T) {
	require.Equal(t, text(
		"constant 4294967296 does not fit u32", "constant -1 does not fit u32", "constant 2147483648 does not fit i32",
		"constant 4294967296 does not fit u32", "constant 65536 does not fit bf16", "constant 16777217 does not fit f32",
		"div: divides by the constant 0", "rem: divides by the constant 0",
	), mistakes(t, func(k *dsl.Kernel) {
		k.U32(1 << 32)
		k.U32(-1)
		k.I32(1 << 31)
		k.Lane().LtC(1 << 32)
		dsl.Lit[dsl.BF16](k, 65536)
		k.F32(1).AddC(1<<24 + 1)
		k.Lane().DivC(0)
		k.Lane().RemC(0)
	}))
	require.Equal(t, text("v0:u32 = lane", "v1:u32 = add v0, 4294967295", "st.u32 @out[0], v1"),
		body(t, func(k *dsl.Kernel) { out(k, k.Lane().AddC(-1)) }), "AddC(-1) subtracts")
}
