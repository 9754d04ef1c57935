package tasks

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
)

// QKVColumns is QKV of several tokens, each with a position and a page of its own.
type QKVColumns struct {
	QKV     // Q is [T][Heads][D]
	T   int // most tokens of a step
}

// Epilogue finishes rows as they come. rows must have been loaded.
func (t *QKVColumns) Epilogue(e *Env, layer, pages u32, cache dsl.Buf[dsl.B128], rows *ColumnRows, scale ColumnScale) ColumnEpilogue {
	k, d := e.K, t.KV.D
	p := t.problem()
	if want := t.T * t.Heads * d; p == "" {
		p = need(int(t.Q.Len()) >= want, "qkv: Q has %d elements, want %d for %d tokens", t.Q.Len(), want, t.T).failed()
	}
	if p != "" {
		k.Require(false, "%s", p)
		return func(_, _ u32, _, _ f32) {}
	}
	kv, kv2 := dsl.View[dsl.BF16](cache), dsl.View[dsl.BF16x2](cache)
	return func(row, token u32, y0, y1 f32) {
		s := scale(token)
		y0, y1 = y0.Mul(s), y1.Mul(s)
		head, i := row.DivC(d).Named("head"), row.RemC(d).DivC(2).Named("i")
		slot := rows.Slot(token, t.KV.Page).Named("slot")
		place := func(kvHead u32) dsl.Val[dsl.U64] { return t.KV.rowBase(layer, pages, rows.Page(token), kvHead, slot) }
		k.IfElse(head.LtC(t.Heads+t.KV.Heads), func() {
			pos := rows.Position(token)
			if t.QueryShift != 0 {
				pos = dsl.Select(head.LtC(t.Heads), pos.AddC(t.QueryShift), pos)
			}
			r0, r1 := t.rotate(e, pos, i, y0, y1)
			k.IfElse(head.LtC(t.Heads), func() {
				c := k.F32(math.Log2E / math.Sqrt(float64(d)))
				at := token.MulC(t.Heads * d).Add(head.MulC(d)).Add(i)
				t.Q.Store(at, dsl.Cast[dsl.BF16](r0.Mul(c)))
				t.Q.Store(at.AddC(d/2), dsl.Cast[dsl.BF16](r1.Mul(c)))
			}, func() {
				base := place(head.SubC(t.Heads)).MulC(8)
				kv.Store(base.Add(t.element(i, slot)), dsl.Cast[dsl.BF16](r0))
				kv.Store(base.Add(t.element(i.AddC(d/2), slot)), dsl.Cast[dsl.BF16](r1))
			})
		}, func() {
			base := place(head.SubC(t.Heads + t.KV.Heads)).MulC(4)
			at := t.element(i.MulC(2), slot).AddC(d).DivC(2)
			kv2.Store(base.Add(at), dsl.Pack[dsl.BF16x2](y0, y1))
		})
	}
}
