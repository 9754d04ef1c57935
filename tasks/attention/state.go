package attention

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
)

// state is one warp's running softmax for a tile of rows, in the fragments of
// m16n8k16: lane l holds rows l/4 and l/4+8, of which the second are unused
// where no tile has more than 8.
type state struct {
	t    *Attention
	e    *grid.Env
	it   *item
	step Step
	deal deal

	query, heads u32 // without Work: first query head, and how many

	rows int                   // 1 or 2 rows a lane in use
	wide int                   // 16-token slices of a block of cached tokens
	row  []queryRow            // those
	q    [][4]pair             // A fragments of the queries, one each 16 dimensions
	o    [][]*dsl.Var[dsl.F32] // C fragments of the output, one each 8 dimensions
	m, l []*dsl.Var[dsl.F32]   // per row: maximum, this lane's part of the sum (2^shift times it)

	lses []f32 // of the rows, behind share

	// valueScale is not there before combine, unless values have a hook.
	keyScale, valueScale f32 // of an e4m3 cache
	blocks               u32 // of the item
}

func newState(t *Attention, e *grid.Env, s Step, it *item, rows, wide int) *state {
	k := e.K
	st := &state{t: t, e: e, it: it, step: s, deal: t.deal(e, it), rows: rows, wide: wide}
	if t.Work == nil {
		st.query, st.heads = t.queries(e, it)
	}
	for h := range st.rows {
		st.row = append(st.row, st.queryRow(h))
	}
	if t.KV.e4m3() {
		st.keyScale = t.KV.scale(s, it.kvHead, 0).Named("k_scale")
	}
	if t.KV.e4m3() && t.hooksValues() {
		st.valueScale = t.KV.scale(s, it.kvHead, 1).Named("v_scale")
	}
	st.loadQueries()
	for range t.KV.D / 8 {
		st.o = append(st.o, dsl.NewArray(k.F32(0), 2*st.rows, "o"))
	}
	if !t.sums() {
		st.m = dsl.NewArray(k.F32(math.Inf(-1)), st.rows, "m")
		st.l = dsl.NewArray(k.F32(0), st.rows, "l")
	}
	return st
}

// queries are an item's first query head, and how many: part, or fewer at the
// end of a group.
func (t *Attention) queries(e *grid.Env, it *item) (first, n u32) {
	k := e.K
	before := it.part().MulC(t.part())
	first, n = it.kvHead.MulC(t.Group()).Add(before), k.U32(t.part())
	if t.Group()%t.part() != 0 {
		n = k.U32(t.Group()).Sub(before).MinC(t.part())
	}
	return first, n
}

// loadQueries loads the A fragments; rows that the item does not have are 0, or
// with Work those of another, and their results are not used.
func (st *state) loadQueries() {
	e, t, d := st.e, st.t, st.t.KV.D
	load := func(row queryRow, pair u32) pair {
		if t.Work != nil {
			return dsl.View[dsl.BF16x2](t.Scratch).Load(row.local.MulC(4 * t.queryUnits()).Add(pair))
		}
		if t.Packets != nil {
			return dsl.View[dsl.BF16x2](t.Scratch).Load(row.local.MulC(4 * t.queryUnits()).AddC(t.passedAt(e.Consumers)).
				Add(pair))
		}
		q := dsl.View[dsl.BF16x2](t.Q)
		return dsl.Select(row.valid(), q.Load(row.at.MulC(d/2).Add(pair)), dsl.Lit[dsl.BF16x2](e.K, 0))
	}
	zero := dsl.Lit[dsl.BF16x2](e.K, 0)
	for dim := 0; dim < d; dim += 16 {
		a := [4]pair{zero, zero, zero, zero}
		for half := range 2 {
			for h, row := range st.row {
				a[2*half+h] = load(row, st.t.KV.queryPair(e.Lane.RemC(4), dim/16, half))
			}
		}
		st.q = append(st.q, a)
	}
	st.transformQueries()
	for i := range st.q {
		for half := range 2 {
			for h := range st.row {
				st.q[i][2*half+h] = st.t.KV.operand(st.q[i][2*half+h])
			}
		}
	}
}

// tokens is a block: slices of 16 tokens of KV in shared memory.
type tokens struct {
	buf    dsl.Buf[dsl.B128]
	base   u32  // the first one's first 16-byte element; a token has TokenUnits
	first  u32  // its index in the unit, modulo the page size at least: it fixes the permutation of its units
	slices int  // of 16 tokens
	n      u32  // how many tokens there are, 1 to 16·slices
	whole  bool // whether they are all 16·slices, of the cache, and first a multiple of 16
	fresh  bool // new tokens of this step
}

