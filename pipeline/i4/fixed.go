package i4

import "math"

// How a group of 128 elements of an input becomes fixed point of 16 bits: x ≈ q·2^e, with
// q = 256·hi + lo and both bytes from −128 to 127, so that |q| ≤ MaxFixed. 2^e is the least power
// of two for which the largest |x| is at most MaxFixed·2^e, and q is x/2^e rounded to nearest,
// ties to even. So the error of an element is at most 2^(e−1), which is less than 1/MaxFixed of the
// largest, and what has 8 digits, a bf16, is exact down to 1/127 of the largest.
//
// A power of two, and not largest/MaxFixed, which would halve the largest error at best: the
// product with a weight's scale stays exact in float32, q needs no division, and a bf16 comes
// through whole.

// MaxFixed is the largest magnitude of q: 256·127 + 127.
const MaxFixed = 32639

// The bits of a float32 below 2 and at most MaxFixed/2¹⁴ keep their exponent when OverFixed is
// added, and larger ones have the next: MaxFixed/2¹⁴ is 1 + 0x7efe00·2⁻²³.
const OverFixed = 0x7fffff - 0x7efe00

// LeastExponent is the least biased exponent that the largest element is taken to have: below,
// 2^(e−4) would be no normal number.
const LeastExponent = 19

// Fixed are the elements of a group, and 2^e. Where one is infinite or NaN, 2^e is NaN, and q is nothing
// to go by.
func Fixed(x []float32) (q []int32, unit float32) {
	most := uint32(0)
	for _, v := range x {
		most = max(most, math.Float32bits(v)&0x7fffffff)
	}
	if most >= 0x7f800000 {
		return make([]int32, len(x)), float32(math.NaN())
	}
	e := max(int((most+OverFixed)>>23), LeastExponent) - 127 - 14
	for _, v := range x {
		q = append(q, int32(math.RoundToEven(math.Ldexp(float64(v), -e))))
	}
	return q, float32(math.Ldexp(1, e))
}
