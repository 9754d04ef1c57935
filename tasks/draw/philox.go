package draw

import "math"

// The constants of Philox4x32 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; SC 2011).
const (
	PhiloxM0     = 0xd2511f53
	PhiloxM1     = 0xcd9e8d57
	PhiloxW0     = 0x9e3779b9
	PhiloxW1     = 0xbb67ae85
	PhiloxRounds = 10
)

// Philox is Philox4x32-10.
func Philox(key [2]uint32, c [4]uint32) [4]uint32 {
	for range PhiloxRounds {
		p0, p1 := uint64(c[0])*PhiloxM0, uint64(c[2])*PhiloxM1
		c = [4]uint32{uint32(p1>>32) ^ c[1] ^ key[0], uint32(p1), uint32(p0>>32) ^ c[3] ^ key[1], uint32(p0)}
		key[0] += PhiloxW0
		key[1] += PhiloxW1
	}
	return c
}

// Series is below which share of 2^32 the logarithm of 1 − v is a series: a GPU's has an absolute error of 2⁻²² near 1,
// and the tokens that win have the smallest v.
const Series = 1.0 / 32

// SeriesTerms are the coefficients of −ln(1 − v) = v·(1 + v/2 + v²/3 + …) beyond the first term, the last one first.
var SeriesTerms = []float32{1.0 / 6, 1.0 / 5, 1.0 / 4, 1.0 / 3, 1.0 / 2, 1}

// exponential is −ln(1 − v) for v = (bits + ½)/2^32: exponentially distributed, with all its bits where it is small.
func exponential(bits uint32) float32 {
	v := float32(float32(bits)*(1.0/(1<<32))) + 1.0/(1<<33)
	if v < Series {
		s := SeriesTerms[0]
		for _, c := range SeriesTerms[1:] {
			s = float32(v*s) + c
		}
		return s * v
	}
	return log2(1-v) * -math.Ln2
}

// log2 and exp2 are the executor's.
func log2(x float32) float32 { return float32(math.Log2(float64(x))) }
func exp2(x float32) float32 { return float32(math.Exp2(float64(x))) }