// eachBlock calls body for this warp's blocks of the item's cached tokens: block g
// falls to lane g mod lanes.
func (st *state) eachBlock(c *pipeline.Consumer, r *pipeline.Ring, body func(b tokens)) {
	e, k, t, it, d := st.e, st.e.K, st.t, st.it, st.deal
	size := st.wide * blockTokens
	per := t.PerStage / size // blocks of a whole chunk
	chunks := it.end.Sub(it.first).Named("chunks")
	st.blocks = chunks
	if per > 1 {
		last := it.cached.Sub(it.chunk(it.end.SubC(1)).MulC(t.PerStage)).MinC(t.PerStage).AddC(size - 1).DivC(size)
		st.blocks = dsl.Select(chunks.EqC(0), chunks, chunks.SubC(1).MulC(per).Add(last))
	}
	st.blocks = st.blocks.Named("blocks")
	k.Claim("attention: more blocks than chunks have",
		func() dsl.Pred { return st.blocks.LtC(mostChunks*max(per, 1) + 1) })
	block := func(n, b, base u32) { // block b of chunk n
		k.Claim("attention: a block of none of the item's chunks", func() dsl.Pred { return n.LtC(mostChunks) })
		from, tok := it.chunk(it.first.Add(n)).MulC(t.PerStage).Named("from"), b.MulC(size)
		k.Claim("attention: a chunk behind the cached tokens", func() dsl.Pred { return from.Lt(it.cached) })
		there := it.cached.Sub(from).MinC(t.PerStage)
		k.Claim("attention: a block without a token", func() dsl.Pred { return tok.Lt(there) })
		left := there.Sub(tok)
		body(tokens{buf: r.Data, base: base.Add(tok.MulC(t.KV.TokenUnits())), first: from.Add(tok), slices: st.wide,
			n: left.MinC(size)})
	}
	if pipeline.CeilDiv(e.Consumers*size, t.PerStage) > c.Reach() {
		st.eachChunk(c, chunks, per, block)
		return
	}
	d.each(k, st.blocks, func(g u32) {
		n, b := g.DivC(per), g.RemC(per)
		of := st.blocks.Sub(n.MulC(per)).MinC(per) // blocks of the chunk
		takers := d.tiles.Mul(d.lanes.Min(of))
		others := dsl.Select(b.AddC(1).Eq(of).And(d.tile.EqC(0)), k.U32(e.Consumers).Sub(takers), k.U32(0))
		c.Take(n, func(base u32) { block(n, b, base) }, b.Add(d.lanes).Ge(of), others.AddC(1))
	})
	c.Pass(chunks)
}

// eachChunk is eachBlock where a warp's chunks lie too far apart for the ring: it waits
// for all of them.
func (st *state) eachChunk(c *pipeline.Consumer, chunks u32, per int, block func(n, b, base u32)) {
	k := st.e.K
	k.For(k.U32(0), chunks, func(n u32) {
		c.Drain(func(base u32) {
			k.For(k.U32(0), k.U32(per), func(b u32) {
				g := n.MulC(per).Add(b)
				k.If(st.deal.takes(g).And(g.Lt(st.blocks)), func() { block(n, b, base) })
			}, dsl.Unroll(1))
		})
	}, dsl.Unroll(1))
}

// cachedBlock is block with code of its own for whole blocks, which have nothing to mask
// and whose addresses a lane knows but for where they begin: for many rows, which
// take more arithmetic than memory gives time for. Few rows have no registers left for
// what the lanes would keep.
func (st *state) cachedBlock(b tokens) {
	if st.t.Variant != nil || st.wide == 1 {
		st.block(b)
		return
	}
	whole := b
	whole.whole = true
	st.e.K.IfElse(b.n.EqC(b.slices*blockTokens), func() { st.block(whole) }, func() { st.block(b) })
}

// block adds tokens to the state.
func (st *state) block(b tokens) {
	s := st.scores(b)
	see := st.sight(b)
	p := make([][4]f32, len(s))
	for h := range st.rows {
		for nt := range s {
			for j := range 2 {
				s[nt][2*h+j] = see.logit(h, nt, j, s[nt][2*h+j])
			}
		}
		if st.t.sums() {
			for nt := range s {
				copy(p[nt][2*h:2*h+2], s[nt][2*h:2*h+2])
			}
		} else {
			st.softmax(h, s, p, see.masks)
		}
	}
	st.weigh(b, st.weights(p))
}

// softmax turns row h's scores into weights relative to the running maximum, and
// what the state holds to the new one. masks is whether there may be no visible
// token yet, a maximum of −inf: the weights are 0 then.
func (st *state) softmax(h int, s, p [][4]f32, masks bool) {
	top := st.m[h].Get()
	for nt := range s {
		for j := range 2 {
			top = top.Max(s[nt][2*h+j])
		}
	}
	top = dsl.Butterfly(top, 4, f32.Max)
	base := top
	if masks {
		base = finite(st.e, top)
	}
	weigh := base
	if shift := st.t.KV.shift(); shift != 0 {
		weigh = base.Sub(st.e.K.F32(shift))
	}
	decay := dsl.Exp2(st.m[h].Get().Sub(base)).Named("decay")
	sum := st.l[h].Get().Mul(decay)
	for nt := range s {
		for j := range 2 {
			p[nt][2*h+j] = dsl.Exp2(s[nt][2*h+j].Sub(weigh))
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

// finite is x, or 0 for −inf, to subtract from numbers that may be −inf, too.
func finite(e *grid.Env, x f32) f32 {
	return dsl.Select(x.Eq(e.K.F32(math.Inf(-1))), e.K.F32(0), x)
}

// weights packs the probabilities as the A fragments of the second product, one a
// slice: its columns are the tokens, so the C fragments of the first are it already.
func (st *state) weights(p [][4]f32) [][4]pair {
	zero := dsl.Lit[dsl.BF16x2](st.e.K, 0)
	all := make([][4]pair, len(p)/2)
	for slice := range all {
		a := [4]pair{zero, zero, zero, zero}
		for nt := range 2 {
			for h := range st.rows {
				a[2*nt+h] = st.t.KV.pack(p[2*slice+nt][2*h], p[2*slice+nt][2*h+1])
			}
		}
		all[slice] = a
	}
	return all
}
