package interp_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/stretchr/testify/require"
)

// lanewise runs f on 32-bit words, one triple of arguments a thread.
func lanewise(t *testing.T, args [][3]uint32,
	f func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32]) []uint32 {
	t.Helper()
	n := (len(args) + 31) / 32 * 32
	p := build(t, 1, n/32, func(k *dsl.Kernel) {
		x := dsl.Global[dsl.U32](k, "x", int64(4*n), dsl.ReadOnly(), dsl.Align(16))
		y := dsl.Global[dsl.U32](k, "y", int64(n))
		i := k.CTA().MulC(32).Add(k.Lane())
		v := x.LoadN(i.MulC(4), 4)
		y.Store(i, f(k, v[0], v[1], v[2]).Add(v[3])) // v[3] is 0
	})
	words := make([]uint32, 4*n)
	for i := range n {
		copy(words[4*i:], args[min(i, len(args)-1)][:])
	}
	m := bufs(p)
	m.Bind("x", putU32s(words...))
	run(t, p, m, 1)
	return u32s(m.Bytes("y"))[:len(args)]
}

func bitsF(v dsl.Val[dsl.U32]) dsl.Val[dsl.F32] { return dsl.Bits[dsl.F32](v) }
func bitsU[T dsl.Elem](v dsl.Val[T]) dsl.Val[dsl.U32] {
	return dsl.Bits[dsl.U32](v)
}

// specials are floats at the edges of their format.
var specials = []float32{0, float32(math.Copysign(0, -1)), 1, -1, 1.5, 65504, 65519.99, 65520, -65520, 1e-8,
	5.9604645e-8, 2.9802322e-8, 6.097555e-5, 6.1035156e-5, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 2147483520, 2147483648, -2147483648, -2147483904,
	4294967040, 4294967296, 0.49999997, 2.5, 3.5, -2.5, 1.0039062, 1.0117188}

func triples(n int, seed uint64) [][3]uint32 {
	r := rand.New(rand.NewPCG(seed, 2))
	var out [][3]uint32
	for _, a := range specials {
		for _, b := range []float32{0, 1, -1.5, float32(math.NaN()), float32(math.Inf(-1)), math.MaxFloat32} {
			out = append(out, [3]uint32{math.Float32bits(a), math.Float32bits(b), math.Float32bits(a * 0.3)})
		}
	}
	for range n {
		out = append(out, [3]uint32{r.Uint32(), r.Uint32(), r.Uint32()})
		// Near cancellation, where a second rounding would show.
		e := uint32(127-12+r.IntN(24)) << 23
		a, b := e|r.Uint32()>>9, uint32(127)<<23|r.Uint32()>>9
		c := math.Float32bits(-math.Float32frombits(a) * math.Float32frombits(b) * float32(r.IntN(3)))
		out = append(out, [3]uint32{a, b, c ^ r.Uint32()&3})
	}
	return out
}

// exactFMA is a·b + c in rational arithmetic, rounded once.
func exactFMA(a, b, c float32) (float32, bool) {
	for _, x := range []float32{a, b, c} {
		if math.IsInf(float64(x), 0) || x != x {
			return 0, false
		}
	}
	r := new(big.Rat).Mul(new(big.Rat).SetFloat64(float64(a)), new(big.Rat).SetFloat64(float64(b)))
	r.Add(r, new(big.Rat).SetFloat64(float64(c)))
	if r.Sign() == 0 {
		return 0, false // the sign of zero is checked elsewhere
	}
	f, _ := r.Float32()
	return f, true
}

