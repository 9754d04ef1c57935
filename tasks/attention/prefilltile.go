package attention

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/prefill"
)

// Consume runs in the consumer warps for tokens of a step whose first is at s.Pos. Tokens that pad the step to a
// multiple of padded, which is what the products take at once, get zeros.
func (t *PrefillAttention) Consume(e *grid.Env, c *pipeline.TileConsumer, data dsl.Buf[dsl.B128], s Step,
	span prefill.Span, padded int) {
	if p := t.Problem(); p != "" {
		e.K.Require(false, "%s", p)
		return
	}
	p := t.pieces(e, s, span, padded)
	p.each(func(piece prefillPiece) {
		w := &prefillTile{t: t, e: e, p: p, piece: piece, c: c, data: data}
		w.run()
	})
}

// prefillTile is a warp's part of its warpgroup's tile: 16 rows. Scores of a block are the sums of one product and,
// turned into weights and packed, operand A of the next one, whose sums are outputs. While the tensor core adds up the
// values of a block, the scores of the next one become weights.
type prefillTile struct {
	t     *PrefillAttention
	e     *grid.Env
	p     *prefillPieces
	piece prefillPiece
	c     *pipeline.TileConsumer
	data  dsl.Buf[dsl.B128]

	first u32    // token of the step that the warpgroup's tile begins with
	rows  [2]u32 // this lane's rows: which token of the step
	heads [2]u32 // and which query head
	used  [2]dsl.Pred
	sees  [2]u32    // the position up to which a row sees
	query [2]*Query // with a variant that changes scores

	q       [][4]*dsl.Var[dsl.BF16x2]
	scores  []*dsl.Var[dsl.F32]
	weights [][4]*dsl.Var[dsl.BF16x2]
	o       []*dsl.Var[dsl.F32]
	most    [2]*dsl.Var[dsl.F32]
	total   [2]*dsl.Var[dsl.F32] // of this lane's columns
}

func (w *prefillTile) run() {
	t, e, k := w.t, w.e, w.e.K
	group := e.Warp.DivC(dsl.WarpsPerGroup)
	if t.Cluster > 1 {
		group = group.Add(e.CTA.RemC(t.Cluster).MulC(t.Groups))
	}
	w.first = w.piece.token.Add(group.MulC(t.groupTokens())).Named("token")
	for half := range 2 {
		r := e.Warp.RemC(dsl.WarpsPerGroup).MulC(16).Add(e.Lane.DivC(4)).AddC(8 * half)
		w.rows[half] = w.first.Add(r.DivC(t.group()))
		w.heads[half] = w.piece.head.MulC(t.group()).Add(r.RemC(t.group()))
		w.used[half] = r.LtC(t.groupTokens() * t.group()).And(w.rows[half].Lt(w.p.n))
		w.sees[half] = w.p.s.Pos.Add(w.rows[half].Min(w.p.n.SubC(1))).Named("sees")
		w.most[half], w.total[half] = dsl.NewVar(k.F32(t.least()), "most"), dsl.NewVar(k.F32(0), "total")
	}
	w.prepare()
	w.o = dsl.NewArray(k.F32(0), t.KV.D/2, "o")
	w.scores = dsl.NewArray(k.F32(0), t.Block()/2, "score")
	for range t.Block() / 16 {
		w.weights = append(w.weights, [4]*dsl.Var[dsl.BF16x2](dsl.NewArray(dsl.Lit[dsl.BF16x2](k, 0), 4, "weight")))
	}
	if t.QueryBytes() == 0 {
		w.queries()
	}
	k.If(w.p.some(w.piece), w.attend)
	w.store()
}

// least is below every score. With a window a row may see nothing of its first blocks, and of a part nothing at all:
// -inf less -inf would be NaN.
func (t *PrefillAttention) least() float64 {
	if t.Window == nil && t.Split == nil {
		return math.Inf(-1)
	}
	return -1e30
}

