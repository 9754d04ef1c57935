package attention

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// PrefillCopy is a layer's keys and values as attention of many rows reads them where the cache of e4m3 has other
// elements: in bf16, in pages as the cache's, without their scales. Every e4m3 number is one of bf16. Elements of a key
// are in the order of KVLayout.KeyOrder of the cache. A step writes its new tokens as it makes them, and copies those
// that were cached before.
type PrefillCopy struct {
	KV   KVLayout          // of the cache
	To   dsl.Buf[dsl.B128] // [pages][KV heads][slots][K, V][head dimension] bf16, of the running layer
	Kept dsl.Buf[dsl.U32]  // [N][2] pages that have tokens which are cached before the step, each once, and how many
	N    u32
}

// Layout is To's.
func (t *PrefillCopy) Layout() KVLayout {
	l := t.KV
	l.Layers, l.Type = 1, KVBF16
	return l
}

// queryScale is what queries of a KV head are to be multiplied by: the scale of its keys.
func (t *PrefillCopy) queryScale(s Step, kvHead u32) f32 { return t.KV.scale(s, kvHead, 0) }

// OutputScale is what outputs of a KV head are to be multiplied by: the scale of its values.
func (t *PrefillCopy) OutputScale(s Step, kvHead u32) f32 { return t.KV.scale(s, kvHead, 1) }

// Emit copies what is cached before the step. The threads of all CTAs' consumer warps share the work, 16 bytes of the
// cache each.
func (t *PrefillCopy) Emit(e *grid.Env, s Step) {
	k, l, to := e.K, t.KV, t.Layout()
	if p := rule.First(rule.Sound(l.problem()), rule.Need(l.e4m3(), "prefill copy: a cache of %s, want %s", l.Type,
		KVE4M3)); p != "" {
		k.Require(false, "%s", p)
		return
	}
	k.Note("cached keys and values of this layer in bf16")
	units := l.TokenUnits()
	k.ForStep(e.CTA.MulC(e.Threads()).Add(e.Tid), t.N.MulC(l.Heads*l.Page*units), e.Grid*e.Threads(), func(i u32) {
		token, unit := i.DivC(units), i.RemC(units).Named("unit")
		slot, row := token.RemC(l.Page).Named("slot"), token.DivC(l.Page)
		head := row.RemC(l.Heads).Named("kv_head")
		kept := t.Kept.LoadN(row.DivC(l.Heads).MulC(2), 2, dsl.CacheHint(dsl.NonCoherent))
		k.If(slot.Lt(kept[1]), func() {
			from := l.rowBase(s.Layer, s.Pages, kept[0], head, slot).Add(dsl.Cast[dsl.U64](l.unit(0, unit, slot)))
			var pairs []u32
			for _, w := range dsl.Split(s.Cache.Load(from)) {
				lo, hi := dsl.Halves(w)
				pairs = append(pairs, dsl.Bits[dsl.U32](exactly(dsl.Bits[dsl.E4M3x2](lo))),
					dsl.Bits[dsl.U32](exactly(dsl.Bits[dsl.E4M3x2](hi))))
			}
			base := to.rowBase(k.U32(0), s.Pages, kept[0], head, slot)
			for half := range 2 {
				p := pairs[4*half:]
				t.To.Store(base.Add(dsl.Cast[dsl.U64](to.unit(0, unit.MulC(2).AddC(half), slot))), dsl.Join(p[0], p[1], p[2], p[3]))
			}
		})
	}, dsl.Unroll(2))
}

// exactly is a pair of e4m3 as bf16.
func exactly(p dsl.Val[dsl.E4M3x2]) pair {
	return dsl.Pack[dsl.BF16x2](dsl.Unpack(dsl.Cast[dsl.F16x2](p)))
}

// copiedStores stores into a cache of e4m3 and the copy. Queries get the scale of the keys that they meet.
type copiedStores struct {
	e4m3Stores
	to *PrefillCopy
}

func (p copiedStores) query(row, i u32, r turned) {
	scale := p.to.queryScale(p.s, row.RemC(p.t.Heads).DivC(p.t.Heads/p.t.KV.Heads))
	r.lo, r.hi = r.lo.Mul(scale), r.hi.Mul(scale)
	p.e4m3Stores.query(row, i, r)
}

func (p copiedStores) key(kvHead, i u32, r turned) { p.both(0, kvHead, i, r.lo, r.hi) }

func (p copiedStores) value(kvHead, i u32, y0, y1 f32) { p.both(1, kvHead, i, y0, y1) }

// both stores the i-th pair of a row of K or V.
func (p copiedStores) both(v int, kvHead, i u32, x0, x1 f32) {
	p.quantised(v, kvHead, i, x0, x1)
	l := p.to.Layout()
	at := l.rowBase(p.e.K.U32(0), p.s.Pages, p.page, kvHead, p.slot).MulC(4)
	dsl.View[dsl.BF16x2](p.to.To).Store(at.Add(dsl.Cast[dsl.U64](l.element(v, i, 4, p.slot))),
		exactly(p.quantise(v, kvHead, x0, x1)))
}
