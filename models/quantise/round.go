package quantise

import (
	"math"
	"slices"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/quant"
)

// rounder rounds weights that share a scale.
type rounder struct {
	format Format
	dtype  models.DType // of scales and of the weights that readers compute
}

// tried is how many scales are tried below the one that reaches the largest weight.
const tried = 12

// ints chooses the scale of integers and writes their codes.
//
// For codes q a scale s has the error Σ(w − s·q)², least for s = Σwq / Σq². Codes follow from the scale, so several
// scales are tried, from the one that reaches the largest weight down to where that is clipped to three fifths of it
// (to 96 % with 8 bits): what a smaller scale loses there it may win among the others. The best is improved by that
// formula as long as it helps. A scale is negative where the lowest code, which has no opposite, then serves the
// largest weight.
func (r rounder) ints(w []float32, codes []int8) (scale float32) {
	g := group{rounder: r, w: w, most: float32(int(1)<<(r.format.bits-1) - 1)} // 7 or 127
	for _, x := range w {
		g.low, g.high = min(g.low, x), max(g.high, x)
	}
	if g.low == 0 && g.high == 0 {
		clear(codes)
		return 1
	}
	g.prescale()
	reach := max(-g.low, g.high)
	sign := float32(1)
	if g.high > -g.low {
		sign = -1
	}
	best := fit{err: math.Inf(1)}
	step := 6 / (g.most * (tried + 1))
	for i := range tried {
		// The first reaches the largest weight with the lowest code, −8 or −128.
		s := sign * reach / ((g.most + 1) * (1 + step*float32(i)))
		best = best.or(g.try(s))
	}
	best = best.or(g.try(reach / g.most))
	for range tried {
		better := best.or(g.try(float32(best.wq / best.qq)))
		if better.err >= best.err {
			break
		}
		best = better
	}
	inverse := 1 / best.scale
	for i, x := range g.w {
		codes[i] = int8(code(x, inverse, g.most))
	}
	return shift(best.scale, g.exponent)
}

// group is weights that share a scale, over 2^exponent, the least and the largest of them, and the largest code.
type group struct {
	rounder
	w               []float32
	exponent        int
	low, high, most float32
}

// prescale divides weights whose squares may be no float32s by a power of two.
func (g *group) prescale() {
	reach := max(-g.low, g.high)
	if 0x1p-40 < reach && reach < 0x1p40 {
		return
	}
	_, g.exponent = math.Frexp(float64(reach))
	g.w = slices.Clone(g.w)
	for i, x := range g.w {
		g.w[i] = shift(x, -g.exponent)
	}
	g.low, g.high = shift(g.low, -g.exponent), shift(g.high, -g.exponent)
}

// shift is x times 2^n.
func shift(x float32, n int) float32 {
	if n == 0 {
		return x
	}
	return float32(math.Ldexp(float64(x), n))
}

// stored rounds a scale to its type. Where that is 0 it is the least number of the type.
func (g *group) stored(scale float32) float32 {
	of := quant.Round(shift(scale, g.exponent), g.dtype)
	if of == 0 {
		least := map[models.DType]float64{models.BF16: 0x1p-133, models.F16: 0x1p-24, models.F32: 0x1p-149}[g.dtype]
		of = float32(math.Copysign(least, float64(scale)))
	}
	return shift(of, -g.exponent)
}

// overflows reports whether a weight that a reader computes with a scale is not finite.
func (g *group) overflows(scale float32) bool {
	for _, x := range []float32{g.low, g.high} {
		x = quant.Round(shift(code(x, 1/scale, g.most)*scale, g.exponent), g.dtype)
		if x-x != 0 {
			return true
		}
	}
	return false
}

// fit is a scale, the squared error of the codes that follow from it, and what a better scale for these follows from.
type fit struct {
	scale       float32
	err, wq, qq float64
}

// or returns the better of two; the first where they are as good.
func (f fit) or(g fit) fit {
	if g.err < f.err {
		return g
	}
	return f
}

