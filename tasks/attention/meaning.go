package attention

import "math"

// Meaning is a variant in float64: what tests, and whoever wants to know, compare
// the device's hooks with. Logits are natural ones, q·k/√D, and nil hooks change
// nothing, as a Variant's.
type Meaning struct {
	Query  func(q Place, x []float64)    // changes a query, D elements
	Key    func(q, k Place, x []float64) // changes a key as query q reads it
	Value  func(k Place, x []float64)
	Logits func(q, k Place, logit float64) float64
	Mask   func(q, k Place) bool
	Output func(q Place, x []float64)
}

// Place is a query or a key in a step.
type Place struct {
	Head     int // query head, or KV head
	Heads    int // query heads
	Row      int // of a query: token row of the step
	Index    int // of a key: place in the sequence
	Position int // position in the sequence
	First    int // position of the sequence's first new token of the step
}

// Attend is the attention of one query head over keys that it may see, in
// float64: the output, and the natural log-sum-exp of the logits (0 for a variant
// that sums). No visible key gives 0 and −inf.
func (v *Variant) Attend(q Place, query []float64, at []Place, keys, values [][]float64) (out []float64, lse float64) {
	var m Meaning
	sum := false
	if v != nil {
		m, sum = v.Means, v.Sum
	}
	query = transformed(query, m.Query != nil, func(x []float64) { m.Query(q, x) })
	out = make([]float64, len(query))
	var logits []float64
	var seen [][]float64
	for i, k := range at {
		if m.Mask != nil && !m.Mask(q, k) {
			continue
		}
		key := transformed(keys[i], m.Key != nil, func(x []float64) { m.Key(q, k, x) })
		logit := 0.0
		for d := range key {
			logit += query[d] * key[d]
		}
		logit /= math.Sqrt(float64(len(query)))
		if m.Logits != nil {
			logit = m.Logits(q, k, logit)
		}
		logits = append(logits, logit)
		seen = append(seen, transformed(values[i], m.Value != nil, func(x []float64) { m.Value(k, x) }))
	}
	weights, lse := shares(logits, sum)
	for i, w := range weights {
		for d := range out {
			out[d] += w * seen[i][d]
		}
	}
	if m.Output != nil {
		m.Output(q, out)
	}
	return out, lse
}

// shares is softmax and its log-sum-exp, or, of a sum, the weights themselves.
func shares(logits []float64, sum bool) (weights []float64, lse float64) {
	if sum {
		return logits, 0
	}
	top, total := math.Inf(-1), 0.0
	for _, l := range logits {
		top = math.Max(top, l)
	}
	if math.IsInf(top, -1) {
		return nil, top
	}
	for _, l := range logits {
		weights = append(weights, math.Exp(l-top))
		total += math.Exp(l - top)
	}
	for i := range weights {
		weights[i] /= total
	}
	return weights, top + math.Log(total)
}

func transformed(x []float64, change bool, f func(x []float64)) []float64 {
	if change {
		x = append([]float64(nil), x...)
		f(x)
	}
	return x
}