func TestFMARoundsOnce(t *testing.T) {
	args := triples(4000, 7)
	// Cases in which rounding to float64 first gives a wrong float32.
	args = append(args, [3]uint32{math.Float32bits(1 + 1.0/4096), math.Float32bits(1 + 1.0/4096),
		math.Float32bits(0x1p-60)},
		[3]uint32{math.Float32bits(1 + 0x1p-12), math.Float32bits(1 + 0x1p-12), math.Float32bits(-0x1p-70)})
	got := lanewise(t, args, func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		return bitsU(dsl.FMA(bitsF(a), bitsF(b), bitsF(c)))
	})
	doubled := 0
	for i, x := range args {
		a, b, c := math.Float32frombits(x[0]), math.Float32frombits(x[1]), math.Float32frombits(x[2])
		want, ok := exactFMA(a, b, c)
		if !ok {
			continue
		}
		require.Equal(t, math.Float32bits(want), got[i], "%g · %g + %g", a, b, c)
		if float32(math.FMA(float64(a), float64(b), float64(c))) != want {
			doubled++
		}
	}
	require.NotZero(t, doubled, "no case would show a second rounding")
}

func TestFloatArithmeticIsIEEE(t *testing.T) {
	args := triples(1000, 3)
	ops := map[string]struct {
		dev  func(a, b dsl.Val[dsl.F32]) dsl.Val[dsl.F32]
		host func(a, b float32) float64
	}{
		"add": {dsl.Val[dsl.F32].Add, func(a, b float32) float64 { return float64(a) + float64(b) }},
		"sub": {dsl.Val[dsl.F32].Sub, func(a, b float32) float64 { return float64(a) - float64(b) }},
		"mul": {dsl.Val[dsl.F32].Mul, func(a, b float32) float64 { return float64(a) * float64(b) }},
		"div": {dsl.Val[dsl.F32].Div, func(a, b float32) float64 { return float64(a) / float64(b) }},
	}
	for name, op := range ops {
		got := lanewise(t, args, func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
			return bitsU(op.dev(bitsF(a), bitsF(b)))
		})
		for i, x := range args {
			a, b := math.Float32frombits(x[0]), math.Float32frombits(x[1])
			want := float32(op.host(a, b)) // exact in float64 up to one innocuous rounding for + − · /
			sameFloat(t, want, got[i], "%s %g %g", name, a, b)
		}
	}
}

func sameFloat(t *testing.T, want float32, got uint32, format string, args ...any) {
	t.Helper()
	if want != want {
		require.Equal(t, uint32(0x7fffffff), got, format, fmt.Sprintf(format, args...))
		return
	}
	require.Equal(t, math.Float32bits(want), got, fmt.Sprintf(format, args...))
}

func TestMinMaxOfNaNAndZeros(t *testing.T) {
	nan, nz := uint32(0x7fc00000), uint32(1<<31)
	one := math.Float32bits(1)
	args := [][3]uint32{{nan, one}, {one, nan}, {nan, nan}, {nz, 0}, {0, nz}, {one, nz}}
	mn := lanewise(t, args, func(k *dsl.Kernel, a, b,
		c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		return bitsU(bitsF(a).Min(bitsF(b)))
	})
	mx := lanewise(t, args, func(k *dsl.Kernel, a, b,
		c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		return bitsU(bitsF(a).Max(bitsF(b)))
	})
	require.Equal(t, []uint32{one, one, 0x7fffffff, nz, nz, nz}, mn)
	require.Equal(t, []uint32{one, one, 0x7fffffff, 0, 0, one}, mx)
}

// roundTo rounds x to a float with man mantissa bits, smallest normal exponent
// emin and largest finite value max, by scaling to integers.
func roundTo(x float64, man, emin int, max float64) float64 {
	if x != x || math.IsInf(x, 0) || x == 0 {
		return x
	}
	_, e := math.Frexp(x)
	ulp := math.Ldexp(1, maxInt(e-1, emin)-man)
	y := math.RoundToEven(x/ulp) * ulp
	if math.Abs(y) > max {
		return math.Inf(int(math.Copysign(1, x)))
	}
	return y
}

func maxInt(a, b int) int {
	if a > b {
		return a
	}
	return b
}

