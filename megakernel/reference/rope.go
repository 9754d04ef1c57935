package reference

import (
	"math"
	"slices"

	"github.com/mkgen/mkgen/models"
)

// Rope returns x, which is heads of 2*len(invFreq) elements one after the other, rotated for position pos: in each
// head, elements i and i+half turn together by the angle pos*invFreq[i] (Hugging Face's half-split layout). The angle
// is rounded to float32 as there; sine and cosine are float64. A length that is no whole number of heads panics.
func Rope(x []float64, pos int, invFreq []float32) []float64 {
	return RotateHeads(x, pos, 2*len(invFreq), models.Rope{}, invFreq)
}

// RotateHeads returns x, heads of dim elements one after the other, with the first r.Dims elements of each rotated for
// position pos and multiplied by r.Factor; the others stay. Pairs are as in Rope, or neighbours where r.Interleaved
// says so. No frequencies return x.
func RotateHeads(x []float64, pos, dim int, r models.Rope, invFreq []float32) []float64 {
	mustEqual("RotateHeads' input modulo the head dimension", len(x)%dim, 0)
	out := slices.Clone(x)
	half, factor := len(invFreq), r.Factor()
	for i, f := range invFreq {
		sin, cos := math.Sincos(float64(float32(pos) * f))
		sin, cos = factor*sin, factor*cos
		first, second := i, i+half
		if r.Interleaved {
			first, second = 2*i, 2*i+1
		}
		for h := 0; h < len(x); h += dim {
			a, b := x[h+first], x[h+second]
			out[h+first], out[h+second] = a*cos-b*sin, b*cos+a*sin
		}
	}
	return out
}