// queries loads this lane's pairs of its two rows as operand A.
func (w *prefillTile) queries() {
	t, k := w.t, w.e.K
	q := dsl.View[dsl.BF16x2](t.Q)
	for i := range t.KV.D / 16 {
		words := [4]*dsl.Var[dsl.BF16x2](dsl.NewArray(dsl.Lit[dsl.BF16x2](k, 0), 4, "q"))
		w.q = append(w.q, words)
		for half := range 2 {
			k.If(w.used[half], func() {
				row := w.p.queryRow(w.rows[half]).MulC(t.Heads).Add(w.heads[half]).MulC(t.KV.D / 2)
				for x := range 2 {
					words[half+2*x].Set(q.Load(row.Add(w.e.Lane.RemC(4)).AddC(8*i + 4*x)))
				}
			})
		}
	}
}

// attend goes through the blocks of tokens.
func (w *prefillTile) attend() {
	t, k, c := w.t, w.e.K, w.c
	if t.QueryBytes() > 0 {
		w.stageQueries()
	}
	keys := c.Next("waits for keys in stage %d")
	first := k.U32(0)
	if t.Window != nil || t.Split != nil {
		first = w.piece.begin.MulC(t.Block()).Named("first_seen")
	}
	begin := w.p.at(w.piece, first, t.Block())
	c.Fence()
	w.clear(0, keys, begin)
	w.begin()
	k.WGMMAFence()
	w.multiplyKeys(keys)
	k.WGMMACommit()
	k.WGMMAWait(0)
	c.Release(keys)
	w.weigh(begin)
	w.pack()
	last := w.piece.blocks.SubC(1).MulC(t.Block()).Named("last_block")
	k.ForStep(first.AddC(t.Block()), last.AddC(1), t.Block(), func(i u32) {
		from := w.p.at(w.piece, i, t.Block())
		keys := c.Next("waits for keys in stage %d")
		// Gathered stages of both come before the first product, for one fence of both.
		early := !t.whole()
		var values pipeline.TileStage
		if early {
			values = c.Next("waits for values in stage %d")
			c.Fence()
		}
		w.clear(0, keys, from)
		w.begin()
		c.Turn.Take()
		k.WGMMAFence()
		w.multiplyKeys(keys)
		k.WGMMACommit()
		if !early {
			values = c.Next("waits for values in stage %d")
		}
		k.WGMMAFence()
		w.multiplyValues(values)
		k.WGMMACommit()
		c.Turn.Pass()
		k.WGMMAWait(1)
		c.Release(keys)
		grows, by := w.weigh(from)
		// ptxas puts a wait to the front of what is between branches. So the exponentials stay in front of it, where there
		// are registers for that.
		beside := t.QueryBytes() == 0
		if !beside {
			k.WGMMAWait(0)
			c.Release(values)
		}
		if !t.sums() && !t.bounded() {
			k.If(dsl.Any(grows[0].Or(grows[1])), func() {
				if beside {
					k.WGMMAWait(0)
				}
				for i, o := range w.o {
					o.Set(o.Get().Mul(by[i/2%2]))
				}
			})
		}
		if beside {
			k.WGMMAWait(0)
			c.Release(values)
		}
		w.pack()
	}, dsl.Unroll(1))
	values := c.Next("waits for values in stage %d")
	c.Fence()
	w.clear(1, values, last)
	k.WGMMAFence()
	w.multiplyValues(values)
	k.WGMMACommit()
	k.WGMMAWait(0)
	c.Release(values)
}

// clear sets those keys (v = 0) or values of the block at positions from … to 0 that nobody has written: 0 times what
// uninitialised memory may hold must not become NaN.
func (w *prefillTile) clear(v int, s pipeline.TileStage, from u32) {
	t, e, k := w.t, w.e, w.e.K
	_, panels := t.panels(v)
	zero := k.U32(0)
	k.If(from.AddC(t.Block()).Gt(w.p.end), func() {
		k.ForStep(e.Tid, k.U32(panels*t.panelBytes()/16), e.Threads(), func(i u32) {
			token := from.Add(i.DivC(t.rowUnits()).RemC(t.Block()))
			k.If(token.Ge(w.p.end), func() { w.data.Store(s.Base().Add(i), dsl.Join(zero, zero, zero, zero)) })
		}, dsl.Unroll(1))
		k.FenceProxyAsyncShared()
		e.Sync()
	})
}

// tile is how keys lie in a stage; values beside it have their panels Across.
func (w *prefillTile) tile() dsl.Tile {
	row := 16 * w.t.rowUnits()
	return dsl.Tile{Swizzle: row, Stride: 8 * row}
}

