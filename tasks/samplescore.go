package tasks

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/draw"
)

// SampleScoresLen is the length of Sample.Scores.
func SampleScoresLen(rows, grid int) int { return rows * draw.ScoredSteps * grid * draw.ScoreWords }

// scoreAt is where the words of a row's next token begin that the CTA writes.
func (t *Sample) scoreAt(e *Env, row u32) u32 {
	slot := row.MulC(draw.ScoredSteps).Add(t.Position(row).AndC(draw.ScoredSteps - 1))
	return slot.MulC(e.Grid).Add(e.CTA).MulC(draw.ScoreWords)
}

// scored calls body for rows that want scores; in a warp alike.
func (t *Sample) scored(k *dsl.Kernel, row u32, body func(tops u32)) {
	wanted := dsl.Uniform(t.param(row, draw.RowScores), dsl.WarpScope)
	k.If(wanted.NeC(0), func() { body(wanted.SubC(1).MinC(draw.MaxTops)) })
}

func (t *Sample) scores() dsl.Pred { return t.Modes.AndC(draw.ModeScores).NeC(0) }

// score writes, for the rows that want scores, what the CTA's logits add to the log-sum-exp, and the highest of them in
// order. A warp looks after a row, so that no CTA waits for another.
func (t *Sample) score(e *Env, share Share) {
	e.K.If(t.scores(), func() {
		t.ownRows(e, func(row u32) {
			t.scored(e.K, row, func(tops u32) { t.scoreRow(e, share, row, tops) })
		})
		e.Sync() // Shared is of other use behind it
	})
}

// scoreRow is score of one row, in one warp.
func (t *Sample) scoreRow(e *Env, share Share, row, tops u32) {
	k := e.K
	each := func(body func(four u32, i int, x f32)) { // token four + i
		t.eachFourOf(e, share, row, e.Lane, dsl.WarpSize, ahead, func(four u32, x []f32) {
			for i := range x {
				body(four, i, x[i])
			}
		})
	}
	own, sum := dsl.NewVar(k.F32(math.Inf(-1)), "own"), dsl.NewVar(k.F32(0), "sum")
	each(func(_ u32, _ int, x f32) { own.Set(own.Get().Max(x)) })
	top, found := dsl.WarpMax(own.Get()), t.finding(e, row, own.Get(), tops)
	each(func(four u32, i int, x f32) {
		power := dsl.Exp2(x.Sub(top).Mul(k.F32(math.Log2E)))
		sum.Set(sum.Get().Add(dsl.Select(x.Le(top), power, k.F32(0)))) // not NaN, which is beyond the vocabulary
		found.add(four, i, x)
	})
	at, all := t.scoreAt(e, row), dsl.WarpSum(sum.Get())
	k.If(e.Lane.EqC(0), func() {
		t.Scores.StoreN(at, []u32{dsl.Bits[dsl.U32](top), dsl.Bits[dsl.U32](all)})
	})
	write := func(i, token u32, x f32) {
		t.Scores.StoreN(at.AddC(draw.ScoreTops).Add(i.MulC(2)), []u32{dsl.Bits[dsl.U32](x), token})
	}
	k.If(tops.NeC(0), func() {
		k.IfElse(found.fit(), func() { found.rank(tops, write) }, func() {
			t.highest(e, each, tops, func(i, token u32, x f32) { k.If(e.Lane.EqC(0), func() { write(i, token, x) }) })
		})
	})
}

