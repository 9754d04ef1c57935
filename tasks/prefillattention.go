package tasks

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
)

// PrefillAttention is causal attention of consecutive tokens of one sequence over its pages, whose keys and values,
// those of these tokens included, are in the cache. Each warp works alone on tiles of 16 rows, those of a CTA on
// neighbouring ones, whose keys and values are the same: the query heads of a KV head for as many tokens as fit, row r
// being query head r mod Group of token r / Group. It reads keys and values from global memory straight into the
// operands of mma.m16n8k16, whose terms may come in any order:
//
//   - of Q·Kᵀ, lane l holds units l mod 4, 4 + l mod 4, … (16 bytes, 8 dimensions) of a row of Q and of the key of token l / 4; two of a
//     unit's words are the operands of one mma, the others of the next one;
//   - of P·V, lane l holds units l/4, 8 + l/4, … of the values of tokens 2c, 2c+1, 2c+8 and 2c+9, c = l mod 4. Element i of them is a column
//     of the i-th mma, so that column l/4 of it is dimension 8·(l/4) + i.
type PrefillAttention struct {
	Heads int // query heads
	KV    KVLayout
	Q     dsl.Buf[dsl.BF16]  // [T][Heads][D], scaled by log2(e)/√D
	Out   PrefillActivations // K is Heads·D
	To    dsl.Buf[dsl.BF16]
	Blind bool // no query sees the token right before it: a planted fault
}

func (t *PrefillAttention) group() int { return t.Heads / t.KV.Heads }

// tokens is the number of tokens of a tile.
func (t *PrefillAttention) tokens() int { return blockTokens / t.group() }

func (t *PrefillAttention) units() int { return t.KV.D / 8 }

func (t *PrefillAttention) problem() string {
	return firstOf(
		sound(t.KV.problem()),
		need(!t.KV.e4m3(), "prefill attention: a cache of %s, want %s", t.KV.Type, KVBF16),
		need(t.Heads > 0 && t.Heads%t.KV.Heads == 0 && t.group() <= blockTokens, "prefill attention: %d query heads of %d KV heads, want a multiple, at most %d times", t.Heads, t.KV.Heads, blockTokens),
		need(t.Out.K%32 == 0, "prefill attention: an output of %d columns, want a multiple of 32", t.Out.K),
		need(t.Out.K == t.Heads*t.KV.D, "prefill attention: an output of %d columns, want %d", t.Out.K, t.Heads*t.KV.D))
}

// Emit runs in the consumer warps for tokens of a step whose first is at s.Pos. Tokens that pad the step to a multiple
// of padded, which is what the products take at once, get zeros.
func (t *PrefillAttention) Emit(e *Env, s Step, span PrefillSpan, padded int) {
	k := e.K
	if p := t.problem(); p != "" {
		k.Require(false, "%s", p)
		return
	}
	n := span.N
	room := n.AddC(padded - 1).DivC(padded).MulC(padded)
	tiles := room.AddC(t.tokens() - 1).DivC(t.tokens())
	count, from := tiles, k.U32(0)
	if span.Last != nil {
		last := ceilDiv(padded, t.tokens()) // tiles that have the last tokens
		if padded%t.tokens() != 0 {
			last++
		}
		count = dsl.Select(*span.Last, tiles.MinC(last), tiles)
		from = dsl.Select(*span.Last, tiles.MaxC(last).SubC(last), k.U32(0))
	}
	// A CTA takes pieces of a KV head, a tile a warp; those that see most come first, and every second round of the
	// grid goes backwards, so that all CTAs have as much to do.
	groups := count.AddC(e.Consumers - 1).DivC(e.Consumers)
	pieces := groups.MulC(t.KV.Heads)
	k.ForStep(k.U32(0), pieces, e.Grid, func(round u32) {
		at := dsl.Select(round.DivC(e.Grid).AndC(1).EqC(0), e.CTA, k.U32(e.Grid-1).Sub(e.CTA))
		piece := round.Add(at)
		k.If(piece.Lt(pieces), func() {
			group := piece.DivC(t.KV.Heads).Min(groups.SubC(1))
			tile := groups.SubC(1).Sub(group).MulC(e.Consumers).Add(e.Warp)
			k.If(tile.Lt(count), func() {
				w := &prefillTileState{t: t, e: e, s: s, n: n, room: room, kvHead: piece.RemC(t.KV.Heads).Named("kv_head"), token: tile.Add(from).Min(tiles.SubC(1)).MulC(t.tokens()).Named("first_token")}
				w.run()
			})
		})
	}, dsl.Unroll(1))
}

