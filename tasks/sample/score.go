package sample

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

// SampleScoresLen is the length of Sample.Scores.
func SampleScoresLen(rows, grid int) int { return rows * draw.ScoredSteps * draw.ScoreWords(grid) }

// SampleTopsLen is the length of Sample.Tops.
func SampleTopsLen(rows, grid int) int { return rows * draw.ScoredSteps * grid * topsWords }

const topsWords = 2 * draw.MaxTops // of a row, step and CTA in Tops

// slot is where, in steps of rows that are kept, that of a row's next token is, or that of a token ago before it.
func (t *Sample) slot(row, ago u32) u32 {
	return row.MulC(draw.ScoredSteps).Add(t.Position(row).Sub(ago).AndC(draw.ScoredSteps - 1))
}

// scoreAt is where the scores of a slot begin.
func scoreAt(e *grid.Env, slot u32) u32 { return slot.MulC(draw.ScoreWords(e.Grid)) }

// topsAt is where a CTA's highest logits of a slot begin.
func topsAt(e *grid.Env, slot, cta u32) u32 { return slot.MulC(e.Grid).Add(cta).MulC(topsWords) }

// scored calls body for rows that want scores; in a warp alike.
func (t *Sample) scored(k *dsl.Kernel, row u32, body func(tops u32)) {
	wanted := dsl.Uniform(t.param(row, draw.RowScores), dsl.WarpScope)
	k.If(wanted.NeC(0), func() { body(wanted.SubC(1).MinC(draw.MaxTops)) })
}

func (t *Sample) scores() dsl.Pred { return t.Modes.AndC(draw.ModeScores).NeC(0) }

// score writes, for the rows that want scores, what the CTA's logits add to the log-sum-exp, and the highest of them in
// order. A warp looks after a row, so that no CTA waits for another.
func (t *Sample) score(e *grid.Env, share product.Share) {
	e.K.If(t.scores(), func() {
		t.ownRows(e, func(row u32) {
			t.scored(e.K, row, func(tops u32) { t.scoreRow(e, share, row, evenTops(tops)) })
		})
	})
}

// evenTops is how many of the highest logits a CTA lists of a row: they are merged two at a time.
func evenTops(tops u32) u32 { return tops.AddC(1).ShrC(1).MulC(2) }

// scoreRow is score of one row, in one warp.
func (t *Sample) scoreRow(e *grid.Env, share product.Share, row, tops u32) {
	k := e.K
	each := func(body func(token u32, x f32)) {
		t.eachFourOf(e, share, row, e.Lane, dsl.WarpSize, once, func(four u32, x []f32) {
			for i := range x {
				body(dsl.Optional(four.AddC(i)), x[i])
			}
		})
	}
	own, sum := dsl.NewVar(k.F32(math.Inf(-1)), "own"), dsl.NewVar(k.F32(0), "sum")
	t.eachFourOf(e, share, row, e.Lane, dsl.WarpSize, many, func(_ u32, x []f32) {
		own.Set(own.Get().Max(x[0]).Max(x[1]).Max(x[2]).Max(x[3]))
	})
	top, found := dsl.WarpMax(own.Get()), t.finding(e, row, own.Get(), tops)
	each(func(token u32, x f32) {
		power := dsl.Exp2(x.Sub(top).Mul(k.F32(math.Log2E)))
		sum.Set(sum.Get().Add(dsl.Select(x.Le(top), power, k.F32(0)))) // not NaN, which is beyond the vocabulary
		found.add(token, x)
	})
	all := dsl.WarpSum(sum.Get())
	k.If(e.Lane.EqC(0), func() {
		at := scoreAt(e, t.slot(row, k.U32(0))).AddC(draw.ScoreParts).Add(e.CTA.MulC(2))
		t.Scores.StoreN(at, []u32{dsl.Bits[dsl.U32](top), dsl.Bits[dsl.U32](all)})
	})
	found.write(tops, each, t.Tops, topsAt(e, t.slot(row, k.U32(0)), e.CTA))
}

