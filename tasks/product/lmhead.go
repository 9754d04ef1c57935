package product

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// Argmax finds the largest logit, the lowest index where several are equal. NaN
// is never chosen; if every logit is NaN or −inf the token is 0.
//
// Each thread keeps the best of its own rows (Epilogue), each CTA publishes its
// best (Publish), and after a sync every CTA finds the best of all (Choose).
type Argmax struct {
	Vocab  int              // rows; packed rows beyond are padding
	Logits dsl.Buf[dsl.F32] // [Vocab] out
	Best   dsl.Buf[dsl.F32] // [grid] each CTA's largest logit
	Index  dsl.Buf[dsl.U32] // [grid] and its row

	SharedIndex dsl.Buf[dsl.U32] // shared memory, one a consumer warp
}

// Best is a running maximum with its index.
type Best struct {
	Value *dsl.Var[dsl.F32] // −inf where there was nothing to take
	Index *dsl.Var[dsl.U32] // the lowest of those with this value
}

// NewBest is a maximum of nothing yet: −inf at index 0.
func NewBest(e *grid.Env) Best {
	return Best{dsl.NewVar(e.K.F32(math.Inf(-1)), "best"), dsl.NewVar(e.K.U32(0), "best_index")}
}

// Take keeps (v, i) if v is larger, or equal with a lower index.
func (b Best) Take(v f32, i u32) {
	have, at := b.Value.Get(), b.Index.Get()
	better := v.Gt(have).Or(v.Eq(have).And(i.Lt(at)))
	b.Value.Set(dsl.Select(better, v, have))
	b.Index.Set(dsl.Select(better, i, at))
}

// Warp makes every lane's best that of the whole warp.
func (b Best) Warp() {
	for d := dsl.WarpSize / 2; d > 0; d /= 2 {
		b.Take(dsl.ShflXor(b.Value.Get(), d), dsl.ShflXor(b.Index.Get(), d))
	}
}

func (t *Argmax) problem(e *grid.Env) string {
	return rule.First(
		rule.Need(t.Vocab > 0, "argmax: a vocabulary of %d, want at least 1", t.Vocab),
		rule.Need(int(t.Best.Len()) == e.Grid && int(t.Index.Len()) == e.Grid,
			"argmax: Best and Index have %d and %d elements, want one a CTA, %d", t.Best.Len(), t.Index.Len(), e.Grid),
		rule.Need(int(t.SharedIndex.Len()) >= e.Consumers && int(e.Scratch.Len()) >= e.Consumers,
			"argmax: SharedIndex and Scratch have %d and %d elements, want one a consumer warp, %d", t.SharedIndex.Len(),
			e.Scratch.Len(), e.Consumers))
}

// Start begins a search in the consumer warps. It returns the LM head's
// epilogue (which scales by RMSNorm's scale) and publish, to be run after the
// last row: it writes this CTA's best.
func (t *Argmax) Start(e *grid.Env, scale NormScale) (epilogue Epilogue, publish func()) {
	k := e.K
	if p := t.problem(e); p != "" {
		k.Require(false, "%s", p)
		return func(u32, f32, f32) {}, func() {}
	}
	b := NewBest(e)
	one := func(row u32, y f32) {
		t.Logits.Store(row, y)
		b.Take(y, row)
	}
	epilogue = func(row u32, y0, y1 f32) {
		by := scale()
		y0, y1 = y0.Mul(by), y1.Mul(by)
		if t.Vocab%8 == 0 {
			t.Logits.StoreN(row, []f32{y0, y1})
			b.Take(y0, row)
			b.Take(y1, row.AddC(1))
			return
		}
		k.If(row.LtC(t.Vocab), func() { one(row, y0) })
		k.If(row.AddC(1).LtC(t.Vocab), func() { one(row.AddC(1), y1) })
	}
	return epilogue, func() { t.publish(e, b) }
}

func (t *Argmax) publish(e *grid.Env, b Best) {
	k := e.K
	k.Note("the CTA's largest logit, the lowest index of several")
	b.Warp()
	e.Sync() // a CTA without rows comes straight from the norm, which has just read Scratch
	k.If(e.Lane.EqC(0), func() {
		e.Scratch.Store(e.Warp, b.Value.Get())
		t.SharedIndex.Store(e.Warp, b.Index.Get())
	})
	e.Sync()
	k.If(e.Tid.EqC(0), func() {
		all := NewBest(e)
		for w := range e.Consumers {
			all.Take(e.Scratch.Load(dsl.At(w)), t.SharedIndex.Load(dsl.At(w)))
		}
		t.Best.Store(e.CTA, all.Value.Get())
		t.Index.Store(e.CTA, all.Index.Get())
	})
}

// Published returns what publish wrote of this CTA, in the thread that wrote it: 0.
func (t *Argmax) Published(e *grid.Env) Best {
	return Best{dsl.NewVar(t.Best.Load(e.CTA), "best"), dsl.NewVar(t.Index.Load(e.CTA), "best_index")}
}

// Choose finds the token after a sync, in every CTA alike, and returns it to
// all consumer threads.
func (t *Argmax) Choose(e *grid.Env) u32 {
	k := e.K
	k.Note("the largest of all CTAs: the next token, in every CTA alike")
	k.If(e.Warp.EqC(0), func() {
		b := NewBest(e)
		for from := 0; from < e.Grid; from += dsl.WarpSize {
			i := e.Lane.AddC(from)
			k.If(i.LtC(e.Grid), func() { b.Take(t.Best.Load(i), t.Index.Load(i)) })
		}
		b.Warp()
		k.If(e.Lane.EqC(0), func() { t.SharedIndex.Store(dsl.At(0), b.Index.Get()) })
	})
	e.Sync()
	return dsl.Uniform(t.SharedIndex.Load(dsl.At(0)), dsl.GPUScope).Named("chosen")
}