// prefillTileState is a warp's work on one tile.
type prefillTileState struct {
	t             *PrefillAttention
	e             *Env
	s             Step
	n, room       u32
	kvHead, token u32
	limit         u32 // tokens of the sequence that some row sees

	rows    [2]u32 // this lane's rows: which token of the step
	heads   [2]u32 // and which query head
	used    [2]dsl.Pred
	sees    [2]u32 // the position up to which a row sees
	q       [][2]([4]pair)
	most    [2]*dsl.Var[dsl.F32]
	total   [2]*dsl.Var[dsl.F32]
	o       [][8][4]*dsl.Var[dsl.F32]
	blocked bool              // pages hold whole blocks
	next    *dsl.Var[dsl.U32] // with it, the page of the block whose keys are fetched next
	page    *dsl.Var[dsl.U32] // and that of the block whose keys were fetched last
	keys    [2][]fetched      // of the next block, by token and unit
	values  [][4]fetched      // by unit and token
}

// fetched are the words of a unit that are on their way.
type fetched [4]*dsl.Var[dsl.U32]

func newFetched(k *dsl.Kernel, name string) fetched {
	return fetched(dsl.NewArray(k.U32(0), 4, name))
}

func (w *prefillTileState) run() {
	t, e, k := w.t, w.e, w.e.K
	g := e.Lane.DivC(4)
	for half := range 2 {
		r := g.AddC(8 * half)
		w.rows[half] = w.token.Add(r.DivC(t.group()))
		w.heads[half] = w.kvHead.MulC(t.group()).Add(r.RemC(t.group()))
		w.used[half] = r.LtC(t.tokens() * t.group()).And(w.rows[half].Lt(w.n))
		w.sees[half] = w.s.Pos.Add(w.rows[half].Min(w.n.SubC(1)))
		w.most[half], w.total[half] = dsl.NewVar(k.F32(math.Inf(-1)), "most"), dsl.NewVar(k.F32(0), "total")
	}
	for range ceilDiv(t.units(), 8) {
		var o [8][4]*dsl.Var[dsl.F32]
		for i := range o {
			o[i] = [4]*dsl.Var[dsl.F32](dsl.NewArray(k.F32(0), 4, "o"))
		}
		w.o = append(w.o, o)
	}
	w.queries()
	w.limit = w.s.Pos.Add(w.token.AddC(t.tokens()).Min(w.n)).Named("limit")
	w.blocked = t.KV.Page%blockTokens == 0
	w.start()
	k.If(w.token.Lt(w.n), func() {
		w.fetchKeys(k.U32(0))
		w.fetchValues(k.U32(0))
		k.ForStep(k.U32(0), w.limit, blockTokens, func(b u32) { w.block(b) }, dsl.Unroll(1))
	})
	w.store()
}

// queries loads this lane's units of its two rows.
func (w *prefillTileState) queries() {
	t, k := w.t, w.e.K
	q := dsl.View[dsl.BF16x2](t.Q)
	for i := range ceilDiv(t.units(), 4) {
		unit := w.e.Lane.RemC(4).AddC(4 * i)
		var words [2][4]*dsl.Var[dsl.BF16x2]
		for half := range 2 {
			words[half] = [4]*dsl.Var[dsl.BF16x2](dsl.NewArray(dsl.Lit[dsl.BF16x2](k, 0), 4, "q"))
			k.If(w.used[half].And(unit.LtC(t.units())), func() {
				row := w.rows[half].MulC(t.Heads).Add(w.heads[half])
				for j := range 4 { // one by one: words of two rows are neighbours in registers
					words[half][j].Set(q.Load(row.MulC(t.KV.D / 2).Add(unit.MulC(4)).AddC(j)))
				}
			})
		}
		var a [2][4]pair
		for j := range 2 {
			a[j] = [4]pair{words[0][2*j].Get(), words[1][2*j].Get(), words[0][2*j+1].Get(), words[1][2*j+1].Get()}
		}
		w.q = append(w.q, a)
	}
}

