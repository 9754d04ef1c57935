package attention

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/pipeline"
)

// sliceBytes bounds the part of Scratch that holds outputs.
const sliceBytes = 32 << 10

// slice is the number of elements of D that the warps combine at a time, a
// divisor of D and a multiple of 8, or 16 in e4m3.
func (t *Attention) slice(consumers int) int {
	least := 8 * t.KV.keySlices()
	for n := 1; ; n++ {
		if d := t.KV.D / n; t.KV.D%n == 0 && d%least == 0 && (4*consumers*t.tileRows()*d <= sliceBytes || d == least) {
			return d
		}
	}
}

// combineMany weighs each lane's output by its share of the row's sum, and adds
// them, a slice of D at a time.
func (st *state) combineMany() {
	e, t := st.e, st.t
	e.Sync() // the queries and the new tokens, which lie in Scratch, have been read
	st.share()
	slices := func() {
		for from := 0; from < t.KV.D; from += t.slice(e.Consumers) {
			st.publishSlice(from)
			e.Sync()
			st.addSlice(from)
			e.Sync() // the next slice, item or op writes Scratch again
		}
	}
	if e.Consumers/t.tiles(e.Consumers) > 1 {
		slices()
		return
	}
	e.K.IfElse(st.deal.lanes.EqC(1), func() {
		st.storeOwn()
		e.Sync() // Scratch, which share has read, is written again
	}, slices)
}

// share replaces every warp's output by its share of the normalised one, and keeps the
// rows' log-sum-exp: each lane its own rows', and all in Scratch.
func (st *state) share() {
	e, t := st.e, st.t
	k := e.K
	if t.sums() {
		st.scaleValues()
		st.lses = []f32{k.F32(0), k.F32(0)}
		return
	}
	rows := t.tileRows()
	maxima, sums, lses := 0, e.Consumers*rows, 2*e.Consumers*rows
	g, col := e.Lane.DivC(4), e.Lane.RemC(4)
	for h := range st.rows {
		sum := dsl.Butterfly(st.l[h].Get(), 4, f32.Add)
		k.If(col.EqC(0), func() {
			at := e.Warp.MulC(rows).Add(g).AddC(8 * h)
			t.Scratch.Store(at.AddC(maxima), st.m[h].Get())
			t.Scratch.Store(at.AddC(sums), sum)
		})
	}
	e.Sync()
	for h := range st.rows {
		top, total := dsl.NewVar(k.F32(math.Inf(-1)), "top"), dsl.NewVar(k.F32(0), "total")
		at := func(lane u32) u32 {
			return lane.Mul(st.deal.tiles).Add(st.deal.tile).MulC(rows).Add(g).AddC(8 * h)
		}
		k.For(k.U32(0), st.deal.lanes, func(w u32) {
			top.Set(top.Get().Max(t.Scratch.Load(at(w).AddC(maxima))))
		}, dsl.Unroll(8))
		base := finite(e, top.Get()).Named("base")
		k.For(k.U32(0), st.deal.lanes, func(w u32) {
			weight := dsl.Exp2(t.Scratch.Load(at(w).AddC(maxima)).Sub(base))
			total.Set(dsl.FMA(weight, t.Scratch.Load(at(w).AddC(sums)), total.Get()))
		}, dsl.Unroll(8))
		inverse := dsl.Select(total.Get().EqC(0), k.F32(0), dsl.Rcp(total.Get()))
		share := dsl.Exp2(st.m[h].Get().Sub(base)).Mul(st.scaled(inverse)).Named("share")
		for _, o := range st.o {
			o[2*h].Set(o[2*h].Get().Mul(share))
			o[2*h+1].Set(o[2*h+1].Get().Mul(share))
		}
		lse := st.lse(base, total.Get()).Named("lse")
		st.lses = append(st.lses, lse)
		k.If(col.EqC(0).And(st.deal.lane.EqC(0)), func() { t.Scratch.Store(e.Warp.MulC(rows).Add(g).AddC(lses+8*h), lse) })
	}
}

// lseOf is the log-sum-exp of row in of a tile, of those that share has left in Scratch.
func (st *state) lseOf(tile, in u32) f32 {
	rows := st.t.tileRows()
	if st.t.sums() {
		return st.e.K.F32(0)
	}
	return st.t.Scratch.Load(tile.MulC(rows).Add(in).AddC(2 * st.e.Consumers * rows))
}

// scaled is x times the scale of values, where it is not on the values already.
func (st *state) scaled(x f32) f32 {
	if st.t.KV.e4m3() && !st.t.hooksValues() {
		return x.Mul(st.valueScale)
	}
	return x
}