// Merge finds the highest logits of all CTAs, of the tokens that rows have chosen since it did so before: behind each
// ScoredSteps-th step, and behind the launch's last. The sync before Choose has published their lists. Rows and steps
// are shared out among all SMs, so that a step does not wait for one of them.
func (t *Sample) Merge(e *grid.Env, last dsl.Pred) {
	k := e.K
	before := t.Nth.AndC(draw.ScoredSteps - 1) // of the steps before, those whose lists are not merged
	k.If(t.scores().And(last.Or(before.EqC(draw.ScoredSteps-1))), func() {
		warps := min(e.Consumers, t.T) // each with a row's part of Shared
		k.If(e.Warp.LtC(warps), func() {
			first, n := e.Warp.MulC(e.Grid).Add(e.CTA), before.AddC(1).MulC(t.T)
			k.ForStep(first, n, warps*e.Grid, func(i u32) {
				row := i.RemC(t.T)
				k.SyncWarp() // of the token before all is read in Shared
				k.If(row.Lt(t.Count), func() {
					t.scored(k, row, func(tops u32) {
						k.If(tops.NeC(0), func() { t.mergeRow(e, t.slot(row, i.DivC(t.T)), tops) })
					})
				})
			}, dsl.Unroll(1))
		})
	})
}

// mergeRow is Merge of one token of a row, in one warp: a lane goes through lists of CTAs, or through a part of one
// where these are few, two tokens of each at a time, for as long as they may be among the highest.
func (t *Sample) mergeRow(e *grid.Env, slot, tops u32) {
	k, parts := e.K, max(1, dsl.WarpSize/e.Grid)
	cta, part, pairs := e.Lane.DivC(parts), e.Lane.RemC(parts), evenTops(tops).ShrC(1)
	lists := make([][]*dsl.Var[dsl.U32], pipeline.CeilDiv(e.Grid, dsl.WarpSize/parts))
	low, none := dsl.Bits[dsl.U32](k.F32(math.Inf(-1))), dsl.Lit[dsl.U32](k, draw.NoToken)
	load := func(l int, pair u32, also dsl.Pred) {
		of := cta.AddC(l * dsl.WarpSize / parts)
		k.If(of.LtC(e.Grid).And(pair.Lt(pairs)).And(also), func() {
			for i, v := range t.Tops.LoadN(topsAt(e, slot, of).Add(pair.MulC(4)), 4) {
				lists[l][i].Set(v)
			}
		})
	}
	at := func(l, i int) f32 { return dsl.Bits[dsl.F32](lists[l][2*i].Get()) }
	own := dsl.NewVar(k.F32(math.Inf(-1)), "own")
	for l := range lists {
		lists[l] = append(dsl.NewArray(low, 2, "pair"), dsl.NewArray(none, 2, "pair")...)
		lists[l][1], lists[l][2] = lists[l][2], lists[l][1]
		load(l, part, k.Bool(true))
	}
	for l := range lists {
		own.Set(own.Get().Max(at(l, 0)))
	}
	found := t.finding(e, e.Warp, own.Get(), tops)
	k.ForStep(part, pairs, parts, func(pair u32) {
		var further []dsl.Pred
		for l := range lists {
			for i := range 2 {
				token := lists[l][2*i+1].Get()
				k.If(token.NeC(draw.NoToken), func() { found.add(token, at(l, i)) })
			}
			further = append(further, at(l, 1).Ge(found.floor))
		}
		for l := range lists {
			lists[l][1].Set(none)
			lists[l][3].Set(none)
			load(l, pair.AddC(parts), further[l])
		}
	}, dsl.Unroll(1))
	found.write(tops, func(body func(token u32, x f32)) {
		k.ForStep(cta, k.U32(e.Grid), dsl.WarpSize/parts, func(of u32) {
			k.ForStep(part, tops, parts, func(i u32) {
				pair := t.Tops.LoadN(topsAt(e, slot, of).Add(i.MulC(2)), 2)
				k.If(pair[1].NeC(draw.NoToken), func() { body(dsl.Optional(pair[1]), dsl.Bits[dsl.F32](pair[0])) })
			}, dsl.Unroll(4))
		}, dsl.Unroll(1))
	}, t.Scores, scoreAt(e, slot).AddC(draw.ScoreTops))
}