// start declares what is fetched ahead.
func (w *prefillTileState) start() {
	k := w.e.K
	for tile := range w.keys {
		for range w.q {
			w.keys[tile] = append(w.keys[tile], newFetched(k, "key"))
		}
	}
	for range w.o {
		var of [4]fetched
		for token := range of {
			of[token] = newFetched(k, "value")
		}
		w.values = append(w.values, of)
	}
	if w.blocked {
		w.next, w.page = dsl.NewVar(w.s.Table.Load(dsl.At(0)), "next_page"), dsl.NewVar(k.U32(0), "page")
	}
}

// fetchKeys fetches the keys of the block at positions from to from+15, and which page the next one has. Tokens beyond
// the last one are the last one.
func (w *prefillTileState) fetchKeys(from u32) {
	if w.blocked {
		w.page.Set(w.next.Get())
		w.next.Set(w.s.Table.Load(from.AddC(blockTokens).Min(w.limit.SubC(1)).DivC(w.t.KV.Page)))
	}
	g, c := w.e.Lane.DivC(4), w.e.Lane.RemC(4)
	for tile, units := range w.keys {
		base, slot := w.tokenRow(from.Add(g).AddC(8 * tile))
		for i, words := range units {
			for j, v := range w.unit(base, slot, 0, c.AddC(4*i)) {
				words[j].Set(v)
			}
		}
	}
}

// fetchValues fetches the values of the block whose keys were fetched last.
func (w *prefillTileState) fetchValues(from u32) {
	g, c := w.e.Lane.DivC(4), w.e.Lane.RemC(4)
	for token := range 4 {
		base, slot := w.tokenRow(from.Add(c.MulC(2)).AddC(8*(token/2) + token%2))
		for i, tokens := range w.values {
			for j, v := range w.unit(base, slot, 1, g.AddC(8*i)) {
				tokens[token][j].Set(v)
			}
		}
	}
}

// tokenRow is the first unit of the token at a position in the cache, and its slot.
func (w *prefillTileState) tokenRow(position u32) (base dsl.Val[dsl.U64], slot u32) {
	l := w.t.KV
	position = position.Min(w.limit.SubC(1))
	slot = position.RemC(l.Page)
	var page u32
	if w.blocked {
		page = w.page.Get()
	} else {
		page = w.s.Table.Load(position.DivC(l.Page))
	}
	return l.rowBase(w.s.Layer, w.s.Pages, page, w.kvHead, slot), slot
}

// unit is the four words of unit u of K (v = 0) or V of a token.
func (w *prefillTileState) unit(base dsl.Val[dsl.U64], slot u32, v int, u u32) []u32 {
	u = u.MinC(w.t.units() - 1)
	return dsl.Split(w.s.Cache.Load(base.Add(dsl.Cast[dsl.U64](w.t.KV.unit(v, u, slot)))))
}

// block adds the tokens at positions from to from+15 to the state, and fetches those of the next block: keys behind the
// products of these, values behind theirs.
func (w *prefillTileState) block(from u32) {
	e, k := w.e, w.e.K
	zero := k.F32(0)
	c := e.Lane.RemC(4)
	var scores [2][4]f32
	for tile := range scores {
		sum := [4]f32{zero, zero, zero, zero}
		for i, words := range w.keys[tile] {
			for j := range 2 {
				b := [2]pair{dsl.Bits[dsl.BF16x2](words[2*j].Get()), dsl.Bits[dsl.BF16x2](words[2*j+1].Get())}
				sum = dsl.MMA(w.q[i][j], b, sum)
			}
		}
		for x := range sum {
			at := from.Add(c.MulC(2)).AddC(8*tile + x&1)
			seen := at.Le(w.sees[x/2])
			if w.t.Blind {
				seen = seen.And(at.AddC(1).Ne(w.sees[x/2]))
			}
			scores[tile][x] = dsl.Select(seen, sum[x], k.F32(math.Inf(-1)))
		}
	}
	next := from.AddC(blockTokens)
	w.fetchKeys(next)
	w.weigh(w.weights(scores))
	w.fetchValues(next)
}

