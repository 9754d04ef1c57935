package sample

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

// winner is the best score with its token and logit, and the highest logit.
type winner struct {
	product.Best
	logit, top *dsl.Var[dsl.F32]
}

func newWinner(e *grid.Env) winner {
	return winner{product.NewBest(e), dsl.NewVar(e.K.F32(math.Inf(-1)), "logit"), dsl.NewVar(e.K.F32(math.Inf(-1)), "top")}
}

// win keeps the better score; the lower token of two that are as good.
func (w winner) win(z f32, token u32, x f32) {
	have, at := w.Value.Get(), w.Index.Get()
	better := z.Gt(have).Or(z.Eq(have).And(token.Lt(at)))
	w.Value.Set(dsl.Select(better, z, have))
	w.Index.Set(dsl.Select(better, token, at))
	w.logit.Set(dsl.Select(better, x, w.logit.Get()))
}

// warp makes every lane's winner that of the whole warp.
func (w winner) warp() {
	for d := dsl.WarpSize / 2; d > 0; d /= 2 {
		w.win(dsl.ShflXor(w.Value.Get(), d), dsl.ShflXor(w.Index.Get(), d), dsl.ShflXor(w.logit.Get(), d))
		w.top.Set(w.top.Get().Max(dsl.ShflXor(w.top.Get(), d)))
	}
}

func (w winner) store(b dsl.Buf[dsl.U32], at u32) {
	bits := dsl.Bits[dsl.U32, dsl.F32]
	b.StoreN(at, []u32{bits(w.Value.Get()), w.Index.Get(), bits(w.logit.Get()), bits(w.top.Get())})
}

// meet meets what store has stored, and returns its highest logit.
func (w winner) meet(b dsl.Buf[dsl.U32], at u32) (top f32) {
	v, f := b.LoadN(at, recordWords), dsl.Bits[dsl.F32, dsl.U32]
	w.win(f(v[0]), v[1], f(v[2]))
	top = f(v[3])
	w.top.Set(w.top.Get().Max(top))
	return top
}

// highestWinner is the winner of a row that takes its highest logit.
func highestWinner(b product.Best) winner { return winner{b, b.Value, b.Value} }

// pass publishes the CTA's winners in a half of Records: the first time those of rows that draw before they know which
// tokens stay, and the highest of logits that were changed; the second time, of the rows whose winner does not stay and
// which are not listed, those of the logits that do.
func (t *Sample) pass(e *grid.Env, share product.Share, half int) {
	k, n := e.K, t.team(e)
	t.teamRows(e, func(row, thread u32) {
		if half == 0 {
			flags := dsl.Uniform(t.param(row, draw.RowFlags), dsl.WarpScope)
			k.If(passes(flags), func() {
				k.IfElse(drawsFirst(flags), func() { t.passRow(e, share, row, thread, nil) },
					func() { t.passHighest(e, share, row, thread) })
			})
			return
		}
		k.If(t.in(row, modeAway).And(t.listed(row).Not()), func() {
			top, nats, far := t.stateF32(row, stateTop), t.paramF32(row, draw.RowNats), t.state(row, stateFar)
			t.passRow(e, share, row, thread, func(x f32) dsl.Pred { return distance(k, top, x, nats).Le(far) })
		})
	})
	e.Sync()
	k.If(e.Tid.Lt(t.Count), func() {
		passed := func() dsl.Pred { return passes(t.param(e.Tid, draw.RowFlags)) }
		if half != 0 {
			passed = func() dsl.Pred { return t.isAway(e.Tid).And(t.state(e.Tid, stateList).EqC(0)) }
		}
		k.If(passed(), func() {
			w := newWinner(e)
			for i := range n {
				w.meet(t.Shared, e.Tid.MulC(n).AddC(i).MulC(recordWords))
			}
			t.publish(e, half, e.Tid, w)
		})
	})
}

// publish writes the CTA's winner of a row.
func (t *Sample) publish(e *grid.Env, half int, row u32, w winner) {
	w.store(t.Records, t.record(e, half, row, e.CTA))
}

// drawsFirst is whether a row with these flags draws before it knows which tokens stay: all do, or it has min-p alone,
// with which the winner mostly does.
func drawsFirst(flags u32) dsl.Pred {
	return flags.AndC(draw.FlagDraws | draw.FlagTopK | draw.FlagTopP).EqC(draw.FlagDraws)
}

// passes is whether the winner of a row with these flags may not be the highest logit of the LM head.
func passes(flags u32) dsl.Pred {
	return drawsFirst(flags).Or(flags.AndC(draw.FlagChanges | draw.FlagMask).NeC(0))
}

func (t *Sample) record(e *grid.Env, half int, row, cta u32) u32 {
	return row.AddC(half * t.T).MulC(e.Grid).Add(cta).MulC(recordWords)
}

// passRow finds this warp's winner among its logits of a row that stay; nil: all do.
func (t *Sample) passRow(e *grid.Env, share product.Share, row, thread u32, stays func(x f32) dsl.Pred) {
	k := e.K
	w := newWinner(e)
	scale, key, position := t.paramF32(row, draw.RowScale), t.key(row), t.Position(row)
	t.eachFour(e, share, row, thread, once, func(token u32, x []f32) {
		bits := philox(k, key, [4]u32{position, token.DivC(4), k.U32(0), k.U32(0)})
		for i := range x {
			z := gumbel(k, x[i], scale, bits[i])
			if stays != nil {
				z = dsl.Select(stays(x[i]), z, k.F32(math.Inf(-1)))
			}
			w.win(z, token.AddC(i), x[i])
			w.top.Set(w.top.Get().Max(x[i]))
		}
	})
	t.met(e, row, w)
}

// passHighest finds the highest of this warp's logits of a row.
func (t *Sample) passHighest(e *grid.Env, share product.Share, row, thread u32) {
	w := newWinner(e)
	t.eachFour(e, share, row, thread, many, func(token u32, x []f32) {
		for i := range x {
			w.win(x[i], token.AddC(i), x[i])
		}
	})
	w.top.Set(w.logit.Get())
	t.met(e, row, w)
}

// met leaves a warp's winner of a row in Shared.
func (t *Sample) met(e *grid.Env, row u32, w winner) {
	w.warp()
	place := row
	if n := t.team(e); n > 1 {
		place = row.MulC(n).Add(e.Warp.RemC(n))
	}
	e.K.If(e.Lane.EqC(0), func() { w.store(t.Shared, place.MulC(recordWords)) })
}

// key is that of a row's random bits.
func (t *Sample) key(row u32) [2]u32 {
	return [2]u32{t.param(row, draw.RowSeedLo), t.param(row, draw.RowSeedHi)}
}

// gumbel is the score of a logit that a row draws from.
func gumbel(k *dsl.Kernel, x, scale f32, bits u32) f32 {
	return x.Mul(scale).Sub(dsl.Log2(exponential(k, bits)))
}