// multiplyKeys sets the scores to the products of queries and keys.
func (w *prefillTile) multiplyKeys(s pipeline.TileStage) {
	t := w.t
	row := 16 * t.rowUnits()
	if t.QueryBytes() > 0 {
		a := dsl.Tile{Swizzle: queryLine, Stride: 8 * queryLine}
		for i := range t.KV.D / 16 {
			at := 32*i/row*t.panelBytes() + 32*i%row
			from := w.ownQueries().AddC((32*i/queryLine*prefill.GroupRows*queryLine + 32*i%queryLine) / 16)
			dsl.WGMMA[dsl.BF16x2](w.scores, t.Queries, from, a, w.data, s.Base().AddC(at/16), w.tile())
		}
		return
	}
	for i, q := range w.q {
		at := 32*i/row*t.panelBytes() + 32*i%row
		var o []dsl.WGMMAOpt
		if i == 0 {
			o = append(o, dsl.Overwrite)
		}
		dsl.WGMMARegisters(w.scores, q, w.data, s.Base().AddC(at/16), w.tile(), o...)
	}
}

// multiplyValues adds the weighted values of a block to the outputs. Columns that begin in the middle of a panel are a
// product of their own.
func (w *prefillTile) multiplyValues(s pipeline.TileStage) {
	t, tile := w.t, w.tile()
	tile.Across = t.panelBytes()
	row, d := tile.Swizzle, t.KV.D
	lead := (row - 2*d%row) % row / 2 // columns to the end of the first panel, where values do not begin with it
	for i, p := range w.weights {
		at := 16 * i * row
		if lead > 0 {
			n := min(lead, d)
			dsl.WGMMARegisters(w.o[:n/2], p, w.data, s.Base().AddC((at+2*d%row)/16), tile)
			at += t.panelBytes()
		}
		if lead < d {
			dsl.WGMMARegisters(w.o[lead/2:], p, w.data, s.Base().AddC(at/16), tile)
		}
	}
}

// weigh turns the scores of the block at positions from … into weights. What there is is scaled to a new maximum only
// when that is more than 2⁸ times as much: weights of up to 2⁸ are as exact, and most blocks scale nothing. It
// reports whether this lane's rows are, and by how much their outputs are to be scaled.
func (w *prefillTile) weigh(from u32) (grows [2]dsl.Pred, by [2]f32) {
	k := w.e.K
	more := w.change(from)
	var hide dsl.Pred
	if w.t.Blind {
		hide = from.GeC(0)
	} else {
		hide = from.AddC(w.t.Block() - 1).Gt(w.p.s.Pos.Add(w.piece.token)) // tokens that a row may not see
	}
	if w.t.Window != nil && !w.t.Blind {
		hide = hide.Or(from.Add(w.p.window).Lt(w.piece.sees))
	}
	if w.t.bounded() {
		w.weighBounded(hide, from)
		return grows, by
	}
	k.If(hide, func() { w.hide(from) })
	if w.t.sums() {
		return grows, by
	}
	for half := range 2 {
		m := w.fold(half, func(_ *dsl.Var[dsl.F32], x f32) f32 { return x }, f32.Max)
		if more[half] != nil {
			m = m.Add(*more[half])
		}
		for d := 1; d < 4; d *= 2 {
			m = m.Max(dsl.ShflXor(m, d))
		}
		old := w.most[half].Get()
		grows[half] = m.Gt(old.Add(k.F32(8)))
		now := dsl.Select(grows[half], m, old).Named("most_now")
		by[half] = dsl.Exp2(old.Sub(now)).Named("by")
		w.most[half].Set(now)
		if more[half] != nil {
			now = now.Sub(*more[half])
		}
		sum := w.fold(half, func(x *dsl.Var[dsl.F32], s f32) f32 {
			x.Set(dsl.Exp2(s.Sub(now)))
			return x.Get()
		}, f32.Add)
		w.total[half].Set(dsl.FMA(w.total[half].Get(), by[half], sum))
	}
	return grows, by
}

