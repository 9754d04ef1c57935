package attention

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl"
)

// Combine is several variants in one: transforms one behind the other, in their
// order, and keys that all masks show. At most one may have a window, and only
// the last may sum.
func Combine(vs ...*Variant) (*Variant, error) {
	out := &Variant{}
	for i, v := range vs {
		switch {
		case v.Sum && i != len(vs)-1:
			return nil, fmt.Errorf("combine: variant %q sums, want it last", v.Name)
		case v.Window > 0 && out.Window > 0:
			return nil, fmt.Errorf("combine: variant %q has a window, and one before it has, too", v.Name)
		case v.Window > 0:
			out.Window, out.Sinks, out.Windows = v.Window, v.Sinks, v.Windows
		}
		if i > 0 {
			out.Name += " + "
		}
		out.Name, out.Sum = out.Name+v.Name, v.Sum
	}
	out.transforms(vs)
	out.scores(vs)
	out.Means = meanings(vs)
	return out, nil
}

// transforms are the hooks on queries, keys, values and outputs.
func (out *Variant) transforms(vs []*Variant) {
	if slices.ContainsFunc(vs, func(v *Variant) bool { return v.Query != nil }) {
		out.Query = func(q *Query, dim u32, lo, hi f32) (f32, f32) {
			for i, v := range vs {
				if v.Query != nil {
					lo, hi = v.Query(q.parts[i], dim, lo, hi)
				}
			}
			return lo, hi
		}
	}
	if slices.ContainsFunc(vs, func(v *Variant) bool { return v.Key != nil }) {
		out.Key = func(k *Key, dim u32, lo, hi f32) (f32, f32) {
			for _, v := range vs {
				if v.Key != nil {
					lo, hi = v.Key(k, dim, lo, hi)
				}
			}
			return lo, hi
		}
	}
	if slices.ContainsFunc(vs, func(v *Variant) bool { return v.Value != nil }) {
		out.Value = func(k *Key, dim u32, x f32) f32 {
			for _, v := range vs {
				if v.Value != nil {
					x = v.Value(k, dim, x)
				}
			}
			return x
		}
	}
	if slices.ContainsFunc(vs, func(v *Variant) bool { return v.Output != nil }) {
		out.Output = func(q *Query, dim u32, x f32) f32 {
			for i, v := range vs {
				if v.Output != nil {
					x = v.Output(q.parts[i], dim, x)
				}
			}
			return x
		}
	}
}

// scores are the hooks on scores; each variant has a Query with what it prepared.
func (out *Variant) scores(vs []*Variant) {
	out.Prepare = func(q *Query) []f32 {
		for _, v := range vs {
			part := *q
			part.prepare(v)
			q.parts = append(q.parts, &part)
		}
		return nil
	}
	if slices.ContainsFunc(vs, func(v *Variant) bool { return v.Logits != nil }) {
		out.Logits = func(q *Query, k *Key, score f32) f32 {
			for i, v := range vs {
				if v.Logits != nil {
					score = v.Logits(q.parts[i], k, score)
				}
			}
			return score
		}
		out.slope(vs)
	}
	if slices.ContainsFunc(vs, func(v *Variant) bool { return v.Mask != nil }) {
		out.Mask = func(q *Query, k *Key) dsl.Pred {
			seen := q.Env.K.Bool(true)
			for i, v := range vs {
				if v.Mask != nil {
					seen = seen.And(v.Mask(q.parts[i], k))
				}
			}
			return seen
		}
	}
}

// slope is that of the only variant with Logits.
func (out *Variant) slope(vs []*Variant) {
	var change []int
	for i, v := range vs {
		if v.Logits != nil {
			change = append(change, i)
		}
	}
	if i := change[0]; len(change) == 1 && vs[i].Slope != nil {
		out.Slope = func(q *Query) f32 { return vs[i].Slope(q.parts[i]) }
	}
}

// meanings is what Combine means.
func meanings(vs []*Variant) Meaning {
	return Meaning{
		Query: func(q Place, x []float64) {
			for _, v := range vs {
				if v.Means.Query != nil {
					v.Means.Query(q, x)
				}
			}
		},
		Key: func(q, k Place, x []float64) {
			for _, v := range vs {
				if v.Means.Key != nil {
					v.Means.Key(q, k, x)
				}
			}
		},
		Value: func(k Place, x []float64) {
			for _, v := range vs {
				if v.Means.Value != nil {
					v.Means.Value(k, x)
				}
			}
		},
		Logits: func(q, k Place, logit float64) float64 {
			for _, v := range vs {
				if v.Means.Logits != nil {
					logit = v.Means.Logits(q, k, logit)
				}
			}
			return logit
		},
		Mask: func(q, k Place) bool {
			return !slices.ContainsFunc(vs, func(v *Variant) bool { return v.Means.Mask != nil && !v.Means.Mask(q, k) })
		},
		Output: func(q Place, x []float64) {
			for _, v := range vs {
				if v.Means.Output != nil {
					v.Means.Output(q, x)
				}
			}
		},
	}
}
