package sample

import (
	"math"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
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
func (t *Sample) change(e *grid.Env, share product.Share) {
	k := e.K
	masks := t.Modes.AndC(draw.ModeMasks).NeC(0)
	k.If(masks.And(e.Tid.EqC(0)), func() {
		t.Watch.Until(k, t.Ready, dsl.At(0), dsl.GE, t.Step.AddC(1), "waits for the masks of %d launch steps",
			dsl.Acquire(dsl.SysScope))
	})
	e.Sync() // the scores are of the logits as they were; and the masks are there
	t.teamRows(e, func(row, thread u32) {
		flags := dsl.Uniform(t.param(row, draw.RowFlags), dsl.WarpScope)
		history := flags.AndC(draw.FlagChanges).NeC(0)
		k.If(history, func() { t.changeRow(e, share, row, thread) })
		k.If(flags.AndC(draw.FlagMask).NeC(0), func() { t.maskRow(e, share, row, thread, history) })
	})
}

// isChanged is whether a row's logits are in Raw.
func (t *Sample) isChanged(row u32) dsl.Pred { return t.has(row, draw.FlagChanges|draw.FlagMask) }

// loadFour loads four elements from at on, of a row's tokens from one on; those beyond the vocabulary are NaN.
func loadFour[T dsl.Word](t *Sample, k *dsl.Kernel, b dsl.Buf[T], at, token u32) (x []f32) {
	if t.Vocab%4 == 0 {
		for _, v := range b.LoadN(at, 4) {
			x = append(x, dsl.Bits[dsl.F32](v))
		}
		return x
	}
	for i := range 4 {
		v := dsl.NewVar(k.F32(math.NaN()), "x")
		k.If(token.AddC(i).LtC(t.Vocab), func() { v.Set(dsl.Bits[dsl.F32](b.Load(at.AddC(i)))) })
		x = append(x, v.Get())
	}
	return x
}

// storeFour stores those that are in the vocabulary.
func (t *Sample) storeFour(k *dsl.Kernel, b dsl.Buf[dsl.F32], row, token u32, x []f32) {
	at := row.MulC(t.Vocab).Add(token)
	if t.Vocab%4 == 0 {
		b.StoreN(at, x)
		return
	}
	for i := range x {
		k.If(token.AddC(i).LtC(t.Vocab), func() { b.Store(at.AddC(i), x[i]) })
	}
}

// maskRow makes the logits of tokens -inf that are not in a row's mask. A history has moved them to Raw already.
func (t *Sample) maskRow(e *grid.Env, share product.Share, row, thread u32, moved dsl.Pred) {
	k := e.K
	words := draw.MaskWords(t.Vocab)
	t.eachAhead(e, share, thread, t.team(e)*dsl.WarpSize, once, 5, func(four u32) []f32 {
		token := four.MulC(4)
		mask := t.Masks.Load(row.MulC(words).Add(token.ShrC(5)), dsl.Relaxed(dsl.SysScope))
		return append(loadFour(t, k, t.Logits, row.MulC(t.Vocab).Add(token), token), dsl.Bits[dsl.F32](mask))
	}, func(four u32, v []f32) {
		token := four.MulC(4)
		xs, bits := v[:4], dsl.Bits[dsl.U32](v[4]).Shr(token.AndC(31))
		k.If(moved.Not(), func() { t.storeFour(k, t.Raw, row, token, xs) })
		var ys []f32
		for i, x := range xs {
			ys = append(ys, dsl.Select(bits.ShrC(i).AndC(1).NeC(0), x, k.F32(math.Inf(-1))))
		}
		t.storeFour(k, t.Logits, row, token, ys)
	})
}

// changeRow applies a row's history.
func (t *Sample) changeRow(e *grid.Env, share product.Share, row, thread u32) {
	k := e.K
	biases := t.history(row)
	words := biases.AddC(t.Vocab)
	repetition, inverse := t.paramF32(row, draw.RowRepetition), t.paramF32(row, draw.RowInverse)
	presence, frequency := t.paramF32(row, draw.RowPresence), t.paramF32(row, draw.RowFrequency)
	early := t.Position(row).Lt(t.param(row, draw.RowLeast))
	one := func(x, bias f32, word u32) f32 {
		y, n := x.Add(bias), word.AndC(draw.CountMask)
		// y / repetition, rounded once (Markstein, Computation of elementary functions on the IBM RISC System/6000, 1990): an
		// inverse that is rounded once, and what its quotient leaves. Div is a call in machine code.
		near := y.Mul(inverse)
		quotient := dsl.FMA(dsl.FMA(near.Neg(), repetition, y), inverse, near)
		repeated := dsl.Select(y.Gt(k.F32(0)), quotient, y.Mul(repetition))
		y = dsl.Select(word.AndC(draw.InPrompt).Or(n).NeC(0), repeated, y)
		y = dsl.Select(n.NeC(0), y.Sub(frequency.Mul(dsl.Cast[dsl.F32](n))).Sub(presence), y)
		return dsl.Select(word.AndC(draw.EndsText).NeC(0).And(early), k.F32(math.Inf(-1)), y)
	}
	t.eachAhead(e, share, thread, t.team(e)*dsl.WarpSize, once, 12, func(four u32) []f32 {
		token := four.MulC(4)
		return slices.Concat(loadFour(t, k, t.Logits, row.MulC(t.Vocab).Add(token), token),
			loadFour(t, k, t.Histories, biases.Add(token), token), loadFour(t, k, t.Histories, words.Add(token), token))
	}, func(four u32, v []f32) {
		var ys []f32
		for i, x := range v[:4] {
			ys = append(ys, one(x, v[4+i], dsl.Bits[dsl.U32](v[8+i])))
		}
		t.storeFour(k, t.Raw, row, four.MulC(4), v[:4])
		t.storeFour(k, t.Logits, row, four.MulC(4), ys)
	})
}

// remember adds the tokens that rows with histories have chosen to these, in the CTA that reads of them.
func (t *Sample) remember(e *grid.Env, share product.Share) {
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
