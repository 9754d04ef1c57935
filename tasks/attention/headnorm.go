package attention

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

// HeadNorm normalises q and k before the rotation: RMSNorm of every head by itself (Qwen3, Gemma 3), or of all heads of
// q, and all of k, together (OLMo-2).
//
// A head's rows lie on several SMs, none of which knows its sum of squares. But the norm's factor is one number for the
// head and commutes with gains and rotation. So the rows' owner applies these, and passes on with every pair the
// squares of it. Who needs the head reads all of its pairs, adds the squares up, and multiplies: no exchange more.
type HeadNorm struct {
	Eps     float64
	Gain    func(Step) product.Rows // of a layer's packed rows of q and k
	PlusOne bool                    // the factor of an element is 1 + gain

	KeysAsTheyAre bool // plants a fault: keys get their gains, and no more

	// Sums, for a norm of all heads together, are where SMs tell each other their sums of squares, a word each; no
	// buffer for norms of each head.
	Sums dsl.Buf[dsl.B128]

	// Wide, without words, is whether all heads are normalised together.
	Wide bool
	// Raw, without words, is [T][Heads][D/2] and then [T][KV heads][D/2] of pairs that are not normalised yet, with the
	// sum of their squares: what NormColumns reads.
	Raw dsl.Buf[dsl.B128]

	own []*dsl.Var[dsl.F32] // this thread's sums of squares of q and k, with Sums
}

func (n *HeadNorm) wide() bool { return n.Sums.Len() > 0 }

// start begins the sums of a product, publish ends them: all consumer threads run both.
func (n *HeadNorm) start(e *grid.Env) {
	if n != nil && n.wide() {
		n.own = dsl.NewArray(e.K.F32(0), 2, "squares")
	}
}

func (n *HeadNorm) add(which int, squares f32) {
	if n.wide() {
		n.own[which].Set(n.own[which].Get().Add(squares))
	}
}

func (n *HeadNorm) publish(e *grid.Env, w *grid.LL) {
	if n == nil || !n.wide() {
		return
	}
	k := e.K
	var sums [2]f32
	for i, v := range n.own {
		e.Sync() // Scratch may be in use
		sums[i] = dsl.CTASum(v.Get(), e.Scratch, 0, e.Consumers, e.Sync)
	}
	bits := dsl.Bits[dsl.U32, dsl.F32]
	k.If(e.Tid.EqC(0), func() {
		n.Sums.Store(e.CTA, dsl.Join(bits(sums[0]), bits(sums[1]), k.U32(0), w.Flag()), dsl.Relaxed(dsl.GPUScope))
	})
}

func (n *HeadNorm) gains(k *dsl.Kernel, s Step, row u32) []f32 {
	g := n.Gain(s)(row)
	if n.PlusOne {
		g[0], g[1] = g[0].Add(k.F32(1)), g[1].Add(k.F32(1))
	}
	return g
}

// gained is a pair with gains, and its sum of squares without.
func (n *HeadNorm) gained(g []f32, y0, y1 f32) (r0, r1, squares f32) {
	return y0.Mul(g[0]), y1.Mul(g[1]), dsl.FMA(y1, y1, y0.Mul(y0))
}

// scale is the norm's factor, for a sum of squares of n elements.
func (n *HeadNorm) scale(e *grid.Env, sum f32, elements int) f32 {
	return dsl.Rsqrt(sum.Mul(e.K.F32(1 / float64(elements))).Add(e.K.F32(n.Eps)))
}

// normedStores hands q and k on before their norm: words of two f32, the sum of their squares, and a tag. Only
// attention knows a key whole, so it puts it into the cache.
type normedStores struct{ packetStores }

func (p normedStores) query(head, i u32, r turned) {
	p.t.Norm.add(0, r.squares)
	p.store(p.to.Q, head.MulC(p.t.KV.D/2).Add(i), r)
}

func (p normedStores) key(kvHead, i u32, r turned) {
	p.t.Norm.add(1, r.squares)
	p.store(p.to.KV, kvHead.MulC(p.t.KV.D).Add(i), r)
}

func (p normedStores) store(b dsl.Buf[dsl.B128], at u32, r turned) {
	bits := dsl.Bits[dsl.U32, dsl.F32]
	b.Store(at, dsl.Join(bits(r.lo), bits(r.hi), bits(r.squares), p.to.LL.Flag()), dsl.Relaxed(dsl.GPUScope))
}

