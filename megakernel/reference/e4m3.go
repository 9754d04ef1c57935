package reference

import (
	"math"

	"github.com/mkgen/mkgen/models"
)

// E4M3Max is the greatest float8 e4m3.
const E4M3Max = 448

// e4m3 has 3 bits of mantissa; exponents below −6 are those of subnormals.
const (
	e4m3Mantissa = 3
	e4m3Least    = -6
)

// RoundE4M3 rounds x to the nearest float8 e4m3 (Micikevicius et al. 2022), ties to
// even; what is beyond ±448 becomes ±448, NaN stays.
func RoundE4M3(x float64) float64 {
	if x != x {
		return x
	}
	_, exp := math.Frexp(x) // |x| = f·2^exp, f in [½, 1)
	step := math.Ldexp(1, max(exp-1, e4m3Least)-e4m3Mantissa)
	return math.Copysign(min(math.RoundToEven(math.Abs(x)/step)*step, E4M3Max), x)
}

// ToE4M3 is the code of the float8 e4m3 nearest to x, 0x7f for NaN.
func ToE4M3(x float64) byte {
	y := RoundE4M3(x)
	if y != y {
		return 0x7f
	}
	code := byte(0)
	if math.Signbit(y) {
		code = 0x80
	}
	y = math.Abs(y)
	if y < math.Ldexp(1, e4m3Least) {
		return code | byte(math.Ldexp(y, e4m3Mantissa-e4m3Least))
	}
	f, exp := math.Frexp(y)
	return code | byte(exp-e4m3Least)<<e4m3Mantissa | byte(16*f)&7
}

// FromE4M3 is the value of a code.
func FromE4M3(code byte) float64 {
	man, exp := float64(code&7), int(code>>e4m3Mantissa&15)
	x := math.Ldexp(man/8, e4m3Least)
	if exp > 0 {
		x = math.Ldexp(1+man/8, exp-1+e4m3Least)
	}
	if code&0x7f == 0x7f {
		x = math.NaN()
	}
	if code >= 0x80 {
		x = -x
	}
	return x
}

// WithE4M3Cache is h with keys and values as an e4m3 cache has them, in place of
// h's rounding of them: scales are its scales, [layer][KV head][K, V], and h's At
// must do nothing else at these points.
func WithE4M3Cache(h Hooks, c models.Config, scales []float32) Hooks {
	at := h.At
	h.At = func(layer int, p Point, v []float64) {
		if p != Key && p != Value {
			if at != nil {
				at(layer, p, v)
			}
			return
		}
		which := 0
		if p == Value {
			which = 1
		}
		for i := range v {
			scale := float64(scales[(layer*c.KVHeads+i/c.HeadDim)*2+which])
			v[i] = RoundE4M3(v[i]/scale) * scale
		}
	}
	return h
}
