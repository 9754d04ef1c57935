package tasks

import (
	"cmp"
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// Attention is decode attention of one query token over a paged KV cache, split
// along the tokens: item (head h, split s) is the group of query heads of KV
// head h over the s-th part of the cache, and leaves a partial state, the
// normalised output and its log-sum-exp (base 2), for Merge.
//
// Cached tokens come through the ring, 16 a block, each block worked on by one
// consumer warp with its own running softmax (Milakov and Gimelshein 2018); the
// query's own token, written in this step, is read from global memory after the
// hand-off, by the last warp of the last split.
type Attention struct {
	Heads    int // query heads, a multiple of KV.Heads
	KV       KVLayout
	Splits   int // parts of the cache, at least 1
	PerStage int // tokens a stage, a power of two and a multiple of 16

	Q   dsl.Buf[dsl.BF16] // [Heads][D], scaled by log2(e)/√D and the scale of keys, in the order of KVLayout.KeyOrder
	Out dsl.Buf[dsl.F32]  // [Splits][Heads][D]
	LSE dsl.Buf[dsl.F32]  // [Splits][Heads]; −inf for an empty part

	Scratch dsl.Buf[dsl.F32]  // shared memory, ScratchLen
	Tail    dsl.Buf[dsl.B128] // shared memory, KV.TokenUnits: the query's own K and V
}

// blockTokens is the number of tokens of one block: k of the second product.
const blockTokens = 16

// Group is the number of query heads a KV head serves.
func (t *Attention) Group() int { return t.Heads / t.KV.Heads }

// Parts is the number of items a group is worked on in, at most 16 query heads
// each (the rows of A); every part reads the group's KV for itself.
func (t *Attention) Parts() int { return ceilDiv(t.Group(), blockTokens) }

// part is the number of query heads of an item; the last of a group may have fewer.
func (t *Attention) part() int { return ceilDiv(t.Group(), t.Parts()) }

// Items is the number of items the CTAs share.
func (t *Attention) Items() int { return t.KV.Heads * t.Parts() * t.Splits }

// ScratchLen is the length of Scratch in f32 for a number of consumer warps:
// each warp's output, maximum and sum for every query head of an item.
func (t *Attention) ScratchLen(consumers int) int { return consumers * t.part() * (t.KV.D + 2) }

// problem says what the template cannot do, or nothing.
func (t *Attention) problem(e *Env, r *pipeline.Ring) string {
	l := t.KV
	if p := l.problem(); p != "" {
		return p
	}
	bytes := t.PerStage * l.TokenBytes()
	return firstOf(
		need(t.Heads > 0 && t.Heads%l.Heads == 0, "attention: %d query heads are no multiple of %d KV heads", t.Heads, l.Heads),
		need(t.Splits >= 1, "attention: %d splits, want at least 1", t.Splits),
		need(t.PerStage >= blockTokens && t.PerStage&(t.PerStage-1) == 0,
			"attention: a stage holds %d tokens, want a power of two of at least %d", t.PerStage, blockTokens),
		need(bytes <= r.StageBytes(), "attention: %d tokens of %d bytes are %d bytes, a stage has %d", t.PerStage, l.TokenBytes(), bytes, r.StageBytes()),
		need(int(t.Scratch.Len()) >= t.ScratchLen(e.Consumers), "attention: Scratch has %d elements, want %d for %d consumer warps", t.Scratch.Len(), t.ScratchLen(e.Consumers), e.Consumers),
		need(int(t.Tail.Len()) >= l.TokenUnits(), "attention: Tail has %d elements, want %d", t.Tail.Len(), l.TokenUnits()))
}

// eachItem calls body for this CTA's items with the item's head and split and
// the chunks first … end−1 of the cache that belong to it.
func (t *Attention) eachItem(e *Env, s Step, body func(it item, first, end u32)) {
	k, parts := e.K, t.Parts()
	chunks := s.Cached.AddC(t.PerStage - 1).DivC(t.PerStage)
	k.ForStep(e.CTA, k.U32(t.Items()), e.Grid, func(i u32) {
		head, rest := i.RemC(t.KV.Heads).Named("kv_head"), i.DivC(t.KV.Heads)
		split := rest.DivC(parts).Named("split")
		it := item{kvHead: head, split: split, part: func() u32 { return rest.RemC(parts) }}
		first, end := split.Mul(chunks).DivC(t.Splits), split.AddC(1).Mul(chunks).DivC(t.Splits)
		body(it, first.Named("first"), end.Named("end"))
	})
}

// item is one piece of attention: some query heads of a group over one split.
type item struct {
	kvHead, split u32
	part          func() u32 // which of the group's parts
}

// queries are an item's first query head, and how many: part, or fewer at the
// end of a group.
func (t *Attention) queries(e *Env, it item) (first, n u32) {
	k := e.K
	before := it.part().MulC(t.part())
	first, n = it.kvHead.MulC(t.Group()).Add(before), k.U32(t.part())
	if t.Group()%t.part() != 0 {
		n = k.U32(t.Group()).Sub(before).MinC(t.part())
	}
	return first, n
}

// Produce streams the cached tokens of this CTA's items. A chunk is PerStage
// tokens, copied page by page, a lane a page.
func (t *Attention) Produce(e *Env, p *pipeline.Producer, s Step) {
	k, l := e.K, t.KV
	if t.problem(e, p.Ring()) != "" {
		return // Consume reports it
	}
	run := min(l.Page, t.PerStage) // tokens of one copy at most
	t.eachItem(e, s, func(it item, first, end u32) {
		k.For(first, end, func(c u32) {
			from := c.MulC(t.PerStage).Named("from")
			n := s.Cached.Sub(from).MinC(t.PerStage).Named("tokens")
			p.Fill(n.MulC(l.TokenBytes()), func(base u32) {
				for f := 0; f*run < t.PerStage; f += dsl.WarpSize {
					at := e.Lane.AddC(f).MulC(run).Named("at")
					k.If(at.Lt(n), func() {
						tok := from.Add(at)
						page := s.Table.Load(tok.DivC(l.Page)).Named("page")
						src := l.rowBase(s.Layer, s.Pages, page, it.kvHead, tok.RemC(l.Page))
						p.Copy(base.Add(at.MulC(l.TokenUnits())), s.Cache, src, n.Sub(at).MinC(run).MulC(l.TokenBytes()))
					})
				}
			})
		}, dsl.Unroll(1))
	})
}

// Consume computes this CTA's partial states.
func (t *Attention) Consume(e *Env, c *pipeline.Consumer, r *pipeline.Ring, s Step) {
	k, l := e.K, t.KV
	if p := cmp.Or(t.problem(e, r), l.stepProblem(s)); p != "" {
		k.Require(false, "%s", p)
		return
	}
	blocks := t.PerStage / blockTokens
	t.eachItem(e, s, func(it item, first, end u32) {
		st := newState(t, e, it)
		own := e.Warp.EqC(e.Consumers - 1).And(it.split.EqC(t.Splits - 1))
		k.If(own, func() {
			t.fetchTail(e, s, it.kvHead)
			st.block(t.Tail, k.U32(0), s.Pos.RemC(l.Page), k.U32(1))
		})
		k.For(first, end, func(chunk u32) {
			from := chunk.MulC(t.PerStage).Named("from")
			n := s.Cached.Sub(from).MinC(t.PerStage).Named("tokens")
			c.Drain(func(base u32) {
				mine := e.Warp.AddC(e.Consumers).Sub(chunk.MulC(blocks).RemC(e.Consumers)).RemC(e.Consumers)
				k.ForStep(mine, k.U32(blocks), e.Consumers, func(b u32) {
					tok := b.MulC(blockTokens)
					k.If(tok.Lt(n), func() {
						st.block(r.Data, base.Add(tok.MulC(l.TokenUnits())), from.Add(tok), n.Sub(tok).MinC(blockTokens))
					})
				}, dsl.Unroll(1))
			})
		}, dsl.Unroll(1))
		st.combine(s, it)
	})
}

// fetchTail copies the query's own K and V from the cache to Tail, in one warp.
func (t *Attention) fetchTail(e *Env, s Step, head u32) {
	k, l := e.K, t.KV
	page := s.Table.Load(s.Pos.DivC(l.Page)).Named("page")
	row := l.rowBase(s.Layer, s.Pages, page, head, s.Pos.RemC(l.Page))
	for u := 0; u < l.TokenUnits(); u += dsl.WarpSize {
		i := e.Lane.AddC(u)
		copyUnit := func() { t.Tail.Store(i, s.Cache.Load(row.Add(dsl.Cast[dsl.U64](i)))) }
		if u+dsl.WarpSize <= l.TokenUnits() {
			copyUnit()
		} else {
			k.If(i.LtC(l.TokenUnits()), copyUnit)
		}
	}
	k.SyncWarp()
}

// state is one warp's running softmax for a group of query heads, in the
// fragments of m16n8k16: lane l holds rows l/4 and l/4+8 (query heads of the
// group), of which the second are unused for groups up to 8.
type state struct {
	t *Attention
	e *Env

	query, heads u32 // first query head, and how many

	rows int                   // 1 or 2 rows a lane in use
	q    [][4]pair             // A fragments of the queries, one each 16 dimensions
	o    [][]*dsl.Var[dsl.F32] // C fragments of the output, one each 8 dimensions
	m, l []*dsl.Var[dsl.F32]   // per row: maximum, this lane's part of the sum
}

func newState(t *Attention, e *Env, it item) *state {
	k := e.K
	st := &state{t: t, e: e, rows: ceilDiv(t.part(), 8)}
	st.query, st.heads = t.queries(e, it)
	q := dsl.View[dsl.BF16x2](t.Q)
	zero := dsl.Lit[dsl.BF16x2](k, 0)
	g := e.Lane.DivC(4)
	load := func(row u32, dim, x int) pair {
		valid := row.Lt(st.heads)
		at := st.query.Add(row.Min(st.heads.SubC(1))).MulC(t.KV.D / 2).Add(t.KV.queryPair(e.Lane.RemC(4), dim/16, x))
		return t.KV.operand(dsl.Select(valid, q.Load(at), zero))
	}
	for d := 0; d < t.KV.D; d += 16 {
		a := [4]pair{load(g, d, 0), zero, load(g, d, 1), zero}
		if st.rows == 2 {
			a[1], a[3] = load(g.AddC(8), d, 0), load(g.AddC(8), d, 1)
		}
		st.q = append(st.q, a)
	}
	for range t.KV.D / 8 {
		st.o = append(st.o, dsl.NewArray(k.F32(0), 2*st.rows, "o"))
	}
	st.m = dsl.NewArray(k.F32(math.Inf(-1)), st.rows, "m")
	st.l = dsl.NewArray(k.F32(0), st.rows, "l")
	return st
}

// block adds the first n (1 to 16) of 16 tokens that lie in buf from 16-byte
// element base on, a token each TokenUnits; slot is the first token's position
// (modulo the page size at least), which fixes the permutation of its units.
func (st *state) block(buf dsl.Buf[dsl.B128], base, slot, n u32) {
	e, t := st.e, st.t
	k := e.K
	s := st.scores(buf, base, slot, n)
	col := e.Lane.RemC(4).MulC(2)
	p := make([][4]f32, 2)
	for h := range st.rows {
		top := st.m[h].Get()
		for nt := range 2 {
			for j := range 2 {
				valid := col.AddC(8*nt + j).Lt(n)
				s[nt][2*h+j] = dsl.Select(valid, s[nt][2*h+j], k.F32(math.Inf(-1)))
				top = top.Max(s[nt][2*h+j])
			}
		}
		top = dsl.Butterfly(top, 4, f32.Max)
		decay := dsl.Exp2(st.m[h].Get().Sub(top)).Named("decay")
		sum := st.l[h].Get().Mul(decay)
		base2 := top
		if shift := t.KV.shift(); shift != 0 {
			base2 = top.Sub(k.F32(shift))
		}
		for nt := range 2 {
			for j := range 2 {
				p[nt][2*h+j] = dsl.Exp2(s[nt][2*h+j].Sub(base2))
				sum = sum.Add(p[nt][2*h+j])
			}
		}
		for _, o := range st.o {
			o[2*h].Set(o[2*h].Get().Mul(decay))
			o[2*h+1].Set(o[2*h+1].Get().Mul(decay))
		}
		st.m[h].Set(top)
		st.l[h].Set(sum)
	}
	st.weigh(buf, base, slot, n, st.weights(p))
}

// weights packs the probabilities as the A fragment of the second product: its
// columns are the tokens, so the C fragment of the first is it already.
func (st *state) weights(p [][4]f32) [4]pair {
	zero := dsl.Lit[dsl.BF16x2](st.e.K, 0)
	a := [4]pair{zero, zero, zero, zero}
	for nt := range 2 {
		for h := range st.rows {
			a[2*nt+h] = st.t.KV.pack(p[nt][2*h], p[nt][2*h+1])
		}
	}
	return a
}

// row is the 16-byte element of token tok's row, and its permutation. Tokens
// from n on are replaced by the last valid one: their weight is 0, and 0 times
// what uninitialised memory may hold must not become NaN.
func (st *state) row(base, slot, n, tok u32) (row, key u32) {
	tok = tok.Min(n.SubC(1))
	return base.Add(tok.MulC(st.t.KV.TokenUnits())), dsl.Optional(slot.Add(tok))
}

// scores is Q·Kᵀ: the C fragments of tokens 0–7 and 8–15.
func (st *state) scores(buf dsl.Buf[dsl.B128], base, slot, n u32) [2][4]f32 {
	e, l := st.e, st.t.KV
	zero := e.K.F32(0)
	s := [2][4]f32{{zero, zero, zero, zero}, {zero, zero, zero, zero}}
	row, tok := st.row(base, slot, n, e.Lane.RemC(8).Add(e.Lane.DivC(16).MulC(8)))
	for i := 0; i < len(st.q); i += l.keySlices() {
		for j, b := range l.keyFragments(e, buf, row, tok, i) {
			s[0] = l.product(st.q[i+j], b[0], s[0])
			s[1] = l.product(st.q[i+j], b[1], s[1])
		}
	}
	return s
}

// weigh adds P·V to the output.
func (st *state) weigh(buf dsl.Buf[dsl.B128], base, slot, n u32, p [4]pair) {
	e, l := st.e, st.t.KV
	row, tok := st.row(base, slot, n, e.Lane.RemC(8).Add(e.Lane.DivC(8).AndC(1).MulC(8)))
	left := st.o
	for u := 0; u < l.keyUnits(); u += 2 {
		for _, b := range l.valueFragments(e, buf, row, tok, u) {
			o, zero := left[0], e.K.F32(0)
			left = left[1:]
			c := [4]f32{zero, zero, zero, zero} // rows not in use stay 0
			for x := range o {
				c[x] = o[x].Get()
			}
			d := l.product(p, b, c)
			for x := range o {
				o[x].Set(d[x])
			}
		}
	}
}

// combine merges the warps' states in shared memory, in the order of the warps,
// and writes the partial state of (split, head).
func (st *state) combine(s Step, it item) {
	e, t := st.e, st.t
	k, group, d := e.K, t.part(), t.KV.D
	maxima, sums := e.Consumers*group*d, e.Consumers*group*(d+1)
	st.publish(maxima, sums)
	var scale f32
	if t.KV.e4m3() {
		scale = t.KV.scale(s, it.kvHead, 1).Named("v_scale")
	}
	e.Sync()
	e.EachConsumer(group*d, func(i u32) {
		row, dim := i.DivC(d), i.RemC(d)
		var ms []f32
		top := k.F32(math.Inf(-1))
		for w := range e.Consumers {
			ms = append(ms, t.Scratch.Load(row.AddC(maxima+w*group)))
			top = top.Max(ms[w])
		}
		empty := top.Eq(k.F32(math.Inf(-1)))
		out, sum := k.F32(0), k.F32(0)
		for w := range e.Consumers {
			weight := dsl.Select(empty, k.F32(0), dsl.Exp2(ms[w].Sub(top)))
			out = dsl.FMA(weight, t.Scratch.Load(i.AddC(w*group*d)), out)
			sum = dsl.FMA(weight, t.Scratch.Load(row.AddC(sums+w*group)), sum)
		}
		at := it.split.MulC(t.Heads).Add(st.query).Add(row)
		out = dsl.Select(empty, k.F32(0), out.Mul(dsl.Rcp(sum)))
		if t.KV.e4m3() {
			out = out.Mul(scale)
		}
		store := func() {
			t.Out.Store(at.MulC(d).Add(dim), out)
			k.If(dim.EqC(0), func() { t.LSE.Store(at, top.Add(dsl.Log2(sum))) })
		}
		if t.Group()%group == 0 {
			store()
		} else {
			k.If(row.Lt(st.heads), store)
		}
	})
	e.Sync() // the next item, or the next op, writes Scratch again
}

// publish writes this warp's output, maximum and sum for every head to Scratch.
func (st *state) publish(maxima, sums int) {
	e, t := st.e, st.t
	k, group, d := e.K, t.part(), t.KV.D
	g, col := e.Lane.DivC(4), e.Lane.RemC(4)
	for h := range st.rows {
		row := g.AddC(8 * h)
		sum, top := dsl.Butterfly(st.l[h].Get(), 4, f32.Add), st.m[h].Get()
		if shift := t.KV.shift(); shift != 0 {
			top = top.Sub(k.F32(shift)) // as sum is 2^shift times its weights'
		}
		k.If(row.LtC(group), func() {
			at := e.Warp.MulC(group).Add(row)
			t.KV.outputs(func(i, j int) f32 { return st.o[i][2*h+j].Get() }, func(first, per int, vs []f32) {
				t.Scratch.StoreN(at.MulC(d).Add(col.MulC(per)).AddC(first), vs)
			})
			k.If(col.EqC(0), func() {
				t.Scratch.Store(at.AddC(maxima), top)
				t.Scratch.Store(at.AddC(sums), sum)
			})
		})
	}
}