// fold combines what each makes of a row's scores, four at a time.
func (w *prefillTile) fold(half int, each func(x *dsl.Var[dsl.F32], score f32) f32, combine func(a, b f32) f32) f32 {
	var parts [4]f32
	for i := 0; i < len(w.scores); i += 4 {
		for x := range 2 {
			s := w.scores[i+2*half+x]
			v := each(s, s.Get())
			if at := i/4%2*2 + x; i < 8 {
				parts[at] = v
			} else {
				parts[at] = combine(parts[at], v)
			}
		}
	}
	return combine(combine(parts[0], parts[1]), combine(parts[2], parts[3]))
}

// hide makes scores of tokens that a row does not see -inf, or where they are weights already 0.
func (w *prefillTile) hide(from u32) {
	k, hidden := w.e.K, math.Inf(-1)
	if w.t.sums() || w.t.bounded() {
		hidden = 0
	}
	for half := range 2 {
		// Of this lane's columns, the one of the last token that the row sees; behind or before them all where it is
		// not there.
		last := dsl.Bits[dsl.I32](w.sees[half].Sub(from).Sub(w.e.Lane.RemC(4).MulC(2))).Named("last_seen")
		var first, sinks dsl.Val[dsl.I32]
		if w.t.Window != nil {
			first = last.Sub(dsl.Bits[dsl.I32](w.p.window)).Named("before_seen")
		}
		if w.t.Sinks != nil {
			sinks = dsl.Bits[dsl.I32](w.p.sinks.Sub(from).Sub(w.e.Lane.RemC(4).MulC(2))).Named("sinks_seen")
		}
		for i := 2 * half; i < len(w.scores); i += 4 {
			for x := range 2 {
				seen := last.GeC(2*i - 4*half + x)
				switch {
				case w.t.Sinks != nil:
					seen = seen.And(first.LtC(2*i - 4*half + x).Or(sinks.GeC(2*i - 4*half + x + 1)))
				case w.t.Window != nil:
					seen = seen.And(first.LtC(2*i - 4*half + x))
				}
				if w.t.Blind {
					seen = seen.And(last.NeC(2*i - 4*half + x + 1))
				}
				s := w.scores[i+x]
				s.Set(dsl.Select(seen, s.Get(), k.F32(hidden)))
			}
		}
	}
}

// pack makes operand A of the weights.
func (w *prefillTile) pack() {
	for i, p := range w.weights {
		for x := range p {
			p[x].Set(dsl.Pack[dsl.BF16x2](w.scores[8*i+2*x].Get(), w.scores[8*i+2*x+1].Get()))
		}
	}
}

// store writes the rows' outputs, or what a part contributes to them.
func (w *prefillTile) store() {
	t, e, k := w.t, w.e, w.e.K
	to := dsl.View[dsl.BF16x2](t.To)
	for half := range 2 {
		total := w.total[half].Get()
		if !t.sums() {
			for d := 1; d < 4; d *= 2 {
				total = total.Add(dsl.ShflXor(total, d))
			}
		}
		r := e.Warp.RemC(dsl.WarpsPerGroup).MulC(16).Add(e.Lane.DivC(4)).AddC(8 * half)
		column := func(i int) u32 { return e.Lane.RemC(4).MulC(2).AddC(2*i - 4*half) }
		outputs := func() {
			by := k.F32(1)
			if !t.sums() {
				by = dsl.Select(w.used[half], dsl.Rcp(total), k.F32(0)).Named("by")
			}
			if t.OutputScale != nil {
				by = by.Mul(t.OutputScale(w.p.s, w.piece.head))
			}
			value := func(x *dsl.Var[dsl.F32]) f32 { return dsl.Select(w.used[half], x.Get().Mul(by), k.F32(0)) }
			for i := 2 * half; i < len(w.o); i += 4 {
				at := t.Out.At(w.p.queryRow(w.rows[half]), w.heads[half].MulC(t.KV.D).Add(column(i)))
				to.Store(at.DivC(2), dsl.Pack[dsl.BF16x2](value(w.o[i]), value(w.o[i+1])))
			}
		}
		if t.Split != nil {
			whole := outputs
			outputs = func() { w.storePart(half, total, column, whole) }
		}
		k.If(r.LtC(t.groupTokens()*t.group()).And(w.p.has(w.rows[half])), outputs)
	}
}
