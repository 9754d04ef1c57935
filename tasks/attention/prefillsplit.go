package attention

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/prefill"
)

// PrefillSplit cuts the keys and values of a sequence into parts of Blocks blocks, counted from its first token. A tile
// of tokens attends to each part by itself, so that a step of few tiles behind many tokens has work for all clusters. A
// token that sees one part has its outputs at once. Of others each part leaves a state: sums of weighted values, the
// sum of the weights, and the maximum that both are relative to. Merge makes outputs of these, behind a barrier of the
// grid.
type PrefillSplit struct {
	Blocks u32 // of a part, at least 1; OnePart where there is to be one
	Rows   u32 // of the step
	// States is how many states of a head there is room for: the rows of the step times the most parts of one at least.
	States int
	Values dsl.Buf[dsl.F32] // [States][query heads][D]
	Sums   dsl.Buf[dsl.F32] // [States][query heads][2] the sum of weights, the maximum
	// Doubled merges the last part with twice its weight: a planted fault.
	Doubled bool
}

// OnePart is a number of blocks that no sequence has.
const OnePart = 1 << 16

// parts is how many parts there are up to a position.
func (t *PrefillAttention) parts(position u32) u32 {
	// A divisor's reciprocal is not to be kept beside attention.
	return position.Div(dsl.Opaque(t.Split.Blocks).MulC(t.Block())).AddC(1)
}

// state is where the state of a row's part lies.
func (t *PrefillAttention) state(k *dsl.Kernel, row, part, head u32) u32 {
	s := t.Split
	at := part.Mul(s.Rows).Add(row).Named("state")
	k.Claim("there is room for the states of a step's parts", func() dsl.Pred { return at.LtC(s.States) })
	return at.MulC(t.Heads).Add(head)
}

// storePart writes this lane's outputs of a row that sees one part, by whole, or its part of a state.
func (w *prefillTile) storePart(half int, total f32, column func(i int) u32, whole func()) {
	t, e, k := w.t, w.e, w.e.K
	parts := t.parts(dsl.Opaque(w.sees[half])).Named("row_parts")
	part := dsl.Opaque(w.piece.part)
	k.IfElse(parts.EqC(1).Or(w.used[half].Not()), func() { k.If(part.EqC(0), whole) }, func() {
		k.If(part.Lt(parts), func() {
			at := t.state(k, w.p.queryRow(w.rows[half]), part, w.heads[half])
			for i := 2 * half; i < len(w.o); i += 4 {
				t.Split.Values.StoreN(at.MulC(t.KV.D).Add(column(i)), []f32{w.o[i].Get(), w.o[i+1].Get()})
			}
			k.If(e.Lane.RemC(4).EqC(0), func() { t.Split.Sums.StoreN(at.MulC(2), []f32{total, w.most[half].Get()}) })
		})
	})
}

// mergeUnit is the number of dimensions that a thread merges at once.
const mergeUnit = 4

// Merge makes outputs of the states of tokens that see several parts, of all of a step or the last ones (see
// prefill.Span), of which the products take padded at once. position returns a row's position. The consumer warps of
// all CTAs share the work, behind a barrier of the grid.
func (t *PrefillAttention) Merge(e *grid.Env, s Step, span prefill.Span, padded int, position func(row u32) u32) {
	k, units := e.K, t.KV.D/mergeUnit
	first := k.U32(0)
	if span.Last != nil { // the product behind it takes padded tokens at once
		first = dsl.Select(*span.Last, t.Split.Rows.SubC(1).DivC(padded).MulC(padded), first).Named("first_row")
	}
	all := t.Split.Rows.Sub(first).MulC(t.Heads * units).Named("units")
	begin := dsl.Opaque(e.CTA).MulC(e.Threads()).Add(e.Tid).Named("begin") // what follows is not kept from layer to layer
	k.ForStep(begin, all, e.Grid*e.Threads(), func(i u32) {
		unit, head := i.RemC(units).MulC(mergeUnit).Named("unit"), i.DivC(units).RemC(t.Heads).Named("head")
		row := i.DivC(units * t.Heads).Add(first).Named("row")
		parts := t.parts(position(row)).Named("parts")
		k.If(parts.NeC(1), func() {
			most, total := dsl.NewVar(k.F32(t.least()), "most"), dsl.NewVar(k.F32(0), "total")
			sums := dsl.NewArray(k.F32(0), mergeUnit, "sum")
			k.For(k.U32(0), parts, func(part u32) {
				at := t.state(k, row, part, head)
				own, values := t.Split.Sums.LoadN(at.MulC(2), 2), t.Split.Values.LoadN(at.MulC(t.KV.D).Add(unit), mergeUnit)
				before, weight := k.F32(1), k.F32(1)
				if !t.sums() && !t.bounded() {
					now := most.Get().Max(own[1]).Named("most_now")
					before, weight = dsl.Exp2(most.Get().Sub(now)).Named("before"), dsl.Exp2(own[1].Sub(now)).Named("weight")
					most.Set(now)
				}
				if t.Split.Doubled {
					weight = weight.Mul(dsl.Select(part.AddC(1).Eq(parts), k.F32(2), k.F32(1)))
				}
				total.Set(dsl.FMA(total.Get(), before, own[0].Mul(weight)))
				for i, sum := range sums {
					sum.Set(dsl.FMA(sum.Get(), before, values[i].Mul(weight)))
				}
			}, dsl.Unroll(4))
			by := k.F32(1)
			if !t.sums() {
				by = dsl.Rcp(total.Get())
			}
			if t.OutputScale != nil {
				by = by.Mul(t.OutputScale(s, head.DivC(t.group())))
			}
			var pairs []pair
			for i := 0; i < mergeUnit; i += 2 {
				pairs = append(pairs, dsl.Pack[dsl.BF16x2](sums[i].Get().Mul(by), sums[i+1].Get().Mul(by)))
			}
			dsl.View[dsl.BF16x2](t.To).StoreN(t.Out.At(row, head.MulC(t.KV.D).Add(unit)).DivC(2), pairs)
		})
	}, dsl.Unroll(1))
}