// weights turns scores into weights. What there is is scaled to a new maximum only when that is more than 2⁸ times as
// much: weights of up to 2⁸ are as exact, and most blocks scale nothing.
func (w *prefillTileState) weights(scores [2][4]f32) [4]pair {
	k := w.e.K
	var most [2]f32
	grows := k.U32(0).NeC(0)
	for half := range 2 {
		m := scores[0][2*half].Max(scores[0][2*half+1]).Max(scores[1][2*half]).Max(scores[1][2*half+1])
		for d := 1; d < 4; d *= 2 {
			m = m.Max(dsl.ShflXor(m, d))
		}
		old := w.most[half].Get()
		more := m.Gt(old.Add(k.F32(8)))
		most[half] = dsl.Select(more, m, old).Named("most_now")
		grows = grows.Or(more)
	}
	k.If(dsl.Any(grows), func() {
		for half := range 2 {
			by := dsl.Exp2(w.most[half].Get().Sub(most[half])).Named("by")
			w.most[half].Set(most[half])
			w.total[half].Set(w.total[half].Get().Mul(by))
			for _, o := range w.o {
				for i := range o {
					for x := 2 * half; x < 2*half+2; x++ {
						o[i][x].Set(o[i][x].Get().Mul(by))
					}
				}
			}
		}
	})
	var p [2][4]f32
	for half := range 2 {
		sum := w.total[half].Get()
		for tile := range scores {
			for x := 2 * half; x < 2*half+2; x++ {
				p[tile][x] = dsl.Exp2(scores[tile][x].Sub(most[half]))
				sum = sum.Add(p[tile][x])
			}
		}
		w.total[half].Set(sum)
	}
	packed := func(tile, half int) pair { return dsl.Pack[dsl.BF16x2](p[tile][2*half], p[tile][2*half+1]) }
	return [4]pair{packed(0, 0), packed(0, 1), packed(1, 0), packed(1, 1)}
}

// weigh adds the weighted values of a block's tokens to the output.
func (w *prefillTileState) weigh(p [4]pair) {
	for i, o := range w.o {
		words := &w.values[i]
		for element := range o {
			both := func(token int) pair { // the element of two tokens
				return dsl.Bits[dsl.BF16x2](dsl.Permute(words[token][element/2].Get(), words[token+1][element/2].Get(), []uint16{0x5410, 0x7632}[element%2]))
			}
			var sum [4]f32
			for x := range sum {
				sum[x] = o[element][x].Get()
			}
			for x, v := range dsl.MMA(p, [2]pair{both(0), both(2)}, sum) {
				o[element][x].Set(v)
			}
		}
	}
}

// store writes the rows' outputs: this lane has whole units of them.
func (w *prefillTileState) store() {
	t, e, k := w.t, w.e, w.e.K
	to := dsl.View[dsl.BF16x2](t.To)
	for half := range 2 {
		total := w.total[half].Get()
		for d := 1; d < 4; d *= 2 {
			total = total.Add(dsl.ShflXor(total, d))
		}
		by := dsl.Select(w.used[half], dsl.Rcp(total), k.F32(0)).Named("by")
		r := e.Lane.DivC(4).AddC(8 * half)
		inside := r.LtC(t.tokens() * t.group()).And(w.rows[half].Lt(w.room))
		for i, o := range w.o {
			for odd := range 2 {
				unit := e.Lane.RemC(4).MulC(2).AddC(8*i + odd)
				var out []pair
				for x := 0; x < 8; x += 2 {
					value := func(element int) f32 {
						return dsl.Select(w.used[half], o[element][2*half+odd].Get().Mul(by), k.F32(0))
					}
					out = append(out, dsl.Pack[dsl.BF16x2](value(x), value(x+1)))
				}
				k.If(inside.And(unit.LtC(t.units())), func() {
					to.StoreN(t.Out.At(w.rows[half], w.heads[half].MulC(t.KV.D).Add(unit.MulC(8))).DivC(2), out)
				})
			}
		}
	}
}