// scaleValues puts the scale of values on the output.
func (st *state) scaleValues() {
	for _, o := range st.o {
		for _, x := range o {
			x.Set(st.scaled(x.Get()))
		}
	}
}

// lse is the log-sum-exp of weights relative to 2^top.
func (st *state) lse(top, sum f32) f32 {
	lse := top.Add(dsl.Log2(sum))
	if shift := st.t.KV.shift(); shift != 0 {
		lse = lse.Sub(st.e.K.F32(shift))
	}
	return lse
}

func (it *item) direct() dsl.Pred { return it.word(kv.ItemFlags).AndC(kv.ItemDirect).NeC(0) }

// partial is the place [partial][Group] of the item's row n.
func (it *item) partial(n u32) u32 {
	group := it.t.Group()
	return it.words(n.DivC(group).AddC(kv.ItemPartials)).MulC(group).Add(n.RemC(group))
}

// published is where row (of rows) and dimension (of a slice of n) of a warp's tile
// lie in Scratch; blocks of 8 are permuted, so that the rows of a fragment fall into
// different banks.
func (st *state) published(warp, row, dim u32, rows, n int) u32 {
	m := 1
	for m < 8 && n/8%(2*m) == 0 {
		m *= 2
	}
	at := warp.MulC(rows).Add(row).MulC(n).Add(dim.Xor(row.AndC(m - 1).MulC(8)))
	return at.AddC(3 * st.e.Consumers * rows)
}

// publishSlice writes this warp's dimensions from … of its tile to Scratch.
func (st *state) publishSlice(from int) {
	e, n := st.e, st.t.slice(st.e.Consumers)
	for h := range st.rows {
		row := e.Lane.DivC(4).AddC(8 * h)
		runs, dims := st.t.KV.runs()
		col := st.t.KV.column(e)
		for _, r := range runs[from/dims : (from+n)/dims] {
			at := st.published(e.Warp, row, col.AddC(r.first-from), st.t.tileRows(), n)
			st.t.Scratch.StoreN(at, st.elements(r, h))
		}
	}
}

// elements are a run of this lane's row h.
func (st *state) elements(r run, h int) (vs []f32) {
	for _, at := range r.at {
		vs = append(vs, st.o[at[0]][2*h+at[1]].Get())
	}
	return vs
}

// addSlice adds the lanes' shares of a slice, in their order, and stores the sum.
func (st *state) addSlice(from int) {
	e, t, k := st.e, st.t, st.e.K
	n := t.slice(e.Consumers)
	k.ForStep(e.Tid, st.deal.rows.MulC(n/2), e.Threads(), func(i u32) {
		row, dim := i.DivC(n/2), i.RemC(n/2).MulC(2)
		tile, in := row.DivC(blockTokens), row.RemC(blockTokens)
		sum := dsl.NewArray(k.F32(0), 2, "sum")
		k.For(k.U32(0), st.deal.lanes, func(w u32) {
			warp := w.Mul(st.deal.tiles).Add(tile)
			k.Claim("attention: the state of a warp that there is not", func() dsl.Pred { return warp.LtC(e.Consumers) })
			v := t.Scratch.LoadN(st.published(warp, in, dim, t.tileRows(), n), 2)
			for j := range v {
				sum[j].Set(sum[j].Get().Add(v[j]))
			}
		}, dsl.Unroll(8))
		st.store(row.Add(st.passRow()), st.lseOf(tile, in), func(put put) {
			put(dim.AddC(from), sum[0].Get(), sum[1].Get())
		})
	})
}

// storeOwn stores this warp's rows: it is the only lane of its tile.
func (st *state) storeOwn() {
	e, t := st.e, st.t
	for h, r := range st.row {
		row := e.Lane.DivC(4).AddC(8 * h).Add(st.deal.tile.MulC(blockTokens))
		store := r.valid()
		if t.idle(e.Consumers) {
			store = store.And(st.deal.lane.EqC(0))
		}
		e.K.If(store, func() {
			st.store(row.Add(st.passRow()), st.lses[h], func(put put) {
				runs, _ := t.KV.runs()
				col := t.KV.column(e)
				for _, r := range runs {
					vs := st.elements(r, h)
					for j := 0; j < len(vs); j += 2 {
						put(col.AddC(r.first+j), vs[j], vs[j+1])
					}
				}
			})
		})
	}
}

// put writes dimensions dim and dim + 1 of a row.
type put func(dim u32, lo, hi f32)