// highest calls found for the n highest logits that each gives the lanes of a warp, the highest first, of equals the
// lower token; draw.NoToken where there are fewer. A lane looks through its logits again when its highest is taken.
func (t *Sample) highest(e *Env, each func(body func(four u32, i int, x f32)), n u32, found func(i, token u32, x f32)) {
	k := e.K
	none, low := dsl.Lit[dsl.U32](k, draw.NoToken), k.F32(math.Inf(-1))
	own := best{dsl.NewVar(low, "own"), dsl.NewVar(none, "own_token")}
	last := best{dsl.NewVar(k.F32(math.Inf(1)), "last"), dsl.NewVar(k.U32(0), "last_token")}
	look := func() {
		own.value.Set(low)
		own.index.Set(none)
		each(func(four u32, i int, x f32) {
			token := four.AddC(i)
			have, at, y, before := own.value.Get(), own.index.Get(), last.value.Get(), last.index.Get()
			left := x.Lt(y).Or(x.Eq(y).And(token.Gt(before)))
			better := left.And(x.Gt(have).Or(x.Eq(have).And(token.Lt(at))))
			own.value.Set(dsl.Select(better, x, have))
			own.index.Set(dsl.Select(better, token, at))
		})
	}
	take := dsl.NewVar(k.U32(1), "take")
	k.For(k.U32(0), n, func(i u32) {
		k.If(take.Get().NeC(0), look)
		last.value.Set(own.value.Get())
		last.index.Set(own.index.Get())
		last.warp()
		found(i, last.index.Get(), last.value.Get())
		take.Set(dsl.Select(own.index.Get().Eq(last.index.Get()), k.U32(1), k.U32(0)))
	}, dsl.Unroll(1))
}

// keepLogit writes the logit of the token that a row chose, or of the row's target, in one thread of a grid.
func (t *Sample) keepLogit(e *Env, row u32, w winner) {
	k := e.K
	k.If(t.scores().And(e.CTA.EqC(0)), func() {
		k.If(t.param(row, draw.RowScores).NeC(0), func() {
			logit, target := dsl.NewVar(w.logit.Get(), "logit"), t.param(row, draw.RowTarget)
			token := dsl.Select(target.NeC(0), target.SubC(1), w.index.Get()).MinC(t.Vocab - 1)
			k.If(target.NeC(0), func() { logit.Set(t.Logits.Load(row.MulC(t.Vocab).Add(token))) })
			k.If(t.isChanged(row), func() { logit.Set(t.Raw.Load(row.MulC(t.Vocab).Add(token))) })
			t.Scores.Store(t.scoreAt(e, row).AddC(draw.ScoreChosen), dsl.Bits[dsl.U32](logit.Get()))
		})
	})
}

const (
	fours = pipeline.TileRows / 4 // of a tile's logits
	ahead = 4                     // fours that a thread loads before it looks at them
)

// eachFourOf is eachFour by one of several threads, which loads some fours before body sees them.
func (t *Sample) eachFourOf(e *Env, share Share, row, thread u32, threads, ahead int, body func(token u32, x []f32)) {
	t.eachAhead(e, share, thread, threads, ahead, func(four u32) []f32 {
		token := four.MulC(4)
		return loadFour(t, e.K, t.Logits, row.MulC(t.Vocab).Add(token), token)
	}, func(four u32, x []f32) { body(dsl.Optional(four.MulC(4)), x) })
}

// eachAhead calls body for a thread's fours of the CTA, with what load has of them.
func (t *Sample) eachAhead(e *Env, share Share, thread u32, threads, ahead int, load func(four u32) []f32,
	body func(four u32, x []f32)) {
	k := e.K
	end := share.First.Add(share.Count).MulC(fours).MinC(ceilDiv(t.Vocab, 4))
	k.ForStep(share.First.MulC(fours).Add(thread), end, threads*ahead, func(first u32) {
		xs := [][]f32{load(first)}
		for i := 1; i < ahead; i++ {
			var vars []*dsl.Var[dsl.F32]
			for range xs[0] {
				vars = append(vars, dsl.NewVar(k.F32(0), "x"))
			}
			four := first.AddC(i * threads)
			k.If(four.Lt(end), func() {
				for j, x := range load(four) {
					vars[j].Set(x)
				}
			})
			var x []f32
			for _, v := range vars {
				x = append(x, v.Get())
			}
			xs = append(xs, x)
		}
		body(first, xs[0])
		for i := 1; i < ahead; i++ {
			four := first.AddC(i * threads)
			k.If(four.Lt(end), func() { body(four, xs[i]) })
		}
	}, dsl.Unroll(1))
}