// fetchNormed is fetchPackets with norms: a warp takes a query, or the token's own key, as a whole.
func (t *Attention) fetchNormed(e *grid.Env, s Step, it *item) {
	k, d, p, of := e.K, t.KV.D, t.Packets, t.Packets.Normed
	first, heads := t.queries(e, it)
	sums := of.Norm.sums(e, p.LL)
	for from := 0; from < t.part(); from += e.Consumers {
		row := e.Warp.AddC(from)
		fetch := func() {
			at := row.MulC(4 * t.queryUnits()).AddC(t.passedAt(e.Consumers)) // of pairs
			t.eachNormed(e, p.Q, first.Add(row).MulC(d/2), "waits for a query, word %d", t.Heads, sums[0], false,
				func(i u32, r turned) {
					c := k.F32(of.softmaxScale())
					pair := dsl.Pack[dsl.BF16x2](r.lo.Mul(c), r.hi.Mul(c))
					if t.KV.e4m3() {
						dsl.View[dsl.BF16x2](t.Scratch).Store(at.Add(i), pair)
						return
					}
					lo, hi := dsl.Halves(dsl.Bits[dsl.U32](pair))
					q := dsl.View[dsl.U16](t.Scratch)
					q.Store(at.MulC(2).Add(i), lo)
					q.Store(at.MulC(2).Add(i).AddC(d/2), hi)
				})
		}
		if t.Group()%t.part() == 0 && from+e.Consumers <= t.part() {
			fetch()
		} else {
			k.If(row.Lt(heads), fetch)
		}
	}
	k.If(it.hasOwn(), func() {
		k.If(e.Warp.EqC(e.Consumers-1), func() { t.fetchKey(e, s, it, sums[1]) })
		t.fetchOwn(e, s, it.kvHead, t.part()*dsl.WarpSize)
	})
	e.Sync()
}

// fetchKey brings the token's own key to Tail and, since nobody knew it whole before, into the cache, in one warp.
func (t *Attention) fetchKey(e *grid.Env, s Step, it *item, sum f32) {
	k, d, p := e.K, t.KV.D, t.Packets
	slot := s.Pos.RemC(t.KV.Page).Named("slot")
	to := place{t: p.Normed, e: e, s: s, page: s.Table.Load(s.Pos.DivC(t.KV.Page)).Named("page"), slot: slot}
	cache := p.Normed.cache(to)
	t.eachNormed(e, p.KV, it.kvHead.MulC(d), "waits for the token's own key, word %d", t.KV.Heads, sum,
		p.Normed.Norm.KeysAsTheyAre, func(i u32, r turned) {
			half := dsl.View[dsl.U16](t.Tail)
			if t.KV.e4m3() {
				half.Store(t.KV.element(0, i, 8, slot), dsl.Bits[dsl.U16](to.quantise(0, it.kvHead, r.lo, r.hi)))
			} else {
				lo, hi := dsl.Halves(dsl.Bits[dsl.U32](dsl.Pack[dsl.BF16x2](r.lo, r.hi)))
				half.Store(t.KV.element(0, i, 8, slot), lo)
				half.Store(t.KV.element(0, i.AddC(d/2), 8, slot), hi)
			}
			store := func() { cache.key(it.kvHead, i, r) }
			if t.Parts() == 1 {
				store()
			} else {
				k.If(it.part().EqC(0), store)
			}
		})
	k.FenceProxyAsyncGlobal() // later steps copy the key
}

// eachNormed calls use in one warp for the pairs of a head whose words begin at from, normalised: by their own sum of
// squares, or by that of n heads where it is given.
func (t *Attention) eachNormed(e *grid.Env, b dsl.Buf[dsl.B128], from u32, what string, heads int, sum f32,
	asTheyAre bool,
	use func(i u32, r turned)) {
	k, pairs := e.K, t.KV.D/2
	var is, at []u32
	for i := 0; i < pairs; i += dsl.WarpSize {
		is = append(is, e.Lane.AddC(i))
		at = append(at, from.Add(e.Lane.AddC(i).MinC(pairs-1)))
	}
	there := func(n int, body func()) { // the last lanes may have no pair
		if (n+1)*dsl.WarpSize <= pairs {
			body()
		} else {
			k.If(is[n].LtC(pairs), body)
		}
	}
	words := t.Packets.LL.All(e, b, at, what)
	of, elements := t.Packets.Normed.Norm, heads*t.KV.D
	squares := k.F32(0)
	for n, w := range words {
		v := dsl.Bits[dsl.F32](dsl.Split(w)[2])
		if (n+1)*dsl.WarpSize > pairs {
			v = dsl.Select(is[n].LtC(pairs), v, k.F32(0))
		}
		squares = squares.Add(v)
	}
	if of.wide() {
		dsl.Optional(squares)
	} else {
		sum, elements = dsl.WarpSum(squares), t.KV.D
	}
	scale := of.scale(e, sum, elements).Named("norm")
	if asTheyAre {
		dsl.Optional(scale)
		scale = k.F32(1)
	}
	for n, w := range words {
		v := dsl.Split(w)
		there(n, func() {
			use(is[n], turned{lo: dsl.Bits[dsl.F32](v[0]).Mul(scale), hi: dsl.Bits[dsl.F32](v[1]).Mul(scale)})
		})
	}
}

// sums are the sums of squares of all of q and of all of k, with norms of all heads together: every SM's, in their
// order.
func (n *HeadNorm) sums(e *grid.Env, w *grid.LL) (out [2]f32) {
	if !n.wide() {
		return out
	}
	k := e.K
	mine := dsl.NewArray(k.F32(0), 2, "squares")
	e.EachConsumer(e.Grid, func(i u32) {
		v := dsl.Split(w.Load(e, n.Sums, i, "waits for the squares of SM %d"))
		mine[0].Set(mine[0].Get().Add(dsl.Bits[dsl.F32](v[0])))
		mine[1].Set(mine[1].Get().Add(dsl.Bits[dsl.F32](v[1].Or(v[2]))))
	})
	for i, v := range mine {
		out[i] = dsl.CTASum(v.Get(), e.Scratch, 0, e.Consumers, e.Sync)
		e.Sync() // Scratch is used again
	}
	return out
}