func TestNarrowFloatsRoundToNearestEven(t *testing.T) {
	args := triples(3000, 11)
	packB := lanewise(t, args, func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		return bitsU(dsl.Pack[dsl.BF16x2](bitsF(a), bitsF(b)))
	})
	packH := lanewise(t, args, func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		return bitsU(dsl.Pack[dsl.F16x2](bitsF(a), bitsF(b)))
	})
	for i, x := range args {
		for half := range 2 {
			v := math.Float32frombits(x[half])
			b, h := uint16(packB[i]>>(16*half)), uint16(packH[i]>>(16*half))
			if v != v {
				require.Equal(t, [2]uint16{0x7fff, 0x7fff}, [2]uint16{b, h})
				continue
			}
			wantB := roundTo(float64(v), 7, -126, 0x1.fep127)
			require.Equal(t, math.Float32bits(float32(wantB)), uint32(b)<<16, "bf16 of %g", v)
			wantH := roundTo(float64(v), 10, -14, 65504)
			require.Equal(t, wantH, halfValue(h), "f16 of %g", v)
			require.Equal(t, math.Signbit(float64(v)), h>>15 == 1)
		}
	}
}

// halfValue is binary16 read by its definition.
func halfValue(h uint16) float64 {
	sign, exp, man := 1-2*float64(h>>15), int(h>>10&31), float64(h&1023)
	switch exp {
	case 31:
		return sign * math.Inf(1)
	case 0:
		return sign * man * 0x1p-24
	}
	return sign * math.Ldexp(1+man/1024, exp-15)
}

func TestUnpackOfEveryHalf(t *testing.T) {
	var args [][3]uint32
	for h := range uint32(1 << 15) {
		args = append(args, [3]uint32{2*h + (2*h+1)<<16})
	}
	for half := range 2 {
		got := lanewise(t, args, func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
			lo, hi := dsl.Unpack[dsl.F16x2](dsl.Bits[dsl.F16x2](a))
			if half == 1 {
				return bitsU(hi)
			}
			return bitsU(lo)
		})
		for i, g := range got {
			h := uint16(2*i + half)
			if h>>10&31 == 31 && h&1023 != 0 {
				require.Equal(t, uint32(0x7fffffff), g)
				continue
			}
			require.Equal(t, halfValue(h), float64(math.Float32frombits(g)), "%#x", h)
		}
	}
}

func TestFloatToIntegerClamps(t *testing.T) {
	var args [][3]uint32
	for _, x := range append([]float32{-0.9, 0.9, -1.9, 1e30, -1e30}, specials...) {
		args = append(args, [3]uint32{math.Float32bits(x)})
	}
	signed := lanewise(t, args, func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		return bitsU(dsl.Cast[dsl.I32](bitsF(a)))
	})
	unsigned := lanewise(t, args,
		func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return dsl.Cast[dsl.U32](bitsF(a)) })
	for i, x := range args {
		v := float64(math.Float32frombits(x[0]))
		want := func(lo, hi float64) float64 {
			if v != v {
				return 0
			}
			return math.Max(lo, math.Min(hi, math.Trunc(v)))
		}
		require.Equal(t, want(math.MinInt32, math.MaxInt32)+0, float64(int32(signed[i])), "%g", v)
		require.Equal(t, want(0, math.MaxUint32)+0, float64(unsigned[i]), "%g", v)
	}
}

func TestIntegerEdges(t *testing.T) {
	minI := uint32(1 << 31)
	args := [][3]uint32{{minI, 0xffffffff}, {7, 0xfffffffe}, {0xfffffff9, 2}, {0xfffffff9, 0xfffffffd}, {minI, 1}, {5, 3}}
	type fn = func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32]
	i32 := func(v dsl.Val[dsl.U32]) dsl.Val[dsl.I32] { return dsl.Bits[dsl.I32](v) }
	cases := []struct {
		name string
		dev  fn
		host func(a, b int64) int64
	}{
		{"div", func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return bitsU(i32(a).Div(i32(b))) },
			func(a, b int64) int64 { return a / b }},
		{"rem", func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return bitsU(i32(a).Rem(i32(b))) },
			func(a, b int64) int64 { return a % b }},
		{"min", func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return bitsU(i32(a).Min(i32(b))) },
			func(a, b int64) int64 { return min(a, b) }},
		{"max", func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return bitsU(i32(a).Max(i32(b))) },
			func(a, b int64) int64 { return max(a, b) }},
		{"abs", func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return bitsU(i32(a).Abs().Add(i32(b))) },
			func(a, b int64) int64 { return max(a, -a) + b }},
		{"neg", func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return bitsU(i32(a).Neg().Sub(i32(b))) },
			func(a, b int64) int64 { return -a - b }},
		{"mul", func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return bitsU(i32(a).Mul(i32(b))) },
			func(a, b int64) int64 { return a * b }},
	}
	for _, tt := range cases {
		got := lanewise(t, args, tt.dev)
		for i, x := range args {
			require.Equal(t, int32(tt.host(int64(int32(x[0])), int64(int32(x[1])))), int32(got[i]), "%s %d %d", tt.name,
				int32(x[0]), int32(x[1]))
		}
	}
}

