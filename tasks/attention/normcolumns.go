package attention

import (
	"cmp"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

// rawStores keeps q and k before their norm, for Normalise.
type rawStores struct {
	stores
	place
	tokens int
}

func (p rawStores) query(row, i u32, r turned) { p.store(row, i, r) }

func (p rawStores) key(kvHead, i u32, r turned) {
	p.store(p.row.MulC(p.t.KV.Heads).Add(kvHead).AddC(p.tokens*p.t.Heads), i, r)
}

func (p rawStores) store(head, i u32, r turned) {
	bits := dsl.Bits[dsl.U32, dsl.F32]
	p.t.Norm.Raw.Store(head.MulC(p.t.KV.D/2).Add(i), dsl.Join(bits(r.lo), bits(r.hi), bits(r.squares), p.e.K.U32(0)))
}

// RawLen is the length of HeadNorm.Raw for n tokens.
func (t *QKV) RawLen(tokens int) int { return tokens * (t.Heads + t.KV.Heads) * t.KV.D / 2 }

// Normalise finishes q and k behind a sync: a warp takes a head of a token, which it normalises and puts into Q or
// the cache. The warps of all CTAs share the work. It runs in the consumer warps; rows must have been loaded.
func (t *QKVColumns) Normalise(e *grid.Env, s Step, rows *product.ColumnRows) {
	k, all := e.K, t.Heads+t.KV.Heads
	if p := cmp.Or(t.problem(), t.KV.stepProblem(s)); p != "" {
		k.Require(false, "%s", p)
		return
	}
	k.ForStep(e.Warp.MulC(e.Grid).Add(e.CTA), rows.Count.MulC(all), e.Grid*e.Consumers, func(n u32) {
		token, head := n.DivC(all).Named("token"), n.RemC(all).Named("head")
		to := t.cache(place{t: &t.QKV, e: e, s: s, page: rows.Page(token), slot: rows.Slot(token, t.KV.Page).Named("slot")})
		k.IfElse(head.LtC(t.Heads), func() {
			row := token.MulC(t.Heads).Add(head)
			t.normalise(e, row, token.MulC(t.Heads), t.Heads, false, func(i u32, r turned) { to.query(row, i, r) })
		}, func() {
			first, kvHead := token.MulC(t.KV.Heads).AddC(t.T*t.Heads), head.SubC(t.Heads)
			t.normalise(e, first.Add(kvHead), first, t.KV.Heads, t.Norm.KeysAsTheyAre,
				func(i u32, r turned) { to.key(kvHead, i, r) })
		})
	}, dsl.Unroll(1))
}

// normalise calls use in one warp for the pairs of a row of Raw, normalised with the sum of squares of its own pairs,
// or of those of n rows from first on.
func (t *QKV) normalise(e *grid.Env, row, first u32, heads int, asTheyAre bool, use func(i u32, r turned)) {
	k, pairs, norm := e.K, t.KV.D/2, t.Norm
	load := func(at u32) (r turned) {
		v := dsl.Split(norm.Raw.Load(at))
		part := func(i int) f32 { return dsl.Optional(dsl.Bits[dsl.F32](v[i])) }
		return turned{part(0), part(1), part(2)}
	}
	each := func(n int, body func(i u32)) {
		for i := 0; i < n; i += dsl.WarpSize {
			at := e.Lane.AddC(i)
			if i+dsl.WarpSize <= n {
				body(at)
			} else {
				k.If(at.LtC(n), func() { body(at) })
			}
		}
	}
	squares, elements := dsl.NewVar(k.F32(0), "squares"), t.KV.D
	add := func(at u32) { squares.Set(squares.Get().Add(load(at).squares)) }
	if norm.Wide {
		elements = heads * t.KV.D
		k.ForStep(e.Lane, k.U32(heads*pairs), dsl.WarpSize, func(i u32) { add(first.MulC(pairs).Add(i)) }, dsl.Unroll(4))
	} else {
		dsl.Optional(first)
		each(pairs, func(i u32) { add(row.MulC(pairs).Add(i)) })
	}
	scale := norm.scale(e, dsl.WarpSum(squares.Get()), elements).Named("norm")
	if asTheyAre {
		dsl.Optional(scale)
		scale = k.F32(1)
	}
	each(pairs, func(i u32) {
		r := load(row.MulC(pairs).Add(i))
		use(i, turned{lo: r.lo.Mul(scale), hi: r.hi.Mul(scale)})
	})
}
