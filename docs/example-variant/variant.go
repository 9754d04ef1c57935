// Package chunked is an attention variant of a second author: chunked attention
// with a temperature that grows with the position, as in Llama 4.
package chunked

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/attention"
)

type (
	f32 = dsl.Val[dsl.F32]
	u32 = dsl.Val[dsl.U32]
)

// Chunked sees the keys of the query's own chunk of size positions.
func Chunked(size int) *attention.Variant {
	return &attention.Variant{Name: "chunked",
		Mask: func(q *attention.Query, k *attention.Key) dsl.Pred {
			return k.Position.DivC(size).Eq(q.Position.DivC(size))
		},
		Means: attention.Meaning{Mask: func(q, k attention.Place) bool { return k.Position/size == q.Position/size }}}
}

// Temperature multiplies the logits of a query at position p by
// 1 + scale·ln(1 + ⌊(p+1)/floor⌋), so that attention over many keys stays sharp.
func Temperature(scale float64, floor int) *attention.Variant {
	return &attention.Variant{Name: "temperature",
		Prepare: func(q *attention.Query) []f32 {
			k := q.Env.K
			steps := dsl.Cast[dsl.F32](q.Position.AddC(1).DivC(floor).AddC(1))
			return []f32{dsl.FMA(dsl.Log2(steps), k.F32(scale*math.Ln2), k.F32(1))}
		},
		Logits: func(q *attention.Query, _ *attention.Key, score f32) f32 {
			return score.Mul(q.Prepared[0])
		},
		Means: attention.Meaning{Logits: func(q, _ attention.Place, logit float64) float64 {
			return logit * (1 + scale*math.Log(1+float64((q.Position+1)/floor)))
		}}}
}
