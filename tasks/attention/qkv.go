package attention

import (
	"cmp"
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
	"github.com/mkgen/mkgen/tasks/product"
)

// QKV finishes the fused q, k and v projection: it applies RMSNorm's scale,
// rotates q and k (RoPE), and appends k and v to the cache at the query's
// position. The packed matrix's rows are in the order of SourceRow, in which
// the two rows a rotation mixes are neighbours. An e4m3 cache gets k and v
// quantised with Step.Scales.
type QKV struct {
	Heads int // query heads
	KV    KVLayout
	// [kinds][D/2], radians a position, frequency scaling applied; 0 for pairs that are not rotated
	InvFreq dsl.Buf[dsl.F32]
	// [Heads][D] out: rotated, times log2(e)·Scale, in the order of KVLayout.KeyOrder; not with Packets
	Q       dsl.Buf[dsl.BF16]
	Packets *QKVPackets // nil: what reads Q and the cache stands behind a sync

	Scale   float64                 // of scores; 0 for 1/√D
	Kind    func(s Step) u32        // which kind of rotation a step's layer has; nil where there is one
	Factors dsl.Buf[dsl.F32]        // [kinds][D/2] what cosines and sines are multiplied by; no buffer for 1
	Bias    func(Step) product.Rows // of a layer's packed matrix; nil for none
	Norm    *HeadNorm               // of q and k before the rotation; nil for none

	// Grows multiplies queries by what grows with their positions, unless it is zero.
	Grows Growth

	// QueryShift is added to the position queries are rotated for; it is 0 but
	// where a fault is planted.
	QueryShift int
	// RotateFor is the position that queries and keys are rotated for in a step's
	// layer, where that is not always their own; at 0 they stay as they are.
	RotateFor func(s Step, pos u32) u32

	// Planted, unless nil, is a fault of what is stored.
	Planted *PlantedStores

	// Early, unless nil, is where CosSin has been fetched to.
	Early *product.Fetched

	// Queries, unless nil, changes queries behind all else.
	Queries QueryHook

	// Copy, unless nil, gets keys and values, too: attention reads them there.
	Copy *PrefillCopy
}

// Rows is the number of rows of the fused matrix.
func (t *QKV) Rows() int { return (t.Heads + 2*t.KV.Heads) * t.KV.D }

// SourceRow says which row of the concatenated q, k, v weights is packed row r:
// in heads of q and k rows i and i + D/2 are neighbours, v keeps its order.
func (t *QKV) SourceRow(r int) int {
	head, i := r/t.KV.D, r%t.KV.D
	if head >= t.Heads+t.KV.Heads {
		return r
	}
	return head*t.KV.D + t.KV.Rotary.dim(t.KV.D, i/2, i%2)
}

func (t *QKV) problem() string {
	if p := t.KV.problem(); p != "" {
		return p
	}
	return rule.First(
		rule.Need(t.Heads > 0, "qkv: %d query heads, want at least 1", t.Heads),
		rule.Need(int(t.InvFreq.Len()) == t.KV.D/2 || t.Kind != nil && int(t.InvFreq.Len())%(t.KV.D/2) == 0,
			"qkv: InvFreq has %d elements, want half the head dimension, %d", t.InvFreq.Len(), t.KV.D/2),
		rule.Need(t.Grows.Every == 0 || t.Norm == nil,
			"qkv: queries that grow with their positions behind a norm, want one of both"),
		rule.Need(t.Norm == nil || t.Packets != nil || t.Norm.Raw.Len() > 0,
			"qkv: norms of q and k want words, or a buffer for what is not normalised yet"))
}

