package tasks

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/draw"
)

// SampleHistoriesLen is the length of Sample.Histories.
func SampleHistoriesLen(rows, vocab int) int { return rows * draw.HistoryWords(vocab) }

func (t *Sample) changes() dsl.Pred { return t.Modes.AndC(draw.ModeChanges).NeC(0) }

// history is where the row's begins.
func (t *Sample) history(row u32) u32 {
	return t.param(row, draw.RowHistory).MinC(t.T - 1).MulC(draw.HistoryWords(t.Vocab))
}

// change moves the CTA's logits of rows with histories or masks to Raw and leaves what is drawn from in their place.
// A thread changes those that eachFour gives it.
func (t *Sample) change(e *Env, share Share) {
	k := e.K
	k.If(t.changes(), func() {
		masks := t.Modes.AndC(draw.ModeMasks).NeC(0)
		k.If(masks.And(e.Tid.EqC(0)), func() {
			t.Watch.Until(k, t.Ready, dsl.At(0), dsl.GE, t.Step.AddC(1), "waits for the masks of %d launch steps",
				dsl.Acquire(dsl.SysScope))
		})
		e.Sync() // the scores are of the logits as they were; and the masks are there
		t.eachRow(k, func(row u32) {
			flags := dsl.Uniform(t.param(row, draw.RowFlags), dsl.WarpScope)
			history := flags.AndC(draw.FlagChanges).NeC(0)
			k.If(history, func() { t.changeRow(e, share, row, t.history(row), t.history(row).AddC(t.Vocab)) })
			k.If(flags.AndC(draw.FlagMask).NeC(0), func() { t.maskRow(e, share, row, history) })
		})
	})
}

// isChanged is whether a row's logits are in Raw.
func (t *Sample) isChanged(row u32) dsl.Pred { return t.has(row, draw.FlagChanges|draw.FlagMask) }

// some calls body for the CTA's logits of a row, n of them from a token on: those of eachFour.
func (t *Sample) some(e *Env, share Share, body func(token u32, n int)) {
	k := e.K
	end := share.First.Add(share.Count).MulC(fours).MinC(ceilDiv(t.Vocab, 4))
	k.ForStep(share.First.MulC(fours).Add(e.Tid), end, e.Threads(), func(four u32) {
		token := four.MulC(4)
		if t.Vocab%4 == 0 {
			body(token, 4)
			return
		}
		for i := range 4 {
			k.If(token.AddC(i).LtC(t.Vocab), func() { body(token.AddC(i), 1) })
		}
	}, dsl.Unroll(1))
}

// maskRow makes the logits of tokens -inf that are not in a row's mask. A history has moved them to Raw already.
func (t *Sample) maskRow(e *Env, share Share, row u32, moved dsl.Pred) {
	k := e.K
	words := draw.MaskWords(t.Vocab)
	t.some(e, share, func(token u32, n int) {
		at := row.MulC(t.Vocab).Add(token)
		xs := t.Logits.LoadN(at, n)
		bits := t.Masks.Load(row.MulC(words).Add(token.ShrC(5)), dsl.Relaxed(dsl.SysScope)).Shr(token.AndC(31))
		k.If(moved.Not(), func() { t.Raw.StoreN(at, xs) })
		var ys []f32
		for i, x := range xs {
			ys = append(ys, dsl.Select(bits.ShrC(i).AndC(1).NeC(0), x, k.F32(math.Inf(-1))))
		}
		t.Logits.StoreN(at, ys)
	})
}

// changeRow applies a row's history, whose biases and words begin there.
func (t *Sample) changeRow(e *Env, share Share, row, biases, words u32) {
	k := e.K
	repetition, inverse := t.paramF32(row, draw.RowRepetition), t.paramF32(row, draw.RowInverse)
	presence, frequency := t.paramF32(row, draw.RowPresence), t.paramF32(row, draw.RowFrequency)
	early := t.Position(row).Lt(t.param(row, draw.RowLeast))
	one := func(x f32, bias, word u32) f32 {
		y, n := x.Add(dsl.Bits[dsl.F32](bias)), word.AndC(draw.CountMask)
		// y / repetition, rounded once (Markstein, Computation of elementary functions on the IBM RISC System/6000, 1990): an
		// inverse that is rounded once, and what its quotient leaves. Div is a call in machine code.
		near := y.Mul(inverse)
		quotient := dsl.FMA(dsl.FMA(near.Neg(), repetition, y), inverse, near)
		repeated := dsl.Select(y.Gt(k.F32(0)), quotient, y.Mul(repetition))
		y = dsl.Select(word.AndC(draw.InPrompt).Or(n).NeC(0), repeated, y)
		y = dsl.Select(n.NeC(0), y.Sub(frequency.Mul(dsl.Cast[dsl.F32](n))).Sub(presence), y)
		return dsl.Select(word.AndC(draw.EndsText).NeC(0).And(early), k.F32(math.Inf(-1)), y)
	}
	t.some(e, share, func(token u32, n int) {
		at := row.MulC(t.Vocab).Add(token)
		xs, bs, ws := t.Logits.LoadN(at, n), t.Histories.LoadN(biases.Add(token), n), t.Histories.LoadN(words.Add(token), n)
		var ys []f32
		for i := range xs {
			ys = append(ys, one(xs[i], bs[i], ws[i]))
		}
		t.Raw.StoreN(at, xs)
		t.Logits.StoreN(at, ys)
	})
}

// remember adds the tokens that rows with histories have chosen to these, in the CTA that reads of them.
func (t *Sample) remember(e *Env, share Share) {
	k := e.K
	k.If(t.changes().And(e.Tid.Lt(t.Count)), func() {
		row := e.Tid
		k.If(t.has(row, draw.FlagChanges), func() {
			token := t.Chosen.Load(row).MinC(t.Vocab - 1)
			k.If(token.DivC(pipeline.TileRows).Sub(share.First).Lt(share.Count), func() {
				at := t.history(row).AddC(t.Vocab).Add(token)
				t.Histories.Store(at, t.Histories.Load(at).AddC(1))
			})
		})
	})
}