// store writes row n of the item, of which each says some dimensions: to the
// output, or to the partial state, of log-sum-exp lse.
func (st *state) store(n u32, lse f32, each func(put put)) {
	t, it, d := st.t, st.it, st.t.KV.D
	st.e.K.IfElse(it.direct(), func() {
		token, head := it.fused(n)
		finish := t.Variant.outputs(st.e, st.step, t.Heads, head, token, t.Work)
		each(func(dim u32, lo, hi f32) {
			lo, hi = finish(dim, lo, hi)
			t.Final(token, head.MulC(d).Add(dim), lo, hi)
		})
	}, func() {
		at := it.partial(n).MulC(d / 2)
		each(func(dim u32, lo, hi f32) {
			statePart{lo, hi, lse}.store(t.LL, st.e, t.States, at.Add(dim.DivC(2)))
		})
	})
}

// combineSplit is combine without Work: all warps' states of a few rows at once,
// into the partial state of (split, head), or the head's output.
func (st *state) combineSplit() {
	e, t := st.e, st.t
	group, d := t.part(), t.KV.D
	maxima, sums := e.Consumers*group*d, e.Consumers*group*(d+1)
	st.publish(maxima, sums)
	e.Sync()
	n := group * d / 2
	e.WholeWarps = true
	e.EachConsumer(pipeline.CeilDiv(n, dsl.WarpSize)*dsl.WarpSize, func(i u32) {
		var has *dsl.Pred
		only := func(p dsl.Pred) {
			if has != nil {
				p = p.And(*has)
			}
			has = &p
		}
		if n%dsl.WarpSize != 0 {
			only(i.LtC(n))
			i = i.MinC(n - 1)
		}
		row := dsl.Optional(i.DivC(d / 2))
		part := st.mergeWarps(i, row, maxima, sums)
		if t.Group()%group != 0 {
			only(row.Lt(st.heads))
		}
		st.storeSplit(i, part, has)
	})
	e.WholeWarps = false
	e.Sync() // the next item, or the next op, writes Scratch again
}

// mergeWarps is elements 2i and 2i + 1 of the warps' outputs, of a row.
func (st *state) mergeWarps(i, row u32, maxima, sums int) statePart {
	e, t := st.e, st.t
	k, group, d := e.K, t.part(), t.KV.D
	output := func(w int) []f32 { return t.Scratch.LoadN(i.MulC(2).AddC(w*group*d), 2) }
	lo, hi := k.F32(0), k.F32(0)
	if t.sums() {
		for w := range e.Consumers {
			v := output(w)
			lo, hi = lo.Add(v[0]), hi.Add(v[1])
		}
		return statePart{st.scaled(lo), st.scaled(hi), k.F32(0)}
	}
	var ms []f32
	top := k.F32(math.Inf(-1))
	for w := range e.Consumers {
		ms = append(ms, t.Scratch.Load(row.AddC(maxima+w*group)))
		top = top.Max(ms[w])
	}
	empty := top.Eq(k.F32(math.Inf(-1)))
	sum := k.F32(0)
	for w := range e.Consumers {
		weight := dsl.Select(empty, k.F32(0), dsl.Exp2(ms[w].Sub(top)))
		v := output(w)
		lo, hi = dsl.FMA(weight, v[0], lo), dsl.FMA(weight, v[1], hi)
		sum = dsl.FMA(weight, t.Scratch.Load(row.AddC(sums+w*group)), sum)
	}
	inverse := dsl.Select(empty, k.F32(0), st.scaled(dsl.Rcp(sum)))
	return statePart{lo.Mul(inverse), hi.Mul(inverse), st.lse(top, sum)}
}

// publish writes this warp's output, maximum and sum for every head to Scratch.
func (st *state) publish(maxima, sums int) {
	e, t := st.e, st.t
	k, group, d := e.K, t.part(), t.KV.D
	g, col := e.Lane.DivC(4), t.KV.column(e)
	for h := range st.rows {
		row := g.AddC(8 * h)
		var sum f32
		if !t.sums() {
			sum = dsl.Butterfly(st.l[h].Get(), 4, f32.Add)
		}
		k.If(row.LtC(group), func() {
			at := e.Warp.MulC(group).Add(row)
			runs, _ := t.KV.runs()
			for _, r := range runs {
				t.Scratch.StoreN(at.MulC(d).Add(col).AddC(r.first), st.elements(r, h))
			}
			if t.sums() {
				return
			}
			k.If(col.EqC(0), func() {
				t.Scratch.Store(at.AddC(maxima), st.m[h].Get())
				t.Scratch.Store(at.AddC(sums), sum)
			})
		})
	}
}
