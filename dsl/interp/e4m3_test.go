package interp_test

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/stretchr/testify/require"
)

// e4m3Value is float8 e4m3 read by its definition (Micikevicius et al. 2022):
// bias 7, no infinities, NaN where exponent and mantissa are all ones.
func e4m3Value(code int) float64 {
	sign, exp, man := 1-2*float64(code>>7), code>>3&15, float64(code&7)
	switch {
	case exp == 15 && man == 7:
		return math.NaN()
	case exp == 0:
		return math.Copysign(man*0x1p-9, sign)
	}
	return sign * math.Ldexp(1+man/8, exp-7)
}

// e4m3Nearest searches all codes of x's sign for the nearest value; of two as
// near the one whose code is even.
func e4m3Nearest(x float32) int {
	if x != x {
		return 0x7f
	}
	sign := 0
	if math.Signbit(float64(x)) {
		sign = 0x80
	}
	a, best := math.Abs(float64(x)), 0
	for c := range 0x7f {
		d, least := math.Abs(e4m3Value(c)-a), math.Abs(e4m3Value(best)-a)
		if math.IsInf(a, 0) || d < least || d == least && c%2 == 0 {
			best = c
		}
	}
	return sign | best
}

// e4m3Edges are all values of the format, the points between each two, what is
// next to both in f32, and what lies outside; every one with both signs.
func e4m3Edges() []float32 {
	out := []float32{464, 480, 1e9, math.MaxFloat32, float32(math.Inf(1)), float32(math.NaN()),
		math.SmallestNonzeroFloat32, 1.1754944e-38}
	for c := range 0x7f {
		v := e4m3Value(c)
		next := e4m3Value(c+1) - v
		if c == 0x7e {
			next = 32
		}
		for _, x := range []float32{float32(v), float32(v + next/2)} {
			out = append(out, x, math.Nextafter32(x, 1e9), math.Nextafter32(x, -1e9))
		}
	}
	for _, x := range out[:len(out):len(out)] {
		out = append(out, -x)
	}
	return out
}

func TestE4M3OfEveryRoundingBoundary(t *testing.T) {
	edges := e4m3Edges()
	require.Greater(t, len(edges), 1500)
	var args [][3]uint32
	for i, x := range edges {
		args = append(args, [3]uint32{math.Float32bits(x), math.Float32bits(edges[(7*i+3)%len(edges)])})
	}
	got := lanewise(t, args, func(k *dsl.Kernel, a, b, _ dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		return dsl.Cast[dsl.U32](dsl.Bits[dsl.U16](dsl.Pack[dsl.E4M3x2](bitsF(a), bitsF(b))))
	})
	for i, a := range args {
		for half := range 2 {
			x := math.Float32frombits(a[half])
			require.Equal(t, e4m3Nearest(x), int(got[i]>>(8*half)&0xff), "e4m3 of %g (half %d)", x, half)
		}
		require.Zero(t, got[i]>>16)
	}
}

func TestEveryE4M3CodeWidensExactlyAndComesBack(t *testing.T) {
	var args [][3]uint32
	for lo := range uint32(256) {
		args = append(args, [3]uint32{lo | (lo*37+5)&0xff<<8})
	}
	for half := range 2 {
		wide := lanewise(t, args, func(k *dsl.Kernel, a, _, _ dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
			lo, hi := dsl.Unpack(dsl.Cast[dsl.F16x2](dsl.Bits[dsl.E4M3x2](dsl.Cast[dsl.U16](a))))
			return bitsU([]dsl.Val[dsl.F32]{lo, hi}[half])
		})
		for i, w := range wide {
			code, got := int(args[i][0]>>(8*half)&0xff), float64(math.Float32frombits(w))
			want := e4m3Value(code)
			if want != want {
				require.True(t, got != got, "code %#x", code)
				continue
			}
			require.Equal(t, want, got, "code %#x", code)
			require.Equal(t, code>>7 == 1, math.Signbit(got), "code %#x", code)
			require.Equal(t, code, e4m3Nearest(float32(got)))
		}
	}
	back := lanewise(t, args, func(k *dsl.Kernel, a, _, _ dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		p := dsl.Pack[dsl.E4M3x2](dsl.Unpack(dsl.Cast[dsl.F16x2](dsl.Bits[dsl.E4M3x2](dsl.Cast[dsl.U16](a)))))
		return dsl.Cast[dsl.U32](dsl.Bits[dsl.U16](p))
	})
	for i, b := range back {
		for half := range 2 {
			want := args[i][0] >> (8 * half) & 0xff
			if want&0x7f == 0x7f {
				want = 0x7f // NaN has one code when it is made
			}
			require.Equal(t, want, b>>(8*half)&0xff)
		}
	}
}
