package main

import (
	"math"

	"github.com/mkgen/mkgen/megakernel/reference"
)

// blockTokens are the tokens a warp handles at once, stageTokens those of a
// chunk: 16 KiB of the ring at a head dimension of 64.
const (
	blockTokens = 16
	stageTokens = 64
)

// attention is attention.Attention and attention.Merge in Go: tokens in blocks of 16, blocks
// round the warps, chunks split into parts, running softmaxes in base 2 merged
// over warps, then over parts. What it rounds can be chosen.
type attention struct {
	splits  int
	partial rounder // scores, running softmax and what is left of a part
	merge   rounder // the partial states as they are stored, and their merge
	weights rounder // of a token, before they meet its value
}

// partials is one running softmax: lanes add up the weights of their own tokens.
type partials struct {
	top   float64
	lanes [4]float64
	out   []float64
}

// run attends with every query head; the last token is the query's own. q is
// unscaled, as reference.Attention takes it.
func (a attention) run(q []float64, keys, values [][]float64, heads, kvHeads int) []float64 {
	dim := len(q) / heads
	out := make([]float64, 0, len(q))
	scaled := make([]float64, dim)
	for h := range heads {
		for i := range scaled {
			scaled[i] = q[h*dim+i] * (math.Log2E / math.Sqrt(float64(dim)))
		}
		out = append(out, a.head(scaled, keys, values, h/(heads/kvHeads)*dim)...)
	}
	return out
}

// head attends with one query head to the KV head at element at of every token.
func (a attention) head(q []float64, keys, values [][]float64, at int) []float64 {
	cached := len(keys) - 1
	chunks := (cached + stageTokens - 1) / stageTokens
	var outs [][]float64
	var lses []float64
	for split := range a.splits {
		states := make([]partials, warps)
		for w := range states {
			states[w] = partials{top: math.Inf(-1), out: make([]float64, len(q))}
		}
		if split == a.splits-1 {
			a.block(&states[warps-1], q, keys[cached:], values[cached:], at)
		}
		end := min((split+1)*chunks/a.splits*stageTokens, cached)
		for from := split * chunks / a.splits * stageTokens; from < end; from += blockTokens {
			to := min(from+blockTokens, end)
			a.block(&states[from/blockTokens%warps], q, keys[from:to], values[from:to], at)
		}
		tops, sums, parts := make([]float64, warps), make([]float64, warps), make([][]float64, warps)
		for w, s := range states {
			l := s.lanes
			tops[w], sums[w], parts[w] = s.top, a.partial(a.partial(l[0]+l[1])+a.partial(l[2]+l[3])), s.out
		}
		out, lse := combine(a.partial, tops, sums, parts)
		outs, lses = append(outs, out), append(lses, lse)
	}
	roundAll(lses, a.merge)
	ones := make([]float64, len(lses))
	for i, out := range outs {
		roundAll(out, a.merge)
		ones[i] = 1
	}
	out, _ := combine(a.merge, lses, ones, outs)
	return out
}

// block adds up to 16 tokens to a running softmax.
func (a attention) block(s *partials, q []float64, keys, values [][]float64, at int) {
	var scores, weights [blockTokens]float64
	top := s.top
	for t, key := range keys {
		k := key[at:][:len(q)]
		for from := 0; from < len(q); from += mmaSize {
			sum := 0.0
			for i := from; i < min(from+mmaSize, len(q)); i++ {
				sum += q[i] * k[i]
			}
			scores[t] = a.partial(scores[t] + sum)
		}
		top = math.Max(top, scores[t])
	}
	decay := a.partial(math.Exp2(a.partial(s.top - top)))
	for i := range s.lanes {
		s.lanes[i] = a.partial(s.lanes[i] * decay)
	}
	for t := range keys {
		p := a.partial(math.Exp2(a.partial(scores[t] - top)))
		lane := &s.lanes[t%8/2]
		*lane = a.partial(*lane + p)
		weights[t] = a.weights(p)
	}
	for i := range s.out {
		sum := 0.0
		for t, v := range values {
			sum += weights[t] * v[at+i]
		}
		s.out[i] = a.partial(a.partial(s.out[i]*decay) + sum)
	}
	s.top = top
}

// combine merges states in order: sums and outputs relative to 2^top. It returns
// the normalised output and the base-2 log-sum-exp; no tokens give 0 and -inf.
func combine(r rounder, tops, sums []float64, outs [][]float64) (out []float64, lse float64) {
	out, top, sum := make([]float64, len(outs[0])), math.Inf(-1), 0.0
	for _, t := range tops {
		top = math.Max(top, t)
	}
	if math.IsInf(top, -1) {
		return out, top
	}
	for w, t := range tops {
		weight := r(math.Exp2(r(t - top)))
		sum = r(sum + weight*sums[w])
		for i, x := range outs[w] {
			out[i] = r(out[i] + weight*x)
		}
	}
	inverse := r(1 / sum)
	for i := range out {
		out[i] = r(out[i] * inverse)
	}
	return out, r(top + r(math.Log2(sum)))
}

// bf16 is reference.RoundBF16 of what the kernel has in float32.
func bf16(x float64) float64 { return reference.RoundBF16(nearest(x)) }

// f16 is rounding to binary16 of weights of tokens in an e4m3 cache's products,
// which are scaled so that those below 2⁻²⁹ only lose digits to its subnormals.
func f16(x float64) float64 {
	f, exp := math.Frexp(nearest(x))
	step := math.Ldexp(1, max(exp, -28)-11)
	return math.RoundToEven(math.Ldexp(f, exp)/step) * step
}
