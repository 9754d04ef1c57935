package tasks

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
)

// QKV finishes the fused q, k and v projection: it applies RMSNorm's scale,
// rotates q and k (RoPE), and appends k and v to the cache at the query's
// position. The packed matrix's rows are in the order of SourceRow, in which
// the two rows a rotation mixes are neighbours.
type QKV struct {
	Heads   int // query heads
	KV      KVLayout
	InvFreq dsl.Buf[dsl.F32]  // [D/2], radians a position, frequency scaling applied
	Q       dsl.Buf[dsl.BF16] // [Heads][D] out: rotated, times log2(e)/√D

	// QueryShift is added to the position queries are rotated for; it is 0 but
	// where a fault is planted.
	QueryShift int
}

// Rows is the number of rows of the fused matrix.
func (t *QKV) Rows() int { return (t.Heads + 2*t.KV.Heads) * t.KV.D }

// SourceRow says which row of the concatenated q, k, v weights is packed row r:
// in heads of q and k rows i and i + D/2 are neighbours, v keeps its order.
func (t *QKV) SourceRow(r int) int {
	head, i := r/t.KV.D, r%t.KV.D
	if head >= t.Heads+t.KV.Heads {
		return r
	}
	return head*t.KV.D + i/2 + i%2*t.KV.D/2
}

func (t *QKV) problem() string {
	if p := t.KV.problem(); p != "" {
		return p
	}
	return firstOf(
		need(t.Heads > 0, "qkv: %d query heads, want at least 1", t.Heads),
		need(int(t.InvFreq.Len()) == t.KV.D/2, "qkv: InvFreq has %d elements, want half the head dimension, %d", t.InvFreq.Len(), t.KV.D/2))
}

// Epilogue finishes rows as they come. scale is RMSNorm's.
func (t *QKV) Epilogue(e *Env, s Step, scale f32) Epilogue {
	k, d := e.K, t.KV.D
	if p := t.problem(); p != "" {
		k.Require(false, "%s", p)
		return func(u32, f32, f32) {}
	}
	kv := dsl.View[dsl.BF16](s.Cache)
	kv2 := dsl.View[dsl.BF16x2](s.Cache)
	// The new token's place is looked up once, before the rows arrive.
	page := s.Table.Load(s.Pos.DivC(t.KV.Page)).Named("page")
	slot := s.Pos.RemC(t.KV.Page).Named("slot")
	return func(row u32, y0, y1 f32) {
		y0, y1 = y0.Mul(scale), y1.Mul(scale)
		head, i := row.DivC(d).Named("head"), row.RemC(d).DivC(2).Named("i")
		place := func(kvHead u32) dsl.Val[dsl.U64] { return t.KV.rowBase(s.Layer, s.Pages, page, kvHead, slot) }
		k.IfElse(head.LtC(t.Heads+t.KV.Heads), func() {
			pos := s.Pos
			if t.QueryShift != 0 {
				pos = dsl.Select(head.LtC(t.Heads), pos.AddC(t.QueryShift), pos)
			}
			r0, r1 := t.rotate(e, pos, i, y0, y1)
			k.IfElse(head.LtC(t.Heads), func() {
				c := k.F32(math.Log2E / math.Sqrt(float64(d)))
				at := head.MulC(d).Add(i)
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

// element is where dimension i of K lies in its token, in bf16.
func (t *QKV) element(i, slot u32) dsl.Val[dsl.U64] {
	return dsl.Cast[dsl.U64](t.KV.swizzle(i.DivC(8), slot).MulC(8).Add(i.RemC(8)))
}

// rotate turns (y0, y1), elements i and i + D/2 of a head, by pos·InvFreq[i]
// (RoPE, Su et al. 2021, in the half-split layout of Hugging Face's Llama). The
// angle is rounded to f32 as there, then reduced to [−π, π] with two fused
// steps, exact up to positions of about 2²⁰, because sin and cos are accurate
// only there.
func (t *QKV) rotate(e *Env, pos, i u32, y0, y1 f32) (r0, r1 f32) {
	k := e.K
	angle := dsl.Cast[dsl.F32](pos).Mul(t.InvFreq.Load(i))
	hi := float64(float32(2 * math.Pi))
	turns := dsl.Rint(angle.Mul(k.F32(1 / (2 * math.Pi)))).Neg()
	angle = dsl.FMA(turns, k.F32(hi), angle)
	angle = dsl.FMA(turns, k.F32(2*math.Pi-hi), angle)
	c, s := dsl.Cos(angle).Named("cos"), dsl.Sin(angle).Named("sin")
	return dsl.FMA(y1.Neg(), s, y0.Mul(c)), dsl.FMA(y0, s, y1.Mul(c))
}
