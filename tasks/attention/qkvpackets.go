package attention

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

// QKVPackets passes the query token's queries, key and value from QKV to Attention in LL
// packets: an SM waits for those of the heads that it works on, and for no barrier. A
// packet's first quarter is a pair of elements, in bf16 or as the cache has them, the next
// two are 0, and the last is the flag. Key and value go into the cache all the same, for
// later steps.
type QKVPackets struct {
	LL *grid.LL
	Q  dsl.Buf[dsl.B128] // [Heads][D/2]: elements i and i + D/2 of a query
	KV dsl.Buf[dsl.B128] // [KV heads][K, V][D/2]: elements i and i + D/2 of a key, 2i and 2i + 1 of a value

	// Normed, unless nil, is the projection whose norms of q and k are left to who reads the packets: see normedStores.
	Normed *QKV
}

// store writes a packet.
func (p *QKVPackets) store(e *grid.Env, b dsl.Buf[dsl.B128], at, pair u32) {
	zero := e.K.U32(0)
	b.Store(at, dsl.Join(pair, zero, zero, p.LL.Flag()), dsl.Relaxed(dsl.GPUScope))
}

// load waits for a packet.
func (p *QKVPackets) load(e *grid.Env, b dsl.Buf[dsl.B128], at u32, what string) u32 {
	return product.Single(p.LL.Load(e, b, at, what))
}

// packetStores puts a pair of rows into packets, and then, which nobody waits for in this step,
// keys and values into the cache.
type packetStores struct {
	stores
	place
	to *QKVPackets
}

func (p packetStores) query(head, i u32, r turned) {
	c := p.softmaxScale()
	p.to.store(p.e, p.to.Q, head.MulC(p.t.KV.D/2).Add(i),
		dsl.Bits[dsl.U32](dsl.Pack[dsl.BF16x2](r.lo.Mul(c), r.hi.Mul(c))))
}

func (p packetStores) key(kvHead, i u32, r turned) {
	p.pass(0, kvHead, i, r.lo, r.hi)
	p.stores.key(kvHead, i, r)
}

func (p packetStores) value(kvHead, i u32, y0, y1 f32) {
	p.pass(1, kvHead, i, y0, y1)
	p.stores.value(kvHead, i, y0, y1)
}

func (p packetStores) pass(v int, kvHead, i u32, x0, x1 f32) {
	at := kvHead.MulC(2).AddC(v).MulC(p.t.KV.D / 2).Add(i)
	if p.t.KV.e4m3() {
		p.to.store(p.e, p.to.KV, at, dsl.Cast[dsl.U32](dsl.Bits[dsl.U16](p.quantise(v, kvHead, x0, x1))))
		return
	}
	p.to.store(p.e, p.to.KV, at, dsl.Bits[dsl.U32](dsl.Pack[dsl.BF16x2](x0, x1)))
}

// fetchPackets waits for the item's queries, which go to Scratch, and, where the item
// has the query's own token, for its key and value, which go to Tail; in all consumer
// warps.
func (t *Attention) fetchPackets(e *grid.Env, s Step, it *item) {
	if t.Packets.Normed != nil {
		t.fetchNormed(e, s, it)
		return
	}
	k, d, p := e.K, t.KV.D, t.Packets
	first, heads := t.queries(e, it)
	e.EachConsumer(t.part()*d/2, func(i u32) {
		fetch := func() {
			pair := p.load(e, p.Q, first.MulC(d/2).Add(i), "waits for a query, word %d")
			row, dim := i.DivC(d/2), i.RemC(d/2)
			at := row.MulC(4 * t.queryUnits()).AddC(t.passedAt(e.Consumers)) // of pairs
			if t.KV.e4m3() {
				dsl.View[dsl.U32](t.Scratch).Store(at.Add(dim), pair)
				return
			}
			lo, hi := dsl.Halves(pair)
			q := dsl.View[dsl.U16](t.Scratch)
			q.Store(at.MulC(2).Add(dim), lo)
			q.Store(at.MulC(2).Add(dim).AddC(d/2), hi)
		}
		if t.Group()%t.part() == 0 {
			fetch()
		} else {
			k.If(i.DivC(d/2).Lt(heads), fetch)
		}
	})
	k.If(it.hasOwn(), func() { t.fetchOwn(e, s, it.kvHead, t.part()*d/2) })
	e.Sync()
}

// fetchOwn waits for the query token's own value, and without norms for its key: the first of them in the thread
// behind busy threads, so that as few as can be wait for two things, one behind the other.
func (t *Attention) fetchOwn(e *grid.Env, s Step, kvHead u32, busy int) {
	k, d, slot, p := e.K, t.KV.D, dsl.Optional(s.Pos.RemC(t.KV.Page)), t.Packets // where units lie by their token
	store := func(v int, i, pair u32) {
		if v == 1 && !t.KV.e4m3() {
			dsl.View[dsl.U32](t.Tail).Store(t.KV.element(v, i, 4, slot), pair)
			return
		}
		lo, hi := dsl.Halves(pair)
		half := dsl.View[dsl.U16](t.Tail)
		half.Store(t.KV.element(v, i, 8, slot), lo)
		if !t.KV.e4m3() {
			half.Store(t.KV.element(v, i.AddC(d/2), 8, slot), hi)
		}
	}
	load := func(at u32) u32 {
		return p.load(e, p.KV, kvHead.MulC(d).Add(at), "waits for the token's own key or value, word %d")
	}
	if p.Normed != nil {
		e.EachConsumerBehind(busy, d/2, func(i u32) { store(1, i, load(i.AddC(d/2))) })
		return
	}
	e.EachConsumerBehind(busy, d, func(i u32) {
		pair := load(i)
		k.IfElse(i.LtC(d/2), func() { store(0, i, pair) }, func() { store(1, i.SubC(d/2), pair) })
	})
}

// passedAt is where the queries that have come begin in Scratch, in words of it (a pair
// of elements each), at a multiple of 16 bytes: behind where the warps' states meet.
func (t *Attention) passedAt(consumers int) int {
	return pipeline.CeilDiv(consumers*t.part()*(t.KV.D+2), 4) * 4
}

// passedLen is how many words of Scratch they take.
func (t *Attention) passedLen() int {
	if t.Packets == nil {
		return 0
	}
	return 4 * t.part() * t.queryUnits()
}