// Epilogue finishes rows as they come. norm stages the product's input and returns RMSNorm's
// scale.
func (t *QKV) Epilogue(e *grid.Env, s Step, norm func() product.NormScale) product.Epilogue {
	k := e.K
	if p := cmp.Or(t.problem(), t.KV.stepProblem(s)); p != "" {
		k.Require(false, "%s", p)
		return func(u32, f32, f32) {}
	}
	// The new token's place is looked up once, on the way to memory with the input.
	page := s.Table.Load(s.Pos.DivC(t.KV.Page)).Named("page")
	st := t.stores(place{t: t, e: e, s: s, page: page, slot: s.Pos.RemC(t.KV.Page).Named("slot")})
	scale := norm()
	t.Norm.start(e)
	return func(row u32, y0, y1 f32) {
		by := scale()
		t.finish(e, s, row, y0.Mul(by), y1.Mul(by), s.Pos, st, func(head u32) u32 { return head })
	}
}

// Publish runs in all consumer threads behind the last row.
func (t *QKV) Publish(e *grid.Env) {
	if t.Norm != nil && t.Packets != nil {
		t.Norm.publish(e, t.Packets.LL)
	}
}

// Ahead is what Early fetches for a row of the packed matrix: the cosine and the sine by which its q or k is rotated,
// of no use for a row of v, and behind them its biases, and gains of the norm, where there are any.
func (t *QKV) Ahead(e *grid.Env, s Step, row u32) []f32 {
	cos, sin := t.turning(e, s, func() dsl.Pred { return row.LtC(t.Heads * t.KV.D) }, s.Pos,
		func() u32 { return t.turn(s, row.RemC(t.KV.D).DivC(2).Named("i")) })
	all := []f32{cos, sin}
	if t.Bias != nil {
		all = append(all, t.Bias(s)(row)...)
	}
	if t.Norm != nil {
		all = append(all, t.Norm.gains(e.K, s, row.MinC((t.Heads+t.KV.Heads)*t.KV.D-2))...)
	}
	return all
}

// EarlyPairs is how many pairs of numbers Ahead has.
func (t *QKV) EarlyPairs() int {
	n := 1
	if t.Bias != nil {
		n++
	}
	if t.Norm != nil {
		n++
	}
	return n
}

// turn is where pair i of a head finds its frequency.
func (t *QKV) turn(s Step, i u32) u32 {
	if t.Kind == nil {
		return i
	}
	return t.Kind(s).MulC(t.KV.D / 2).Add(i)
}

// position is what a pair of a token at pos is rotated for; query is whether it is of q.
func (t *QKV) position(s Step, query func() dsl.Pred, pos u32) u32 {
	if t.RotateFor != nil {
		pos = t.RotateFor(s, pos)
	}
	if t.QueryShift != 0 {
		pos = dsl.Select(query(), pos.AddC(t.QueryShift), pos)
	}
	return pos
}

// finish rotates and stores a pair of rows of a token at pos. query is the row of Q
// of one of the token's heads.
func (t *QKV) finish(e *grid.Env, s Step, row u32, y0, y1 f32, pos u32, st stores, query func(head u32) u32) {
	k, d := e.K, t.KV.D
	k.Note("rotate a pair of q or k and hand it on; append k and v to the cache")
	head, i := row.DivC(d).Named("head"), row.RemC(d).DivC(2).Named("i")
	if t.Bias != nil {
		b := t.Early.Pair(1, func() []f32 { return t.Bias(s)(row) })
		y0, y1 = y0.Add(b[0]), y1.Add(b[1])
	}
	k.IfElse(head.LtC(t.Heads+t.KV.Heads), func() {
		turn := t.Early.Or(func() []f32 {
			cos, sin := t.turning(e, s, func() dsl.Pred { return head.LtC(t.Heads) }, pos, func() u32 { return t.turn(s, i) })
			return []f32{cos, sin}
		})
		var r turned
		a, b := y0, y1
		if t.Norm != nil {
			a, b, r.squares = t.Norm.gained(t.Early.Pair(t.EarlyPairs()-1, func() []f32 { return t.Norm.gains(k, s, row) }), y0,
				y1)
		}
		r.lo, r.hi = rotated(a, b, turn[0], turn[1])
		k.IfElse(head.LtC(t.Heads), func() { st.query(query(head), i, r) }, func() { st.key(head.SubC(t.Heads), i, r) })
	}, func() { st.value(head.SubC(t.Heads+t.KV.Heads), i, y0, y1) })
}

