package attention

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
)

// fewRows is the number of rows up to which the warps' states of an item meet all
// at once: one tile, of which each lane holds one row.
const fewRows = 8

// few is whether there is code for so few rows: their outputs fit into Scratch, all at
// once, and the last pass of an item of one query token has no more, which is the least
// that any plan brings. A greater group leaves so few only where some number of tokens
// happens to, if ever: those go the way of many, which is right for any number of rows.
func (t *Attention) few(consumers int) bool {
	last := (t.Group()-1)%(t.tiles(consumers)*blockTokens) + 1
	return 4*consumers*fewRows*t.KV.D <= sliceBytes && last <= fewRows
}

// combineFew merges the states of all warps of an item of up to fewRows rows, each
// thread two elements of a row, in the order of the warps.
func (st *state) combineFew() {
	e, t, k := st.e, st.t, st.e.K
	d, sums := t.KV.D, e.Consumers*fewRows
	e.Sync() // the queries and the new tokens, which lie in Scratch, have been read
	st.publishFew(sums)
	e.Sync()
	k.ForStep(e.Tid, st.deal.rows.MulC(d/2), e.Threads(), func(i u32) {
		row, dim := i.DivC(d/2), i.RemC(d/2).MulC(2)
		at := func(w int) u32 { return st.published(k.U32(w), row, dim, fewRows, d) }
		lo, hi, lse := k.F32(0), k.F32(0), k.F32(0)
		if t.sums() {
			for w := range e.Consumers {
				v := t.Scratch.LoadN(at(w), 2)
				lo, hi = lo.Add(v[0]), hi.Add(v[1])
			}
			lo, hi = st.scaled(lo), st.scaled(hi)
		} else {
			var ms []f32
			top := k.F32(math.Inf(-1))
			for w := range e.Consumers {
				ms = append(ms, t.Scratch.Load(row.AddC(w*fewRows)))
				top = top.Max(ms[w])
			}
			base, sum := finite(e, top), k.F32(0)
			for w := range e.Consumers {
				weight := dsl.Exp2(ms[w].Sub(base))
				v := t.Scratch.LoadN(at(w), 2)
				lo, hi = dsl.FMA(weight, v[0], lo), dsl.FMA(weight, v[1], hi)
				sum = dsl.FMA(weight, t.Scratch.Load(row.AddC(sums+w*fewRows)), sum)
			}
			inverse := st.scaled(dsl.Select(sum.EqC(0), k.F32(0), dsl.Rcp(sum)))
			lo, hi = lo.Mul(inverse), hi.Mul(inverse)
			lse = st.lse(base, sum)
		}
		st.store(row.Add(st.passRow()), lse, func(put put) { put(dim, lo, hi) })
	})
	e.Sync() // the next item, or the next op, writes Scratch again
}

// publishFew writes this warp's rows that the item has to Scratch: maxima, sums
// from word sums on, outputs behind.
func (st *state) publishFew(sums int) {
	e, t, k := st.e, st.t, st.e.K
	row, col := e.Lane.DivC(4), t.KV.column(e)
	var sum f32
	if !t.sums() {
		sum = dsl.Butterfly(st.l[0].Get(), 4, f32.Add)
	}
	k.If(row.Lt(st.deal.rows), func() {
		runs, _ := t.KV.runs()
		for _, r := range runs {
			t.Scratch.StoreN(st.published(e.Warp, row, col.AddC(r.first), fewRows, t.KV.D), st.elements(r, 0))
		}
		if t.sums() {
			return
		}
		k.If(col.EqC(0), func() {
			at := e.Warp.MulC(fewRows).Add(row)
			t.Scratch.Store(at, st.m[0].Get())
			t.Scratch.Store(at.AddC(sums), sum)
		})
	})
}

// passRow is the item's row that this pass begins with.
func (st *state) passRow() u32 { return st.it.pass.MulC(st.t.passRows(st.e)) }
