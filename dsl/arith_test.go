package dsl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl"
)

// ops builds a value and gives the instruction that computes it.
func op[T dsl.Elem](t *testing.T, build func(k *dsl.Kernel) dsl.Val[T]) string {
	t.Helper()
	p := finish(t, func(k *dsl.Kernel) { out(k, build(k).Named("r")) })
	stmts := p.Body.Stmts
	return stmts[len(stmts)-2].(interface{ String() string }).String()
}

func TestIntegerArithmetic(t *testing.T) {
	for want, f := range map[string]func(a, b u32) u32{
		"v2.r:u32 = add v0, v1": u32.Add, "v2.r:u32 = sub v0, v1": u32.Sub, "v2.r:u32 = mul v0, v1": u32.Mul,
		"v2.r:u32 = div v0, v1": u32.Div, "v2.r:u32 = rem v0, v1": u32.Rem, "v2.r:u32 = min v0, v1": u32.Min,
		"v2.r:u32 = max v0, v1": u32.Max, "v2.r:u32 = and v0, v1": u32.And, "v2.r:u32 = or v0, v1": u32.Or,
		"v2.r:u32 = xor v0, v1": u32.Xor, "v2.r:u32 = shl v0, v1": u32.Shl, "v2.r:u32 = shr v0, v1": u32.Shr,
		"v2.r:u32 = mulhi v0, v1":             dsl.MulHi,
		"v2.r:u32 = prmt v0, v1 sel=0x1032":   func(a, b u32) u32 { return dsl.Permute(a, b, 0x1032) },
		"v2.r:u32 = lop3 v0, v1, v0 lut=0x28": func(a, b u32) u32 { return dsl.XorAnd(a, b, a) },
		"v2.r:u32 = dp2a v0, 255, v1":         func(a, b u32) u32 { return dsl.Dot2(a, -1, 0, b) },
		"v2.r:u32 = prmt.by v0, v1, v0":       func(a, b u32) u32 { return dsl.PermuteBy(a, b, a) },
	} {
		require.Equal(t, want, op(t, func(k *dsl.Kernel) u32 { return f(k.Lane(), k.Warp()) }))
	}
	for want, f := range map[string]func(a u32) u32{
		"v1.r:u32 = not v0": u32.Not, "v1.r:u32 = add v0, 5": func(a u32) u32 { return a.AddC(5) },
		"v1.r:u32 = sub v0, 5": func(a u32) u32 { return a.SubC(5) },
		"v1.r:u32 = mul v0, 5": func(a u32) u32 { return a.MulC(5) },
		"v1.r:u32 = div v0, 5": func(a u32) u32 { return a.DivC(5) },
		"v1.r:u32 = rem v0, 5": func(a u32) u32 { return a.RemC(5) },
		"v1.r:u32 = and v0, 5": func(a u32) u32 { return a.AndC(5) },
		"v1.r:u32 = xor v0, 5": func(a u32) u32 { return a.XorC(5) },
		"v1.r:u32 = min v0, 5": func(a u32) u32 { return a.MinC(5) },
		"v1.r:u32 = max v0, 5": func(a u32) u32 { return a.MaxC(5) },
		"v1.r:u32 = shl v0, 5": func(a u32) u32 { return a.ShlC(5) },
		"v1.r:u32 = shr v0, 5": func(a u32) u32 { return a.ShrC(5) },
	} {
		require.Equal(t, want, op(t, func(k *dsl.Kernel) u32 { return f(k.Lane()) }))
	}
}

func TestFloatArithmetic(t *testing.T) {
	for want, f := range map[string]func(a f32) f32{
		"neg": f32.Neg, "abs": f32.Abs, "exp2": dsl.Exp2, "log2": dsl.Log2, "rcp": dsl.Rcp, "rsqrt": dsl.Rsqrt,
		"sqrt": dsl.Sqrt,
		"sin":  dsl.Sin, "cos": dsl.Cos, "tanh": dsl.Tanh, "rint": dsl.Rint, "floor": dsl.Floor,
	} {
		require.Equal(t, "v1.r:f32 = "+want+" v0",
			op(t, func(k *dsl.Kernel) f32 { return f(dsl.Scalar[dsl.F32](k, "x", "")) }))
	}
	require.Equal(t, "v1.r:f32 = fma v0, 2.0, -0.5", op(t, func(k *dsl.Kernel) f32 {
		return dsl.FMA(dsl.Scalar[dsl.F32](k, "x", ""), k.F32(2), k.F32(-0.5))
	}))
	require.Equal(t, "v1.r:f32 = mul v0, 3.0",
		op(t, func(k *dsl.Kernel) f32 { return dsl.Scalar[dsl.F32](k, "x", "").MulC(3) }))
}

func TestComparisons(t *testing.T) {
	for want, f := range map[string]func(a, b f32) dsl.Pred{"eq": f32.Eq, "ne": f32.Ne, "lt": f32.Lt, "le": f32.Le,
		"gt": f32.Gt, "ge": f32.Ge} {
		require.Contains(t, body(t, func(k *dsl.Kernel) { outPred(k, f(dsl.Scalar[dsl.F32](k, "x", ""), k.F32(1))) }),
			"v1:pred = "+want+" v0, 1.0\n")
	}
	for want, f := range map[string]func(a, b dsl.Pred) dsl.Pred{"and": dsl.Pred.And, "or": dsl.Pred.Or,
		"xor": dsl.Pred.Xor} {
		require.Contains(t, body(t, func(k *dsl.Kernel) { outPred(k, f(k.Lane().GeC(1), k.Warp().NeC(2))) }),
			"v4:pred = "+want+" v1, v3\n")
	}
	require.Contains(t, body(t, func(k *dsl.Kernel) { outPred(k, k.Lane().EqC(1).Not()) }), "v2:pred = not v1\n")
}

func TestConversions(t *testing.T) {
	require.Equal(t, text("v0:bf16 = ld.bf16 @x[0]", "v1:f32 = cvt v0", "v2:f16 = cvt v1", "v3:f32 = cvt v2",
		"v4:i32 = cvt v3", "v5:u64 = cvt v4", "v6:u32 = cvt v5", "v7:f32 = bits v6", "v8:bf16x2 = pack v7, v1",
		"v9:f32, v10:f32 = unpack v8", "v11:u32 = bits v9", "v12:b128 = join v11, v6, v6, v6",
		"v13:u32, v14:u32, v15:u32, v16:u32 = split v12", "v17:u32 = bits v10",
		"st.u32 @out[0], v13", "st.u32 @out[1], v17"), body(t, func(k *dsl.Kernel) {
		f := dsl.Cast[dsl.F32](dsl.Global[dsl.BF16](k, "x", 1).Load(nil))
		i := dsl.Cast[dsl.I32](dsl.Cast[dsl.F32](dsl.Cast[dsl.F16](f)))
		w := dsl.Cast[dsl.U32](dsl.Cast[dsl.U64](i))
		lo, hi := dsl.Unpack[dsl.BF16x2](dsl.Pack[dsl.BF16x2](dsl.Bits[dsl.F32](w), f))
		out(k, dsl.Split(dsl.Join(dsl.Bits[dsl.U32](lo), w, w, w))[0], dsl.Bits[dsl.U32](hi))
	}))
	require.Equal(t, text("cvt: cannot turn f32 into u64", "bits: cannot see f32 as u64: sizes are 4 and 8 bytes"),
		mistakes(t, func(k *dsl.Kernel) {
			dsl.Cast[dsl.U64](k.F32(1))
			dsl.Bits[dsl.U64](k.F32(1))
		}))
}
