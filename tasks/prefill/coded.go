package prefill

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// Codes is a product's input of T tokens (a multiple of 8) in e4m3, with a scale a token. It lies as packed
// weights of e4m3 do, tokens being rows: pipeline.E4M3Offset.
type Codes struct {
	K, T   int              // columns, those that pad them to whole groups of 64 included, and tokens
	Codes  dsl.Buf[dsl.U32] // at least K·T bytes
	Scales dsl.Buf[dsl.F32] // [T]
	Beside bool             // plants a fault: a token's products get the scale of the token beside it
}

// CodedColumns is K for an input of n columns.
func CodedColumns(n int) int { return pipeline.CeilDiv(n, codedGroup) * codedGroup }

// codedGroup is the number of columns of a group of 512 bytes.
const codedGroup = 2 * pipeline.GroupK

// e4m3Most is the largest e4m3.
const e4m3Most = 448

// leastScale is far below the scale of any token that is not 0.
const leastScale = 0x1p-100

// Quantise rounds a product's input to e4m3: a token's elements over the token's scale, the largest magnitude
// over 448 in f32, or leastScale. Infinities and NaN are not told apart from what they make of the others.
type Quantise struct {
	From Activations
	X    dsl.Buf[dsl.BF16]
	To   Codes
}

// Emit has the consumer warps of all CTAs take tokens of a span in turns, with those that pad it up to a multiple of
// padded. They read a token twice, for its scale and for its codes.
func (q *Quantise) Emit(e *grid.Env, span Span, padded int) {
	k := e.K
	if p := rule.First(rule.Need(q.From.K%pipeline.GroupK == 0 && q.To.K == CodedColumns(q.From.K),
		"quantise: %d columns in %d, want a multiple of %d in %d", q.From.K, q.To.K, pipeline.GroupK,
		CodedColumns(q.From.K))); p != "" {
		k.Require(false, "%s", p)
		return
	}
	all, count, from := span.tiles(k, padded)
	dsl.Optional(count)
	first := from.MulC(padded).Add(e.CTA.MulC(e.Consumers).Add(e.Warp))
	k.ForStep(first, all.MulC(padded), e.Grid*e.Consumers, func(token u32) {
		// Lane l has the unit that lies l mod 4 units from the row's first, of group l/4 and every eighth behind it.
		place := token.RemC(8).MulC(4).Add(e.Lane.RemC(4))
		src := token.DivC(8).MulC(q.From.K).Add(place).Named("units")
		most := dsl.NewVar(k.F32(0), "most")
		q.groups(e, 4, func(group u32) {
			for _, x := range q.load(k, src, group) {
				most.Set(most.Get().Max(x.Abs()))
			}
		})
		scale := dsl.WarpMax(most.Get()).Mul(k.F32(1.0 / e4m3Most)).Max(k.F32(leastScale)).Named("scale")
		k.If(e.Lane.EqC(0), func() { q.To.Scales.Store(token, scale) })
		by := dsl.Rcp(scale).Named("by")
		dst := token.DivC(8).MulC(q.To.K / 2).Add(place).Named("to")
		q.groups(e, 2, func(group u32) {
			x := q.load(k, src, group)
			var words []u32
			for i := 0; i < len(x); i += 4 {
				pair := func(i int) u32 {
					return dsl.Cast[dsl.U32](dsl.Bits[dsl.U16](dsl.Pack[dsl.E4M3x2](x[i].Mul(by), x[i+1].Mul(by))))
				}
				words = append(words, pair(i).Or(pair(i+2).ShlC(16)))
			}
			q.To.Codes.StoreN(dst.Add(group.MulC(pipeline.GroupBytes/16)).MulC(4), words)
		})
	}, dsl.Unroll(1))
}

// groups calls body for a lane's groups of codes.
func (q *Quantise) groups(e *grid.Env, unroll int, body func(group u32)) {
	e.K.ForStep(e.Lane.DivC(4), e.K.U32(q.To.K/codedGroup), dsl.WarpSize/4, body, dsl.Unroll(unroll))
}

// load is a lane's 16 elements of a group of codes: a unit of each of two groups of bf16, or of one and zeros.
func (q *Quantise) load(k *dsl.Kernel, src, group u32) (x []f32) {
	pairs, tail := dsl.View[dsl.BF16x2](q.X), q.From.K%codedGroup != 0
	for half := range 2 {
		of := group.MulC(2).AddC(half)
		if half > 0 && tail {
			of = of.MinC(q.From.K/pipeline.GroupK - 1)
		}
		for _, p := range pairs.LoadN(src.Add(of.MulC(pipeline.GroupBytes/16)).MulC(4), 4) {
			lo, hi := dsl.Unpack(p)
			x = append(x, lo, hi)
		}
		if half > 0 && tail {
			is := group.MulC(2).AddC(1).LtC(q.From.K / pipeline.GroupK)
			for i := 8; i < 16; i++ {
				x[i] = dsl.Select(is, x[i], k.F32(0))
			}
		}
	}
	return x
}