// turned are two elements of a query or a key, rotated, and with a norm to come the sum of their squares before it.
type turned struct{ lo, hi, squares f32 }

// stores is where a pair of rows goes.
type stores interface {
	query(row, i u32, r turned)      // elements i and i + D/2 of a row of Q
	key(kvHead, i u32, r turned)     // elements i and i + D/2 of a key
	value(kvHead, i u32, y0, y1 f32) // elements 2i and 2i + 1 of a value
}

// cache stores into the cache, and queries into Q.
func (t *QKV) cache(p place) stores {
	if t.KV.e4m3() {
		st := e4m3Stores{p, dsl.View[dsl.E4M3x2](p.s.Cache)}
		if t.Copy != nil {
			return t.Queries.stores(copiedStores{st, t.Copy}, p)
		}
		return t.Queries.stores(st, p)
	}
	return t.Queries.stores(bf16Stores{p, dsl.View[dsl.BF16](p.s.Cache), dsl.View[dsl.BF16x2](p.s.Cache)}, p)
}

func (t *QKV) stores(p place) stores {
	st := t.cache(p)
	switch {
	case t.Norm != nil && t.Packets != nil:
		st = normedStores{packetStores{st, p, t.Packets}}
	case t.Norm != nil:
		st = rawStores{st, p, int(t.Norm.Raw.Len()) / t.RawLen(1)}
	case t.Packets != nil:
		st = packetStores{st, p, t.Packets}
	}
	return t.Planted.scaled(st, p)
}

// place is a new token's place in the cache.
type place struct {
	t          *QKV
	e          *grid.Env
	s          Step
	page, slot u32
	row        u32 // of the step, of several tokens only
	pos        u32 // with QKV.Queries
}

// token is the token's first unit.
func (p *place) token(kvHead u32) dsl.Val[dsl.U64] {
	return p.t.KV.rowBase(p.s.Layer, p.s.Pages, p.page, kvHead, p.slot)
}

// element is where element i of a row of K or V lies in its token; per is the
// number of elements a unit.
func (p *place) element(v int, i u32, per int) dsl.Val[dsl.U64] {
	return dsl.Cast[dsl.U64](p.t.KV.element(v, i, per, p.slot))
}

// softmaxScale goes on queries: scores are then exponents of 2.
func (p *place) softmaxScale() f32 { return p.e.K.F32(p.t.softmaxScale()) }

func (t *QKV) softmaxScale() float64 {
	if t.Scale != 0 {
		return math.Log2E * t.Scale
	}
	return math.Log2E / math.Sqrt(float64(t.KV.D))
}

type bf16Stores struct {
	place
	kv  dsl.Buf[dsl.BF16]
	kv2 dsl.Buf[dsl.BF16x2]
}

func (p bf16Stores) query(head, i u32, r turned) {
	c, d := p.softmaxScale(), p.t.KV.D
	at := head.MulC(d).Add(i)
	p.t.Q.Store(at, dsl.Cast[dsl.BF16](r.lo.Mul(c)))
	p.t.Q.Store(at.AddC(d/2), dsl.Cast[dsl.BF16](r.hi.Mul(c)))
}

func (p bf16Stores) key(kvHead, i u32, r turned) {
	base := p.token(kvHead).MulC(8)
	p.kv.Store(base.Add(p.element(0, i, 8)), dsl.Cast[dsl.BF16](r.lo))
	p.kv.Store(base.Add(p.element(0, i.AddC(p.t.KV.D/2), 8)), dsl.Cast[dsl.BF16](r.hi))
}

func (p bf16Stores) value(kvHead, i u32, y0, y1 f32) {
	base := p.token(kvHead).MulC(4)
	p.kv2.Store(base.Add(p.element(1, i, 4)), dsl.Pack[dsl.BF16x2](y0, y1))
}

// e4m3Stores quantises: an element of the cache is the value times 1/scale,
// rounded to nearest even, at most ±448 (1/scale is off by an ulp of f32 at
// most).
type e4m3Stores struct {
	place
	kv dsl.Buf[dsl.E4M3x2]
}

