package tasks

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
)

// PrefillAttention is causal attention of consecutive tokens of one sequence over its pages, whose keys and values, those of these tokens
// included, are in the cache. Each warp works alone on tiles of 16 rows, those of a CTA on neighbouring ones, whose keys and values are the same: the query heads of a KV head for as many tokens as fit, row r being
// query head r mod Group of token r / Group. It reads keys and values from global memory straight into the operands of mma.m16n8k16,
// whose terms may come in any order:
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

// Emit runs in the consumer warps for n tokens, the first at s.Pos. Tokens that pad the step to a multiple of padded get zeros.
func (t *PrefillAttention) Emit(e *Env, s Step, n u32, padded int) {
	k := e.K
	if p := t.problem(); p != "" {
		k.Require(false, "%s", p)
		return
	}
	room := n.AddC(padded - 1).DivC(padded).MulC(padded)
	tiles := room.AddC(t.tokens() - 1).DivC(t.tokens())
	first := e.CTA.MulC(e.Consumers).Add(e.Warp)
	k.ForStep(first, tiles.MulC(t.KV.Heads), e.Grid*e.Consumers, func(u u32) {
		w := &prefillTileState{t: t, e: e, s: s, n: n, room: room, kvHead: u.Div(tiles).Named("kv_head"), token: u.Rem(tiles).MulC(t.tokens()).Named("first_token")}
		w.run()
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
	page    u32 // of a block, where pages hold whole blocks
	blocked bool
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
	k.If(w.token.Lt(w.n), func() {
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
				for j, v := range q.LoadN(row.MulC(t.KV.D/2).Add(unit.MulC(4)), 4) {
					words[half][j].Set(v)
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

// tokenRow is the first unit of the token at a position in the cache, and its slot.
func (w *prefillTileState) tokenRow(position u32) (base dsl.Val[dsl.U64], slot u32) {
	l := w.t.KV
	position = position.Min(w.limit.SubC(1))
	page := w.page
	if !w.blocked {
		page = w.s.Table.Load(position.DivC(l.Page))
	}
	slot = position.RemC(l.Page)
	return l.rowBase(w.s.Layer, w.s.Pages, page, w.kvHead, slot), slot
}

// unit is the four words of unit u of K (v = 0) or V of a token.
func (w *prefillTileState) unit(base dsl.Val[dsl.U64], slot u32, v int, u u32) []u32 {
	u = u.MinC(w.t.units() - 1)
	return dsl.Split(w.s.Cache.Load(base.Add(dsl.Cast[dsl.U64](w.t.KV.unit(v, u, slot)))))
}

// block adds the tokens at positions from to from+15 to the state.
func (w *prefillTileState) block(from u32) {
	t, e, k := w.t, w.e, w.e.K
	if w.blocked {
		w.page = w.s.Table.Load(from.DivC(t.KV.Page)).Named("page")
	}
	zero := k.F32(0)
	g, c := e.Lane.DivC(4), e.Lane.RemC(4)
	var scores [2][4]f32
	for tile := range scores {
		base, slot := w.tokenRow(from.Add(g).AddC(8 * tile))
		sum := [4]f32{zero, zero, zero, zero}
		for i := range w.q {
			words := w.unit(base, slot, 0, c.AddC(4*i))
			for j := range 2 {
				b := [2]pair{dsl.Bits[dsl.BF16x2](words[2*j]), dsl.Bits[dsl.BF16x2](words[2*j+1])}
				sum = dsl.MMA(w.q[i][j], b, sum)
			}
		}
		for x := range sum {
			at := from.Add(c.MulC(2)).AddC(8*tile + x&1)
			scores[tile][x] = dsl.Select(at.Le(w.sees[x/2]), sum[x], k.F32(math.Inf(-1)))
		}
	}
	w.weigh(from, w.weights(scores))
}

// weights turns scores into weights, and scales what there is to the new maximum.
func (w *prefillTileState) weights(scores [2][4]f32) [4]pair {
	var p [2][4]f32
	for half := range 2 {
		most := scores[0][2*half].Max(scores[0][2*half+1]).Max(scores[1][2*half]).Max(scores[1][2*half+1])
		for d := 1; d < 4; d *= 2 {
			most = most.Max(dsl.ShflXor(most, d))
		}
		most = most.Max(w.most[half].Get())
		by := dsl.Exp2(w.most[half].Get().Sub(most)).Named("by")
		sum := w.total[half].Get().Mul(by)
		for tile := range scores {
			for x := 2 * half; x < 2*half+2; x++ {
				p[tile][x] = dsl.Exp2(scores[tile][x].Sub(most))
				sum = sum.Add(p[tile][x])
			}
		}
		w.most[half].Set(most)
		w.total[half].Set(sum)
		for _, o := range w.o {
			for i := range o {
				for x := 2 * half; x < 2*half+2; x++ {
					o[i][x].Set(o[i][x].Get().Mul(by))
				}
			}
		}
	}
	packed := func(tile, half int) pair { return dsl.Pack[dsl.BF16x2](p[tile][2*half], p[tile][2*half+1]) }
	return [4]pair{packed(0, 0), packed(0, 1), packed(1, 0), packed(1, 1)}
}

// weigh adds the weighted values of a block's tokens to the output.
func (w *prefillTileState) weigh(from u32, p [4]pair) {
	g, c := w.e.Lane.DivC(4), w.e.Lane.RemC(4)
	var bases [4]dsl.Val[dsl.U64]
	var slots [4]u32
	for i := range bases {
		bases[i], slots[i] = w.tokenRow(from.Add(c.MulC(2)).AddC(8*(i/2) + i%2))
	}
	for i, o := range w.o {
		var words [4][]u32
		for token := range words {
			words[token] = w.unit(bases[token], slots[token], 1, g.AddC(8*i))
		}
		for element := range o {
			both := func(token int) pair { // the element of two tokens
				return dsl.Bits[dsl.BF16x2](dsl.Permute(words[token][element/2], words[token+1][element/2], []uint16{0x5410, 0x7632}[element%2]))
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
