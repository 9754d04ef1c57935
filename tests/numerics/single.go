package main

import (
	"math"
	"math/rand/v2"

	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
)

// single is the relative error of one operation: rms of the difference from
// float64 over the rms of float64's.
type single struct {
	What string `json:"what"`
	// Size is the context of attention, the columns of a matrix.
	Size   int     `json:"size"`
	Splits int     `json:"splits,omitempty"`
	RelRMS float64 `json:"rel_rms"`
}

// What attention is measured with; its inputs are bf16 either way.
const (
	attnStates  = "float32 scores and partial states, exact merge"
	attnMerge   = "float32 merge of exact partial states"
	attnWeights = "bf16 weights, all else exact"
	attnAll     = "all of these"
	attnOutput  = "the output in bf16, all else exact"
)

// attentionErrors measures attention alone: queries of 8 heads over one KV head of
// 64, weights and values as in newCache.
func attentionErrors(contexts, splits []int, queries int) []single {
	const heads, dim = 8, 64
	var out []single
	for _, context := range contexts {
		r := rand.New(rand.NewPCG(1, uint64(context)))
		keys, values := normals(r, context, dim, keySD), normals(r, context, dim, 1)
		qs := normals(r, queries, heads*dim, keySD)
		var want []float64
		for _, q := range qs {
			want = append(want, reference.Concat(reference.Attention(q, keys, values, heads, 1))...)
		}
		add := func(what string, splits int, got func(q []float64) []float64) {
			var all []float64
			for _, q := range qs {
				all = append(all, got(q)...)
			}
			out = append(out, single{what, context, splits, relative(want, all)})
		}
		for _, n := range splits {
			for _, c := range []struct {
				what string
				a    attention
			}{
				{attnStates, attention{n, nearest, exact, exact}}, {attnMerge, attention{n, exact, nearest, exact}},
				{attnWeights, attention{n, exact, exact, bf16}}, {attnAll, attention{n, nearest, nearest, bf16}},
			} {
				add(c.what, n, func(q []float64) []float64 { return c.a.run(q, keys, values, heads, 1) })
			}
		}
		add(attnOutput, 0, func(q []float64) []float64 {
			v := reference.Concat(reference.Attention(q, keys, values, heads, 1))
			roundAll(v, reference.RoundBF16)
			return v
		})
	}
	return out
}

// How matrix products are summed.
const (
	sumNearest = "the kernel's order, an mma rounded to nearest"
	sumToZero  = "the kernel's order, an mma rounded towards zero"
	sumInOrder = "one float32 sum, column after column"
	sumInput   = "exact sums, the input in bf16"
)

// productErrors measures one matrix product: bf16 weights times a normal input,
// which is bf16 but for sumInput.
func productErrors(columns []int, rows int) []single {
	var out []single
	for _, k := range columns {
		r := rand.New(rand.NewPCG(2, uint64(k)))
		w := make([]half.BF16, rows*k)
		for i := range w {
			w[i] = reference.ToBF16(r.NormFloat64())
		}
		x := make([]float64, k)
		for i := range x {
			x[i] = r.NormFloat64()
		}
		whole := product(w, x)
		roundAll(x, reference.RoundBF16)
		want := product(w, x)
		for _, c := range []struct {
			what      string
			want, got []float64
		}{
			{sumNearest, want, kernelProduct(nearest)(w, x)}, {sumToZero, want, kernelProduct(toZero)(w, x)},
			{sumInOrder, want, inOrder(w, x)}, {sumInput, whole, want},
		} {
			out = append(out, single{What: c.what, Size: k, RelRMS: relative(c.want, c.got)})
		}
	}
	return out
}

// normals is rows of bf16 normal variates.
func normals(r *rand.Rand, rows, n int, sd float64) [][]float64 {
	out := make([][]float64, rows)
	for i := range out {
		out[i] = make([]float64, n)
		for j := range out[i] {
			out[i][j] = reference.RoundBF16(sd * r.NormFloat64())
		}
	}
	return out
}

func relative(want, got []float64) float64 {
	var difference, size float64
	for i, x := range want {
		difference += (got[i] - x) * (got[i] - x)
		size += x * x
	}
	return math.Sqrt(difference / size)
}
