package probe

import (
	"math"
	"slices"

	"github.com/mkgen/mkgen/tasks/attention"
)

// headOutput is one query head's attention over a token's keys and its own.
type headOutput struct {
	out []float64
	// explained, of every page of keys: how much of an error of the output is what leaving that
	// page out would do, as the two sums of a least-squares fit.
	explained []fit
}

// fit are the sums of a fit of errors e by a change d: Σ e·d and Σ d·d.
type fit struct{ ed, dd float64 }

// view is a query token's keys and values: rows of the cache before it, and its own.
type view struct {
	rows       *Rows
	before     int // rows that it sees
	page       int
	key, value []float64 // [KV heads][D]
}

// at is token t's key and value of a head, as floats into the given slices.
func (w *view) at(t, head int, key, value []float64) {
	d := w.rows.D
	if t == w.before {
		copy(key, w.key[head*d:])
		copy(value, w.value[head*d:])
		return
	}
	k, v := w.rows.Row(0, t, head), w.rows.Row(1, t, head)
	for i := range key {
		key[i], value[i] = float64(k[i]), float64(v[i])
	}
}

// plain is softmax attention of one head's query q; got is the output that is judged.
func (w *view) plain(q []float64, head int, got []float64) headOutput {
	d := len(q)
	scores := w.scores(q, head)
	top := slices.Max(scores)
	pages := (w.before + w.page - 1) / w.page
	mass, sums, total := make([]float64, pages), make([]float64, pages*d), 0.0
	for t, score := range scores[:w.before] {
		weight := math.Exp(score - top)
		p := t / w.page
		mass[p] += weight
		sum := sums[p*d : (p+1)*d]
		for i, x := range w.rows.Row(1, t, head) {
			sum[i] += weight * float64(x)
		}
	}
	own := math.Exp(scores[w.before] - top)
	total = own
	out := make([]float64, d)
	for i := range out {
		out[i] = own * w.value[head*d+i]
	}
	for p, m := range mass {
		total += m
		for i := range out {
			out[i] += sums[p*d+i]
		}
	}
	for i := range out {
		out[i] /= total
	}
	return headOutput{out, explained(out, got, mass, sums, total)}
}

// scores are a query's logits over the rows that it sees, and over its own key, which is last.
func (w *view) scores(q []float64, head int) []float64 {
	d := len(q)
	scores, scale := make([]float64, w.before+1), 1/math.Sqrt(float64(d))
	for t := range w.before {
		even, odd, key := 0.0, 0.0, w.rows.Row(0, t, head)
		for i := 0; i+1 < d; i += 2 {
			even += q[i] * float64(key[i])
			odd += q[i+1] * float64(key[i+1])
		}
		scores[t] = (even + odd) * scale
	}
	for i, x := range q {
		scores[w.before] += x * w.key[head*d+i] * scale
	}
	return scores
}

// explained fits got − out by what the output would change by without each page: (m·out − s) /
// (total − m) of a page of mass m whose values sum to s, weighted.
func explained(out, got, mass, sums []float64, total float64) []fit {
	fits := make([]fit, len(mass))
	for p, m := range mass {
		rest := total - m
		if rest <= 0 {
			continue
		}
		for i, o := range out {
			change := (m*o - sums[p*len(out)+i]) / rest
			fits[p].ed += (got[i] - o) * change
			fits[p].dd += change * change
		}
	}
	return fits
}

// variant is attention that is not plain, of which no page's share is known.
func (w *view) variant(v *attention.Variant, q []float64, head, heads, group int) headOutput {
	n := w.before + 1
	places, keys, values := make([]attention.Place, n), make([][]float64, n), make([][]float64, n)
	for t := range n {
		keys[t], values[t] = make([]float64, len(q)), make([]float64, len(q))
		w.at(t, head/group, keys[t], values[t])
		places[t] = attention.Place{Head: head / group, Heads: heads, Index: t, Position: t, First: w.before}
	}
	out, _ := v.Attend(attention.Place{Head: head, Heads: heads, Index: w.before, Position: w.before, First: w.before}, q,
		places, keys, values)
	return headOutput{out: out}
}
