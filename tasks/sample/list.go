package sample

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

// A row is listed before its first histogram where the CTAs' highest logits say how far top-k reaches, and behind it
// where no more than draw.Listed tokens are left that may stay. The order of tokens in the list is any, and nothing
// that is found in it depends on it. Before the first histogram nobody knows how many they are: where the list is too
// short for them the row goes on without it.
//
// A list that was made before has all tokens of the first-level bins in which top-k looks, so that histograms of it are
// those of all logits as far as it is looked at them.

// listable is whether a row is to be listed before the which-th histogram, in any lane.
func (t *Sample) listable(row, which u32) dsl.Pred {
	none, near := t.state(row, stateList).EqC(0), t.state(row, stateNear).LtC(draw.Listed(t.Vocab)+1)
	behind := t.state(row, stateMode).NeC(modeDone).And(near).And(none)
	return which.EqC(0).And(t.state(row, stateReach).NeC(0)).Or(which.NeC(0).And(behind))
}

// listedFirst is whether a row's list was made before its first histogram.
func (t *Sample) listedFirst(row u32) dsl.Pred {
	return dsl.Uniform(t.state(row, stateReach), dsl.WarpScope).NeC(0).And(t.listed(row))
}

// listLength is where Bins has how many tokens a row's which-th list is to have.
func (t *Sample) listLength(row, which u32) u32 {
	return which.MulC(t.T).Add(row).AddC(draw.Searches * t.T * rowBins)
}

// listAt is where the i-th token of a row's list is.
func (t *Sample) listAt(row, i u32) u32 {
	return row.MulC(draw.Listed(t.Vocab)).Add(i).MulC(listWords)
}

// list lists the rows that are listable before the which-th histogram.
func (t *Sample) list(e *grid.Env, share product.Share, bar *grid.Barrier, which u32) {
	k := e.K
	listable := func(row u32) dsl.Pred { return t.listable(row, which) }
	k.If(t.any(e, listable), func() {
		t.teamRows(e, func(row, thread u32) {
			k.If(dsl.UniformPred(listable(row), dsl.WarpScope), func() { t.listRow(e, share, row, thread, which) })
		})
		bar.Sync()
		t.ownRows(e, func(row u32) {
			k.If(e.Lane.EqC(0), func() {
				k.If(listable(row), func() {
					n := t.Bins.Load(t.listLength(row, which))
					k.IfElse(n.LtC(draw.Listed(t.Vocab)+1), func() { t.set(row, stateList, n) },
						func() { t.set(row, stateReach, k.U32(0)) })
				})
			})
		})
		e.Sync()
	})
}

// listRow adds the CTA's tokens to a row's list, as far as it has room: before the first histogram those that may stay;
// behind it those before the end of the stretch that is looked at, or, where it is known which stay, these.
func (t *Sample) listRow(e *grid.Env, share product.Share, row, thread, which u32) {
	k := e.K
	top, nats := t.stateF32(row, stateTop), t.paramF32(row, draw.RowNats)
	stretch := t.state(row, stateLo).Add(k.U32(draw.Bins).Shl(t.state(row, stateShift))).SubC(1)
	end := dsl.Select(t.in(row, modeAway), t.state(row, stateFar), stretch)
	end = dsl.Select(which.EqC(0), t.state(row, stateReach), end)
	beyond := dsl.Cast[dsl.F32](end.AddC(1)) // at most draw.Farthest + 1, a power of two: as it is
	// as whether its distance is at most end, without making a whole number of it
	stays := func(x f32) dsl.Pred { return top.Sub(x).Mul(nats).Lt(beyond) }
	t.eachFour(e, share, row, thread, many, func(token u32, x []f32) {
		k.If(stays(x[0].Max(x[1]).Max(x[2].Max(x[3]))), func() {
			for i := range x {
				k.If(stays(x[i]), func() {
					at := dsl.AtomicAdd(t.Bins, t.listLength(row, which), k.U32(1), dsl.Relaxed(dsl.GPUScope))
					k.If(at.LtC(draw.Listed(t.Vocab)), func() {
						t.Lists.StoreN(t.listAt(row, at), []u32{dsl.Bits[dsl.U32](x[i]), token.AddC(i)})
					})
				})
			}
		})
	})
}

// eachListed calls body for a row's list, in one warp.
func (t *Sample) eachListed(e *grid.Env, row u32, body func(x f32, token u32)) {
	n := t.state(row, stateList).MinC(draw.Listed(t.Vocab)) // as list says, for the analysis of addresses
	e.K.ForStep(e.Lane, n, dsl.WarpSize, func(i u32) {
		v := t.Lists.LoadN(t.listAt(row, i), listWords)
		body(dsl.Bits[dsl.F32](v[0]), v[1])
	}, dsl.Unroll(4))
}

// countListed adds a row's list to its histogram in shared memory.
func (t *Sample) countListed(e *grid.Env, row u32) {
	add := t.adder(e, row)
	t.eachListed(e, row, func(x f32, _ u32) { add(x) })
}

// drawListed finds each lane's winner among the tokens of a row's list that stay.
func (t *Sample) drawListed(e *grid.Env, row u32, w winner) {
	k := e.K
	top, nats, far := t.stateF32(row, stateTop), t.paramF32(row, draw.RowNats), t.state(row, stateFar)
	scale, key, position := t.paramF32(row, draw.RowScale), t.key(row), t.Position(row)
	t.eachListed(e, row, func(x f32, token u32) {
		k.If(distance(k, top, x, nats).Le(far), func() {
			four := philox(k, key, [4]u32{position, token.DivC(4), k.U32(0), k.U32(0)})
			bits := four[0]
			for i := 1; i < len(four); i++ {
				bits = dsl.Select(token.AndC(3).EqC(i), four[i], bits)
			}
			w.win(gumbel(k, x, scale, bits), token, x)
		})
	})
}