func TestShiftsPastTheWidth(t *testing.T) {
	args := [][3]uint32{{0x80000001, 0}, {0x80000001, 1}, {0x80000001, 31}, {0x80000001, 32}, {0x80000001, 63},
		{0x80000001, 64}, {0x80000001, 0xffffffff}}
	shl := lanewise(t, args, func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return a.Shl(b) })
	shr := lanewise(t, args, func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return a.Shr(b) })
	sar := lanewise(t, args, func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		return bitsU(dsl.Bits[dsl.I32](a).Shr(b))
	})
	wide := lanewise(t, args, func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		return dsl.Cast[dsl.U32](dsl.Cast[dsl.U64](a).Shl(b).Shr(k.U32(32)))
	})
	require.Equal(t, []uint32{0x80000001, 2, 0x80000000, 0, 0, 0, 0}, shl)
	require.Equal(t, []uint32{0x80000001, 0x40000000, 1, 0, 0, 0, 0}, shr)
	require.Equal(t, []uint32{0x80000001, 0xc0000000, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, sar)
	require.Equal(t, []uint32{0, 1, 0x40000000, 0x80000001, 0x80000000, 0, 0}, wide)
}

func TestSignExtensionToU64(t *testing.T) {
	got := lanewise(t, [][3]uint32{{0xfffffffe}, {5}}, func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		return dsl.Cast[dsl.U32](dsl.Cast[dsl.U64](dsl.Bits[dsl.I32](a)).Shr(k.U32(32)))
	})
	require.Equal(t, []uint32{0xffffffff, 0}, got)
}

func TestSpecialFunctions(t *testing.T) {
	inf := float32(math.Inf(1))
	type fn = func(dsl.Val[dsl.F32]) dsl.Val[dsl.F32]
	host := map[string]struct {
		dev  fn
		host func(float64) float64
	}{
		"exp2": {dsl.Exp2, math.Exp2}, "log2": {dsl.Log2, math.Log2}, "sin": {dsl.Sin, math.Sin}, "cos": {dsl.Cos, math.Cos},
		"tanh": {dsl.Tanh, math.Tanh}, "sqrt": {dsl.Sqrt, math.Sqrt}, "floor": {dsl.Floor, math.Floor},
		"rint":  {dsl.Rint, math.RoundToEven},
		"rcp":   {dsl.Rcp, func(x float64) float64 { return 1 / x }},
		"rsqrt": {dsl.Rsqrt, func(x float64) float64 { return math.Pow(x, -0.5) }},
	}
	xs := []float32{0, 1, 0.5, 2.5, -2.5, 3, inf, -inf, float32(math.NaN()), 1e-3, 3.125, -1} // sin and cos: up to π
	var args [][3]uint32
	for _, x := range xs {
		args = append(args, [3]uint32{math.Float32bits(x)})
	}
	for name, f := range host {
		got := lanewise(t, args,
			func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return bitsU(f.dev(bitsF(a))) })
		for i, x := range xs {
			want, g := f.host(float64(x)), float64(math.Float32frombits(got[i]))
			if name == "rsqrt" && x == -inf {
				want = math.NaN() // not what Pow says
			}
			if want != want || math.IsInf(want, 0) || want == 0 {
				require.Equal(t, fmt.Sprint(want+0), fmt.Sprint(g+0), "%s %g", name, x)
				continue
			}
			require.InEpsilon(t, want, g, 1e-7, "%s %g", name, x)
		}
	}
}
