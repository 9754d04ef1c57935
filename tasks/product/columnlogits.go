package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// ArgmaxColumns is Argmax of several tokens: the LM head's logits of each, and the
// largest of them with the rules of Argmax.
type ArgmaxColumns struct {
	Vocab  int              // rows; packed rows beyond are padding
	T      int              // most tokens of a step
	Logits dsl.Buf[dsl.F32] // [T][Vocab] out, of the step's tokens
	Best   dsl.Buf[dsl.F32] // [grid][padded T] each CTA's largest logits, −inf for tokens the step does not have
	Index  dsl.Buf[dsl.U32] // [grid][padded T] and their rows

	SharedBest  dsl.Buf[dsl.F32] // shared memory, ColumnSumsLen long
	SharedIndex dsl.Buf[dsl.U32] // shared memory, ColumnSumsLen long
	Chosen      dsl.Buf[dsl.U32] // shared memory, [T] out of Choose
}

func (t *ArgmaxColumns) problem(e *grid.Env) string {
	p := ColumnsPadded(t.T)
	return rule.First(
		rule.Need(t.T >= 2 && t.T <= MaxColumns, "argmax: %d tokens, want 2 to %d", t.T, MaxColumns),
		rule.Need(t.Vocab > 0, "argmax: a vocabulary of %d, want at least 1", t.Vocab),
		rule.Need(int(t.Logits.Len()) >= t.T*t.Vocab, "argmax: Logits has %d elements, want %d", t.Logits.Len(), t.T*t.Vocab),
		rule.Need(int(t.Best.Len()) >= e.Grid*p && int(t.Index.Len()) >= e.Grid*p,
			"argmax: Best and Index have %d and %d elements, want %d", t.Best.Len(), t.Index.Len(), e.Grid*p),
		rule.Need(int(t.SharedBest.Len()) >= ColumnSumsLen(e.Consumers, p) &&
			int(t.SharedIndex.Len()) >= ColumnSumsLen(e.Consumers, p),
			"argmax: SharedBest and SharedIndex have %d and %d elements, want %d", t.SharedBest.Len(), t.SharedIndex.Len(),
			ColumnSumsLen(e.Consumers, p)),
		rule.Need(int(t.Chosen.Len()) >= t.T, "argmax: Chosen has %d elements, want %d", t.Chosen.Len(), t.T))
}

// Start begins a search in the consumer warps. It returns the LM head's epilogue and
// publish, to be run by all consumer threads of every CTA after its last row. The
// shared memory must not be in use since the last sync.
func (t *ArgmaxColumns) Start(e *grid.Env, scale ColumnScale) (epilogue ColumnEpilogue, publish func()) {
	k := e.K
	if p := t.problem(e); p != "" {
		k.Require(false, "%s", p)
		return func(_, _ u32, _, _ f32) {}, func() {}
	}
	bests := newPerToken(e, ColumnsPadded(t.T), func() Best { return NewBest(e) })
	epilogue = func(row, token u32, y0, y1 f32) {
		s := scale(token)
		y0, y1 = y0.Mul(s), y1.Mul(s)
		at := token.MulC(t.Vocab).Add(row)
		if t.Vocab%8 == 0 {
			t.Logits.StoreN(at, []f32{y0, y1})
			bests.of(token, func(b Best) {
				b.Take(y0, row)
				b.Take(y1, row.AddC(1))
			})
			return
		}
		for i, y := range []f32{y0, y1} {
			k.If(row.AddC(i).LtC(t.Vocab), func() {
				t.Logits.Store(at.AddC(i), y)
				bests.of(token, func(b Best) { b.Take(y, row.AddC(i)) })
			})
		}
	}
	return epilogue, func() { t.publish(e, bests) }
}

func (t *ArgmaxColumns) publish(e *grid.Env, bests *perToken[Best]) {
	all := NewBest(e)
	bests.gather(func(b Best) { b.Lanes(4) }, func(b Best, place u32) {
		t.SharedBest.Store(place, b.Value.Get())
		t.SharedIndex.Store(place, b.Index.Get())
	}, func(place u32) { all.Take(t.SharedBest.Load(place), t.SharedIndex.Load(place)) })
	padded := ColumnsPadded(t.T)
	e.K.If(e.Tid.LtC(padded), func() {
		at := e.CTA.MulC(padded).Add(e.Tid)
		t.Best.Store(at, all.Value.Get())
		t.Index.Store(at, all.Index.Get())
	})
}

// Published returns what publish wrote of this CTA and a token, in the thread that wrote it: that with the token's
// number.
func (t *ArgmaxColumns) Published(e *grid.Env) Best {
	at := e.CTA.MulC(ColumnsPadded(t.T)).Add(e.Tid)
	return Best{dsl.NewVar(t.Best.Load(at), "best"), dsl.NewVar(t.Index.Load(at), "best_index")}
}

// Lanes makes the best of n neighbouring lanes, a power of two, that of each.
func (b Best) Lanes(n int) {
	for d := n / 2; d > 0; d /= 2 {
		b.Take(dsl.ShflXor(b.Value.Get(), d), dsl.ShflXor(b.Index.Get(), d))
	}
}

// Choose finds the tokens after a sync, in every CTA alike: Chosen holds them
// for all consumer threads on return, 0 for tokens the step does not have. A warp
// looks at every n-th token.
func (t *ArgmaxColumns) Choose(e *grid.Env) {
	k, padded := e.K, ColumnsPadded(t.T)
	for from := 0; from < t.T; from += e.Consumers {
		token := e.Warp.AddC(from)
		search := func() {
			b := NewBest(e)
			for cta := 0; cta < e.Grid; cta += dsl.WarpSize {
				i := e.Lane.AddC(cta)
				at := i.MulC(padded).Add(token)
				k.If(i.LtC(e.Grid), func() { b.Take(t.Best.Load(at), t.Index.Load(at)) })
			}
			b.Warp()
			k.If(e.Lane.EqC(0), func() { t.Chosen.Store(token, b.Index.Get()) })
		}
		if from+e.Consumers <= t.T {
			search()
		} else {
			k.If(token.LtC(t.T), search)
		}
	}
	e.Sync()
}
