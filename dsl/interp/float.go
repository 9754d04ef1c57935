package interp

import "math"

// nanF32 is the NaN that PTX arithmetic produces.
const nanF32 = 0x7fffffff

func f32(x uint64) float32 { return math.Float32frombits(uint32(x)) }

// fromF32 is the register form of x, its NaN the canonical one.
func fromF32(x float32) uint64 {
	if x != x {
		return nanF32
	}
	return uint64(math.Float32bits(x))
}

func float1(f func(a float32) float32) stepFn {
	return int1(w32, func(a uint64) uint64 { return fromF32(f(f32(a))) })
}

func float2(f func(a, b float32) float32) stepFn {
	return int2(w32, func(a, b uint64) uint64 { return fromF32(f(f32(a), f32(b))) })
}

func approx(f func(float64) float64) binder {
	return fixedStep(float1(func(a float32) float32 { return float32(f(float64(a))) }))
}

// circularLimit is how far from 0 sin.approx and cos.approx are used: PTX gives
// their error for [−π, π] only, and a reduction in f32 leaves angles a little
// beyond π.
const circularLimit = 3.25

// circular is sin or cos of the active lanes. An argument beyond the limit is a
// fault, since the GPU's result would be another; infinities and NaN give NaN on both.
func circular(f func(float64) float64) stepFn {
	step := float1(func(a float32) float32 { return float32(f(float64(a))) })
	return func(m *machine, w *warp, in *inst) {
		a := m.in(w, in.a[0])
		for l := range a {
			x := math.Abs(float64(f32(a[l])))
			if w.mask>>l&1 != 0 && x > circularLimit && !math.IsInf(x, 0) {
				m.fail(w, in, l, ArgumentRange,
					"the angle is %g, want one in [−π, π]: the GPU's approximation is accurate only there", f32(a[l]))
				return
			}
		}
		step(m, w, in)
	}
}

func addF32(m *machine, w *warp, in *inst) {
	a, b, d := m.in(w, in.a[0]), m.in(w, in.a[1]), &w.regs[in.r[0]]
	for l := range d {
		d[l] = fromF32(f32(a[l]) + f32(b[l]))
	}
}

func mulF32(m *machine, w *warp, in *inst) {
	a, b, d := m.in(w, in.a[0]), m.in(w, in.a[1]), &w.regs[in.r[0]]
	for l := range d {
		d[l] = fromF32(float32(f32(a[l]) * f32(b[l])))
	}
}

func fmaF32(m *machine, w *warp, in *inst) {
	a, b, c, d := m.in(w, in.a[0]), m.in(w, in.a[1]), m.in(w, in.a[2]), &w.regs[in.r[0]]
	for l := range d {
		d[l] = fromF32(fma32(f32(a[l]), f32(b[l]), f32(c[l])))
	}
}

// fma32 is a·b + c with one rounding. The product is exact in float64; the sum
// is rounded to odd there (its last bit stands for everything below it), which
// makes the second rounding, to 24 bits, the only one that counts.
func fma32(a, b, c float32) float32 {
	p, z := float64(a)*float64(b), float64(c)
	s := p + z
	if math.IsInf(s, 0) || s != s {
		return float32(s)
	}
	t := s - p // Knuth's two-sum: s + e is exactly p + z
	e := (p - (s - t)) + (z - t)
	if e == 0 {
		return float32(s)
	}
	u := math.Float64bits(s)
	if u&1 == 0 {
		if (e > 0) == (s > 0) {
			u++
		} else {
			u--
		}
	}
	return float32(math.Float64frombits(u))
}

// bf16 rounds x to the nearest bfloat16, ties to even; NaN becomes 0x7fff.
func bf16(x float32) uint64 {
	if x != x {
		return 0x7fff
	}
	u := math.Float32bits(x)
	return uint64((u + 0x7fff + u>>16&1) >> 16)
}

// fromBF16 widens a bfloat16 exactly.
func fromBF16(h uint64) float32 { return math.Float32frombits(uint32(h) << 16) }

// f16 rounds x to the nearest binary16, ties to even; too large becomes
// infinity, NaN becomes 0x7fff.
func f16(x float32) uint64 {
	u := math.Float32bits(x)
	sign := uint64(u >> 16 & 0x8000)
	u &= 1<<31 - 1
	switch {
	case x != x:
		return 0x7fff
	case u >= 0x477ff000: // 65520 and above round to infinity
		return sign | 0x7c00
	case u < 0x38800000: // below 2⁻¹⁴: subnormal; adding 0.5 aligns the last bit to 2⁻²⁴
		y := math.Float32frombits(u) + 0.5
		return sign | uint64(math.Float32bits(y)-math.Float32bits(0.5))
	}
	u += 0xfff + u>>13&1
	return sign | uint64(u>>13-(127-15)<<10)
}

// fromF16 widens a binary16 exactly.
func fromF16(h uint64) float32 {
	sign := uint32(h&0x8000) << 16
	exp, man := uint32(h>>10&31), uint32(h&0x3ff)
	switch {
	case exp == 31 && man != 0:
		return math.Float32frombits(nanF32)
	case exp == 31:
		return math.Float32frombits(sign | 0x7f800000)
	case exp == 0:
		y := float32(man) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(y))
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | man<<13)
}

// e4m3 rounds x to the nearest float8 e4m3, ties to even; what is beyond ±448,
// infinities too, becomes ±448, NaN becomes 0x7f.
func e4m3(x float32) uint64 {
	u := math.Float32bits(x)
	sign := uint64(u >> 24 & 0x80)
	u &= 1<<31 - 1
	switch {
	case x != x:
		return 0x7f
	case u >= 0x43e80000: // 464 and above would round to 480, which is NaN's code, or beyond
		return sign | 0x7e
	case u < 0x3c800000: // below 2⁻⁶: subnormal; adding 2¹⁴ aligns the last bit to 2⁻⁹
		y := math.Float32frombits(u) + 1<<14
		return sign | uint64(math.Float32bits(y)-math.Float32bits(1<<14))
	}
	u += 0x7ffff + u>>20&1
	return sign | uint64(u>>20-(127-7)<<3)
}

// fromE4M3 widens a float8 e4m3 exactly.
func fromE4M3(h uint64) float32 {
	sign := uint32(h&0x80) << 24
	exp, man := uint32(h>>3&15), uint32(h&7)
	switch {
	case exp == 15 && man == 7:
		return math.Float32frombits(nanF32)
	case exp == 0:
		y := float32(man) * (1.0 / (1 << 9))
		return math.Float32frombits(sign | math.Float32bits(y))
	}
	return math.Float32frombits(sign | (exp+127-7)<<23 | man<<20)
}
