package attention_test

import (
	"math"

	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/internal/rig"
)

const nanBF16 = 0xffc1

// scales are the scales of an e4m3 cache, different for each layer, head, K and V.
func scales(l attention.KVLayout) (out []float32) {
	for i := range l.ScalesLen() {
		out = append(out, 0.03*(1+float32(i)/4))
	}
	return out
}

// putElement writes element at of a cache, of K (v = 0) or V of a layer and head,
// as near to x as its format has it, and returns what it counts.
func putElement(l attention.KVLayout, cache []byte, scales []float32, at, layer, head, v int, x float64) float64 {
	if scales != nil {
		scale := float64(scales[(layer*l.Heads+head)*2+v])
		cache[at] = byte(e4m3Nearest(x / scale))
		return e4m3Value(int(cache[at])) * scale
	}
	b := rig.ToBF16(x)
	if x != x {
		b = nanBF16
	}
	copy(cache[2*at:], rig.BF16Bytes([]half.BF16{b}))
	return rig.FromBF16(b)
}

// inKeyOrder are queries, of D elements each in order of the dimensions, as the
// kernel has them.
func inKeyOrder(l attention.KVLayout, q []half.BF16) []half.BF16 {
	out := make([]half.BF16, len(q))
	for i, x := range q {
		out[i/l.D*l.D+l.KeyOrder(i%l.D)] = x
	}
	return out
}

// e4m3Value is a float8 e4m3 read by its definition: bias 7, no infinities.
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

// e4m3Nearest searches the code whose value is nearest to x; of two as near the
// even one, and NaN for NaN.
func e4m3Nearest(x float64) int {
	best, least := 0x7f, math.Inf(1)
	for c := range 0x7f {
		if d := math.Abs(e4m3Value(c) - math.Abs(x)); d < least || d == least && c%2 == 0 {
			best, least = c, d
		}
	}
	if math.Signbit(x) {
		best |= 0x80
	}
	return best
}