// try computes the fit of a scale, rounded to its type. Four sums run side by side, in float32: a group is short.
func (g *group) try(scale float32) fit {
	scale = g.stored(scale)
	if g.overflows(scale) {
		return fit{err: math.Inf(1)}
	}
	f, w, most, inverse := fit{scale: scale}, g.w, g.most, 1/scale
	for len(w) > 0 {
		part := w[:min(len(w), 256)]
		w = w[len(part):]
		var err, wq, qq float32
		for _, x := range part {
			q := code(x, inverse, most)
			d := x - float32(q*scale)
			err += float32(d * d)
			wq += float32(x * q)
			qq += float32(q * q)
		}
		f.err, f.wq, f.qq = f.err+float64(err), f.wq+float64(wq), f.qq+float64(qq)
	}
	return f
}

// code is the integer nearest to x times inverse, ties to even, from -most-1 to most. Conversions keep compilers from
// fusing a product with a sum.
func code(x, inverse, most float32) float32 {
	const magic = 3 << 22 // from here to twice this, float32s are the integers
	q := float32(float32(x*inverse)+magic) - magic
	if q > most {
		return most
	}
	if q < -most-1 {
		return -most - 1
	}
	return q
}

// floats chooses the scale of e4m3 and writes their codes: the least power of two times which 448, the largest code, is
// the largest weight at least. Weights that readers compute are then exact in bf16, and those that mkgen itself rounds
// a bf16 checkpoint to with --weight-format e4m3.
func (r rounder) floats(w []float32, codes []int8) (scale float32) {
	most := float32(0)
	for _, x := range w {
		most = max(most, x, -x)
	}
	if most == 0 {
		clear(codes)
		return 1
	}
	fraction, exponent := math.Frexp(float64(most) / 448)
	if fraction == 0.5 {
		exponent--
	}
	least := -126
	if r.dtype == models.F16 {
		least = -24
	}
	exponent = max(exponent, least)
	scale = float32(math.Ldexp(1, exponent))
	limit, top := 448.0, toE4M3(math.Ldexp(float64(most), -exponent))
	if x := r.weight(int8(top), scale); x-x != 0 { // rounded up beyond the type's largest number
		limit = float64(quant.FromE4M3(top - 1))
	}
	for i, x := range w {
		codes[i] = int8(toE4M3(min(max(math.Ldexp(float64(x), -exponent), -limit), limit)))
	}
	return scale
}

// toE4M3 is the e4m3 nearest to x, of at most 448, ties to even.
func toE4M3(x float64) byte {
	sign := byte(0)
	if math.Signbit(x) {
		sign, x = 0x80, -x
	}
	if x == 0 {
		return sign
	}
	_, exponent := math.Frexp(x) // x is below 2^exponent
	exponent = max(exponent, -5) // subnormals have the least normal number's step, 2^-9
	units := int(math.RoundToEven(math.Ldexp(x, 4-exponent)))
	// units is 8 to 16 of a normal number, and below 8 of a subnormal one: the carry from 15 to 16 is the next
	// exponent.
	return sign | byte((exponent+5)<<3+units)
}

// row writes the codes of a row and its scales, and returns what it costs.
func (r rounder) row(w []float32, codes []int8, scales []float32) Error {
	var e Error
	columns := r.format.columns(len(w))
	for g := range scales {
		part, to := w[g*columns:(g+1)*columns], codes[g*columns:(g+1)*columns]
		if r.format.float {
			scales[g] = r.floats(part, to)
		} else {
			scales[g] = r.ints(part, to)
		}
		for i, x := range part {
			e.add(x, r.weight(to[i], scales[g]))
		}
	}
	return e
}

// weight is what a reader makes of a code.
func (r rounder) weight(code int8, scale float32) float32 {
	x := float32(code)
	if r.format.float {
		x = quant.FromE4M3(byte(code))
	}
	return quant.Round(x*scale, r.dtype)
}

// Error says how far weights are from what they were.
type Error struct {
	Squared float64 // sum of the squares of the differences
	Norm    float64 // sum of the squares of the weights
	Largest float64 // difference
}

func (e *Error) add(was, is float32) {
	d := float64(was) - float64(is)
	e.Squared += d * d
	e.Norm += float64(was) * float64(was)
	e.Largest = max(e.Largest, math.Abs(d))
}

// plus adds the error of other weights.
func (e *Error) plus(o Error) {
	e.Squared, e.Norm, e.Largest = e.Squared+o.Squared, e.Norm+o.Norm, max(e.Largest, o.Largest)
}

// Relative is the squared error over the squares of the weights, 0 where all are 0.
func (e Error) Relative() float64 {
	if e.Norm == 0 {
		return 0
	}
	return e.Squared / e.Norm
}
