package main

import (
	"math"

	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
)

// rounder is what is done to a result before it is used again.
type rounder func(float64) float64

// exact leaves a result alone.
func exact(x float64) float64 { return x }

// nearest rounds to float32, ties to even.
func nearest(x float64) float64 { return float64(float32(x)) }

// toZero rounds to float32 towards zero, as tensor cores add (Fasi, Higham,
// Mikaitis and Pranesh 2021, Numerical behavior of NVIDIA tensor cores).
func toZero(x float64) float64 {
	y := float32(x)
	if math.Abs(float64(y)) > math.Abs(x) {
		y = math.Nextafter32(y, 0)
	}
	return float64(y)
}

// roundAll rounds every element of v in place.
func roundAll(v []float64, r rounder) {
	for i, x := range v {
		v[i] = r(x)
	}
}

// product is W·x in float64 for W of len(w)/len(x) rows: reference.MatVec with
// four sums at a time, for speed.
func product(w []half.BF16, x []float64) []float64 {
	out := make([]float64, len(w)/len(x))
	for r := range out {
		row := w[r*len(x) : (r+1)*len(x)]
		var a, b, c, d float64
		i := 0
		for ; i+4 <= len(row); i += 4 {
			a += reference.FromBF16(row[i]) * x[i]
			b += reference.FromBF16(row[i+1]) * x[i+1]
			c += reference.FromBF16(row[i+2]) * x[i+2]
			d += reference.FromBF16(row[i+3]) * x[i+3]
		}
		for ; i < len(row); i++ {
			a += reference.FromBF16(row[i]) * x[i]
		}
		out[r] = (a + b) + (c + d)
	}
	return out
}

// Consumer warps of a CTA, and the columns that an mma adds up.
const (
	warps   = 8
	mmaSize = 16
)

// kernelProduct is W·x summed as product.GEMV does: groups of 32 columns go round the
// warps, each warp has two sums, of the lower and the upper four of every eight
// columns, to which an mma adds 16 products at once, rounded by mma; the sums
// are then added in float32. Products are exact.
func kernelProduct(mma rounder) func(w []half.BF16, x []float64) []float64 {
	return func(w []half.BF16, x []float64) []float64 {
		out := make([]float64, len(w)/len(x))
		for r := range out {
			row := w[r*len(x) : (r+1)*len(x)]
			var acc [warps][2]float64
			for from := 0; from < len(row); from += 2 * mmaSize {
				var sum [2]float64
				for i := from; i < min(from+2*mmaSize, len(row)); i++ {
					sum[i/4%2] += reference.FromBF16(row[i]) * x[i]
				}
				a := &acc[from/(2*mmaSize)%warps]
				a[0], a[1] = mma(a[0]+sum[0]), mma(a[1]+sum[1])
			}
			for _, a := range acc {
				out[r] = nearest(out[r] + nearest(a[0]+a[1]))
			}
		}
		return out
	}
}

// inOrder is W·x with one float32 sum over all columns.
func inOrder(w []half.BF16, x []float64) []float64 {
	out := make([]float64, len(w)/len(x))
	for r := range out {
		for i, b := range w[r*len(x) : (r+1)*len(x)] {
			out[r] = nearest(out[r] + reference.FromBF16(b)*x[i])
		}
	}
	return out
}