func (p e4m3Stores) query(head, i u32, r turned) {
	c := p.softmaxScale()
	dsl.View[dsl.BF16x2](p.t.Q).Store(head.MulC(p.t.KV.D/2).Add(i), dsl.Pack[dsl.BF16x2](r.lo.Mul(c), r.hi.Mul(c)))
}

func (p e4m3Stores) key(kvHead, i u32, r turned) { p.quantised(0, kvHead, i, r.lo, r.hi) }

func (p e4m3Stores) value(kvHead, i u32, y0, y1 f32) { p.quantised(1, kvHead, i, y0, y1) }

// quantised stores the i-th pair of a row of K or V.
func (p e4m3Stores) quantised(v int, kvHead, i u32, x0, x1 f32) {
	p.kv.Store(p.token(kvHead).MulC(8).Add(p.element(v, i, 8)), p.quantise(v, kvHead, x0, x1))
}

// quantise is a pair of a row of K or V as an e4m3 cache has it.
func (p *place) quantise(v int, kvHead u32, x0, x1 f32) dsl.Val[dsl.E4M3x2] {
	c := dsl.Rcp(p.t.KV.scale(p.s, kvHead, v))
	return dsl.Pack[dsl.E4M3x2](x0.Mul(c), x1.Mul(c))
}

// Growth is a factor of 1 + Beta·ln(1 + ⌊p/Every⌋) at position p; Every 0 is none.
type Growth struct {
	Beta  float64
	Every int
}

// turning is what a pair of a token at pos, of q or not, is multiplied by: cosine and sine of its angle, times what
// grows.
func (t *QKV) turning(e *grid.Env, s Step, query func() dsl.Pred, pos u32, turn func() u32) (c, sn f32) {
	c, sn = t.angle(e, t.position(s, query, pos), turn())
	if t.Grows.Every == 0 {
		return c, sn
	}
	k := e.K
	steps := dsl.Cast[dsl.F32](pos.DivC(t.Grows.Every).AddC(1))
	by := dsl.FMA(dsl.Log2(steps), k.F32(t.Grows.Beta*math.Ln2), k.F32(1))
	by = dsl.Select(query(), by, k.F32(1)).Named("grown")
	return c.Mul(by), sn.Mul(by)
}

// angle is cosine and sine of pos·InvFreq[i], the angle of elements i and i + D/2 of a head
// (RoPE, Su et al. 2021, in the half-split layout of Hugging Face's Llama). The
// angle is rounded to f32 as there, then reduced to [−π, π] with two fused
// steps, exact up to positions of about 2²⁰, because sin and cos are accurate
// only there.
func (t *QKV) angle(e *grid.Env, pos, i u32) (c, s f32) {
	k := e.K
	angle := dsl.Cast[dsl.F32](pos).Mul(t.InvFreq.Load(i)).Named("angle")
	hi := float64(float32(2 * math.Pi))
	turns := dsl.Rint(angle.Mul(k.F32(1 / (2 * math.Pi)))).Neg().Named("turns")
	angle = dsl.FMA(turns, k.F32(hi), angle)
	angle = dsl.FMA(turns, k.F32(2*math.Pi-hi), angle)
	c, s = dsl.Cos(angle).Named("cos"), dsl.Sin(angle).Named("sin")
	if t.Factors.Len() > 0 {
		by := t.Factors.Load(i)
		c, s = c.Mul(by), s.Mul(by)
	}
	return c, s
}

// rotate turns (y0, y1), elements i and i + D/2 of a head, by that angle.
func (t *QKV) rotate(e *grid.Env, pos, i u32, y0, y1 f32) (r0, r1 f32) {
	c, s := t.angle(e, pos, i)
	return rotated(y0, y1, c, s)
}

// rotated is (y0, y1) turned by an angle of cosine c and sine s.
func rotated(y0, y1, c, s f32) (r0, r1 f32) {
	return dsl.FMA(y1.Neg(), s, y0.Mul(c)), dsl.FMA(y0, s, y1.Mul(c))
}
