package attention

import (
	"cmp"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
	"github.com/mkgen/mkgen/tasks/prefill"
	"github.com/mkgen/mkgen/tasks/product"
)

// PrefillQKV is QKV of consecutive tokens of one sequence, the first at position Step.Pos, or of tokens that Place
// finds. Q is [T][Heads][D].
type PrefillQKV struct {
	QKV
	// Place is the position of a step's token and the page it lies on; nil for tokens of one sequence.
	Place func(token u32) (pos, page u32)

	Input *prefill.Norm // of the product's input

	// ByHead normalises every head of q and k by itself; nil for none. Tiles then have whole heads, so that the four lanes
	// that share a token know a head's sum of squares. QKV.Norm is nil beside it.
	ByHead *HeadNorm
}

func (t *PrefillQKV) problem(columns int) string {
	return rule.First(
		rule.Sound(t.QKV.problem()),
		rule.Need(t.ByHead == nil || t.Norm == nil, "qkv: two norms of q and k, want one"),
		rule.Need(t.ByHead == nil || columns%t.KV.D == 0, "qkv: tiles of %d rows, want whole heads of %d", columns, t.KV.D))
}

// Epilogue finishes the rows of the n tokens of a step, and leaves those out that pad them.
func (t *PrefillQKV) Epilogue(e *grid.Env, s Step, n u32) prefill.Epilogue {
	k := e.K
	return func(p *prefill.Part) {
		if problem := cmp.Or(t.problem(p.GEMM.Columns), t.KV.stepProblem(s)); problem != "" {
			k.Require(false, "%s", problem)
			return
		}
		var scale [2]f32
		var at [2]u32
		var st [2]stores
		for half, token := range p.Tokens {
			scale[half] = t.Input.Of(e, token)
			var page u32
			at[half], page = t.place(s, token.Min(n.SubC(1)))
			st[half] = t.stores(place{t: &t.QKV, e: e, s: s, page: page, slot: at[half].RemC(t.KV.Page).Named("slot"),
				row: token, pos: dsl.Optional(at[half])})
		}
		finish := func(v prefill.Pair, of *QKV, y0, y1 f32) {
			token := p.Tokens[v.Half]
			k.If(token.Lt(n), func() {
				of.finish(e, s, v.Row, y0, y1, at[v.Half], st[v.Half], func(head u32) u32 { return token.MulC(t.Heads).Add(head) })
			})
		}
		if t.ByHead == nil {
			p.Each(func(v prefill.Pair) { finish(v, &t.QKV, v.Y0.Mul(scale[v.Half]), v.Y1.Mul(scale[v.Half])) })
			return
		}
		own := t.QKV
		own.Bias = nil // is added before the norm
		normed := t.normed(e, s, p, scale)
		p.Each(func(v prefill.Pair) {
			y0, y1 := normed(v)
			finish(v, &own, y0, y1)
		})
	}
}

// place is the position and the page of a token of the step.
func (t *PrefillQKV) place(s Step, token u32) (pos, page u32) {
	if t.Place != nil {
		return t.Place(token)
	}
	pos = s.Pos.Add(token)
	return pos, s.Table.Load(pos.DivC(t.KV.Page)).Named("page")
}

// normed is the projection of a pair of rows, its head normalised where it is one of q or of k.
func (t *PrefillQKV) normed(e *grid.Env, s Step, p *prefill.Part, scale [2]f32) func(v prefill.Pair) (y0, y1 f32) {
	k, norm, rows := e.K, t.ByHead, (t.Heads+t.KV.Heads)*t.KV.D
	var bias product.Rows
	if t.Bias != nil {
		bias = t.Bias(s)
	}
	projected := func(v prefill.Pair) (y0, y1 f32) {
		return product.WithBias(e, bias, 1, v.Row, v.Y0.Mul(scale[v.Half]), v.Y1.Mul(scale[v.Half]))
	}
	squares := dsl.NewArray(k.F32(0), 2*p.GEMM.Columns/t.KV.D, "squares")
	of := func(v prefill.Pair) int { return 2*(v.Column/t.KV.D) + v.Half }
	p.Each(func(v prefill.Pair) {
		y0, y1 := projected(v)
		sum := squares[of(v)]
		sum.Set(dsl.FMA(y1, y1, dsl.FMA(y0, y0, sum.Get())))
	})
	for i, sum := range squares {
		total := sum.Get()
		for d := 1; d < 4; d *= 2 {
			total = total.Add(dsl.ShflXor(total, d))
		}
		row := p.Tile.MulC(p.GEMM.Columns).AddC(i / 2 * t.KV.D) // the head's first
		by := norm.scale(e, total, t.KV.D)
		if norm.KeysAsTheyAre {
			by = dsl.Select(row.LtC(t.Heads*t.KV.D), by, k.F32(1))
		}
		sum.Set(dsl.Select(row.LtC(rows), by, k.F32(1)))
	}
	return func(v prefill.Pair) (y0, y1 f32) {
		y0, y1 = projected(v)
		g, is := norm.gains(k, s, v.Row.MinC(rows-2)), v.Row.LtC(rows)
		by := squares[of(v)].Get()
		return y0.Mul(by).Mul(dsl.Select(is, g[0], k.F32(1))), y1.Mul(by).Mul(dsl.Select(is, g[1], k.F32(1)))
	}
}

// Normalise finishes q and k of the n tokens of a step behind a sync, where all heads are normalised together: a warp
// takes a head of a token, and the warps of all CTAs share the work.
func (t *PrefillQKV) Normalise(e *grid.Env, s Step, n u32) {
	k, all := e.K, t.Heads+t.KV.Heads
	if problem := cmp.Or(t.QKV.problem(), t.KV.stepProblem(s)); problem != "" {
		k.Require(false, "%s", problem)
		return
	}
	keys := int(t.Norm.Raw.Len()) / t.RawLen(1) * t.Heads // rows of queries before those of keys
	k.ForStep(e.Warp.MulC(e.Grid).Add(e.CTA), n.MulC(all), e.Grid*e.Consumers, func(i u32) {
		token, head := i.DivC(all).Named("token"), i.RemC(all).Named("head")
		at, page := t.place(s, token)
		to := t.cache(place{t: &t.QKV, e: e, s: s, page: page, slot: at.RemC(t.KV.Page).Named("slot"), pos: dsl.Optional(at)})
		k.IfElse(head.LtC(t.Heads), func() {
			row := token.MulC(t.Heads).Add(head)
			t.normalise(e, row, token.MulC(t.Heads), t.Heads, false, func(i u32, r turned) { to.query(row, i, r) })
		}, func() {
			first, kvHead := token.MulC(t.KV.Heads).AddC(keys), head.SubC(t.Heads)
			t.normalise(e, first.Add(kvHead), first, t.KV.Heads, t.Norm.KeysAsTheyAre, func(i u32,
				r turned) {
				to.key(kvHead, i, r)
			})
		})
	}, dsl.Unroll(1))
}