// keepLogit writes the logit of the token that a row chose, or of the row's target, in one thread of a grid.
func (t *Sample) keepLogit(e *grid.Env, row u32, w winner) {
	k := e.K
	k.If(t.scores().And(e.CTA.EqC(0)), func() {
		k.If(t.param(row, draw.RowScores).NeC(0), func() {
			logit, target := dsl.NewVar(w.logit.Get(), "logit"), t.param(row, draw.RowTarget)
			token := dsl.Select(target.NeC(0), target.SubC(1), w.Index.Get()).MinC(t.Vocab - 1)
			k.If(target.NeC(0), func() { logit.Set(t.Logits.Load(row.MulC(t.Vocab).Add(token))) })
			k.If(t.isChanged(row), func() { logit.Set(t.Raw.Load(row.MulC(t.Vocab).Add(token))) })
			t.Scores.Store(scoreAt(e, t.slot(row, k.U32(0))).AddC(draw.ScoreChosen), dsl.Bits[dsl.U32](logit.Get()))
		})
	})
}

const (
	fours = pipeline.TileRows / 4 // of a tile's logits

	// How many fours a group has: as many are loaded together, and so often stands the body in the kernel. Code that runs
	// once a step is in no cache, so a long body stands there once.
	once = 1
	many = 4
)

// eachFourOf is eachFour by one of several threads.
func (t *Sample) eachFourOf(e *grid.Env, share product.Share, row, thread u32, threads, group int,
	body func(token u32, x []f32)) {
	t.eachAhead(e, share, thread, threads, group, 4, func(four u32) []f32 {
		token := four.MulC(4)
		return loadFour(t, e.K, t.Logits, row.MulC(t.Vocab).Add(token), token)
	}, func(four u32, x []f32) { body(dsl.Optional(four.MulC(4)), x) })
}

// eachAhead calls body for a thread's fours of the CTA, a group at a time, with the words that load has of each. The
// next group is loaded meanwhile; of fours one by one the next two are, since ptxas moves the load of one behind the
// body. A group may end behind the CTA's last four, with words that are NaN.
func (t *Sample) eachAhead(e *grid.Env, share product.Share, thread u32, threads, group, words int,
	load func(four u32) []f32, body func(four u32, x []f32)) {
	k, ahead := e.K, max(group, 2)
	end := share.First.Add(share.Count).MulC(fours).MinC(pipeline.CeilDiv(t.Vocab, 4))
	first := share.First.MulC(fours).Add(thread)
	next := make([][]*dsl.Var[dsl.F32], ahead)
	fill := func(i int, four u32) {
		for _, x := range next[i] {
			x.Set(k.F32(math.NaN()))
		}
		k.If(four.Lt(end), func() {
			for j, x := range load(four) {
				next[i][j].Set(x)
			}
		})
	}
	for i := range next {
		next[i] = dsl.NewArray(k.F32(math.NaN()), words, "x")
		fill(i, first.AddC(i*threads))
	}
	k.ForStep(first, end, threads*group, func(first u32) {
		var xs [][]f32
		for i := range next {
			var x []f32
			for _, v := range next[i] {
				x = append(x, v.Get())
			}
			xs = append(xs, x)
		}
		for i := range next {
			if i+group < ahead {
				for j, x := range xs[i+group] {
					next[i][j].Set(x)
				}
			} else {
				fill(i, first.AddC((group+i)*threads))
			}
		}
		for i, x := range xs[:group] {
			body(first.AddC(i*threads), x)
		}
	}, dsl.Unroll(1))
}
