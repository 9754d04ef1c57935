package attention_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/stretchr/testify/require"
)

// sequence is one of a ragged step.
type sequence struct {
	cached, new int
	parents     []int // of a draft tree: each new token's, −1 for the root's; nil for a chain
}

// ragged is attention of a plan's items, with its merge. Zero fields have
// defaults; the sequences of one case are cases of different lengths.
type ragged struct {
	kvHeads, group, d, page, perStage int
	sms, consumers, tokens            int
	seqs                              []sequence
	parts                             int // items that a unit's KV of one head is cut into
	prefix                            int // cached tokens that all sequences share, a multiple of the page size
	index                             int // steps of the launch before this one; every sequence grows by one a step
	pinned                            bool
	tails                             bool // every new token's KV is an item's of its own
	selection                         bool // every other page of the cache is left out
	scale                             float64
	variant                           string
	kv                                attention.KVType
}

func (c ragged) String() string {
	return fmt.Sprintf("%s %s %v prefix %d, %d x %d heads of %d, page %d, %d a stage, %d parts, %d SMs, %d warps, step %d, pinned %v",
		c.variant, c.kv, c.seqs, c.prefix, c.kvHeads, c.group, c.d, c.page, c.perStage, c.parts, c.sms, c.consumers, c.index,
		c.pinned)
}

func (c ragged) withDefaults() ragged {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.kvHeads, 1)
	def(&c.group, 2)
	def(&c.d, 32)
	def(&c.page, 8)
	def(&c.perStage, 16)
	def(&c.sms, 2)
	def(&c.consumers, 2)
	def(&c.parts, 1)
	rows := 0
	for _, s := range c.seqs {
		rows += s.new
	}
	def(&c.tokens, rows)
	if c.scale == 0 {
		c.scale = 1
	}
	return c
}

// token is one cached or new token of a sequence.
type token struct {
	index, position int
	page, slot      int       // where it lies
	k, v            []float64 // [kvHeads·d]
}

// row is one query row.
type row struct {
	seq, child int // of its sequence, and which of its new tokens
	position   int
	tail       uint32
	first      int // row of the sequence's first new token
}

// batch is the memory of one ragged step.
type batch struct {
	ragged
	rows    []row
	toks    [][]token // [sequence]: cached, new
	entries []uint32  // the page table
	places  []uint32  // position of each entry's first token
	start   []int     // [sequence] first entry of its own unit
	cache   []byte
	scales  []float32 // of e4m3, [layer][kvHeads][K, V]
	pages   int
	q       []half.BF16 // in order of the dimensions
	items   []item
	indptr  []uint32
	spoil   func(r *rig.Rig, a *attention.Attention) // to be refused; may be nil
}

// item is a work item before it is in words.
type item struct {
	head, entries, cached, grow, a, b, of, position int
	rows                                            []int
	tail, tailRow                                   int
	direct                                          bool
	partials                                        []int
}

func (s sequence) depth(i int) int {
	if s.parents == nil {
		return i
	}
	if s.parents[i] < 0 {
		return 0
	}
	return s.depth(s.parents[i]) + 1
}

func (s sequence) sees(i int) uint32 {
	if s.parents == nil {
		return 1<<(i+1) - 1
	}
	bits := uint32(1) << i
	if s.parents[i] >= 0 {
		bits |= s.sees(s.parents[i])
	}
	return bits
}

func (c ragged) layout() attention.KVLayout {
	return attention.KVLayout{Layers: 2, Heads: c.kvHeads, D: c.d, Page: c.page, Type: c.kv}
}

// newBatch fills layer 1 of 2: pages in shuffled order, NaN where no token is.
func newBatch(c ragged) *batch {
	b := &batch{ragged: c}
	rng := rig.Rand(uint64(c.d*c.group + len(c.seqs) + c.index))
	l := c.layout()
	need := c.prefix / c.page
	for _, s := range c.seqs {
		need += (s.cached+c.index+s.new)/c.page + 2
	}
	b.pages = need + 2
	free := rng.Perm(b.pages)
	b.cache = bytes.Repeat([]byte{0xff}, l.Layers*b.pages*l.PageBytes())
	b.scales = scales(l)
	write := func(page uint32, slot int) token {
		t := token{page: int(page), slot: slot, k: rig.Wide(rig.Normals(rng, c.kvHeads*c.d, c.scale)),
			v: rig.Wide(rig.Normals(rng, c.kvHeads*c.d, 1))}
		for v, xs := range [][]float64{t.k, t.v} {
			for i, x := range xs {
				at := l.Index(b.pages, 1, int(page), i/c.d, slot, v, i%c.d)
				xs[i] = putElement(l, b.cache, b.scales, at, 1, i/c.d, v, x)
			}
		}
		return t
	}
	take := func(position int) {
		b.entries, b.places = append(b.entries, uint32(free[0])), append(b.places, uint32(position))
		free = free[1:]
	}
	var prefix []token
	for i := range c.prefix {
		if i%c.page == 0 {
			take(i)
		}
		t := write(b.entries[len(b.entries)-1], i%c.page)
		t.index, t.position = i, i
		prefix = append(prefix, t)
	}
	for n, s := range c.seqs {
		b.start = append(b.start, len(b.entries))
		toks := slices.Clone(prefix)
		first := len(b.rows)
		for i := range s.cached + c.index + s.new {
			place := i
			if c.selection { // pages 0, 2, 4 … of the sequence are cached ones; what is new follows
				place = i + i/c.page*c.page
			}
			if i%c.page == 0 {
				take(c.prefix + place)
			}
			t := write(b.entries[len(b.entries)-1], i%c.page)
			t.index, t.position = c.prefix+place, c.prefix+place
			if i >= s.cached+c.index {
				j := i - s.cached - c.index
				t.index, t.position = b.base(n)+j, b.base(n)+s.depth(j)
				b.rows = append(b.rows, row{n, j, t.position, s.sees(j), first})
			}
			toks = append(toks, t)
		}
		b.toks = append(b.toks, toks)
	}
	b.q = rig.Normals(rng, c.tokens*c.kvHeads*c.group*c.d, c.scale*math.Log2E/math.Sqrt(float64(c.d)))
	b.plan()
	return b
}

// base is the position of a sequence's first new token.
func (b *batch) base(seq int) int {
	n := b.seqs[seq].cached + b.index
	if b.selection {
		n = 2*n + 3
	}
	return b.prefix + n
}

// rig is the kernel: attention, a grid barrier, merge where there is anything to.
func (b *batch) rig(t testing.TB, v *attention.Variant, declare func(r *rig.Rig) *attention.Variant) *rig.Rig {
	l, heads := b.layout(), b.kvHeads*b.group
	r := rig.New(t, rig.KVSetup(b.sms, b.consumers, l, b.perStage, b.group+b.parts+len(b.seqs)+b.seqs[0].cached))
	if declare != nil {
		v = declare(r)
	}
	perCTA, words := b.words()
	partials := max(1, int(b.indptr[len(b.indptr)-1]))
	plan := rig.In[dsl.U32](r, "attn_plan", rig.U32Bytes(words...), len(words))
	work := &attention.Work{Classes: 1, PerCTA: perCTA, Items: dsl.Shared[dsl.U32](r.K, "items",
		attention.WorkWords(1, perCTA),
		dsl.Align(16)),
		Rows: rig.In[dsl.U32](r, "rows", rig.U32Bytes(b.rowWords()...), b.tokens*kv.RowWords)}
	r.Work = work
	work.Fresh = pipeline.NewLanding(r.K, "fresh", nil)
	if b.selection {
		work.Selection, work.Positions = true, rig.In[dsl.U32](r, "positions", rig.U32Bytes(b.places...), len(b.places))
	}
	final := attention.FragmentOrder(r.K, rig.Out[dsl.BF16](r, "attn", (heads*b.d+31)/32*32*b.tokens), b.tokens,
		pipeline.FormatBF16)
	att := &attention.Attention{Heads: heads, KV: l, PerStage: b.perStage, Tokens: b.tokens, Work: work, Final: final,
		Variant: v, Q: rig.In[dsl.BF16](r, "q", rig.BF16Bytes(inKeyOrder(l, b.q)), len(b.q)),
		States: rig.Out[dsl.B128](r, "states", partials*attention.StatePackets(b.group, b.d))}
	att.Scratch = dsl.Shared[dsl.F32](r.K, "attention_scratch", att.ScratchLen(b.consumers), dsl.Align(16))
	if b.spoil != nil {
		b.spoil(r, att)
	}
	merge := &attention.Merge{Heads: heads, D: b.d, States: att.States, Variant: v,
		Table: &attention.MergeTable{Tokens: b.tokens, KVHeads: b.kvHeads,
			Indptr: rig.In[dsl.U32](r, "attn_merge", rig.U32Bytes(b.indptr...), len(b.indptr)), Work: work, Final: final}}
	step := attention.Step{Pos: r.K.U32(0), Cached: r.K.U32(0), Pages: r.Scalar("pages", uint32(b.pages)),
		Layer: r.K.U32(1),
		Index: r.Scalar("index", uint32(b.index)), Table: rig.In[dsl.U32](r, "table", rig.U32Bytes(b.entries...),
			len(b.entries)),
		Cache: rig.In[dsl.B128](r, "kv", b.cache, 0)}
	if b.scales != nil {
		step.Scales = rig.In[dsl.F32](r, "kv_scales", rig.F32Bytes(b.scales), len(b.scales))
	}
	counter := rig.InOut[dsl.U32](r, "barrier", rig.U32Bytes(0), 1)
	r.Prologue = func() { work.Fetch(r.Env, plan) }
	r.Body(func(c *pipeline.Consumer) {
		bar := grid.NewGridBarrier(r.Env, counter, r.K.U32(0))
		att.Consume(r.Env, c, r.Ring, step)
		r.K.If(merge.Table.Any(r.Env), func() {
			bar.Sync()
			merge.EmitIn(r.Env, step)
		})
	}, func(p *pipeline.Producer) { att.Produce(r.Env, p, step) })
	return r
}

// output is row t of the attention output, which is in fragment order.
func (b *batch) output(got map[string][]byte, t int) []float64 {
	flat := rig.Wide(rig.BF16s(got["attn"]))
	width := b.kvHeads * b.group * b.d
	out := make([]float64, width)
	for i := range out {
		out[i] = flat[(i/32*b.tokens+t)*32+i%32]
	}
	return out
}

// want is the float64 attention of a row's head, its log-sum-exp, and the size
// of what was added: errors are proportional to it.
func (b *batch) want(v *attention.Variant, t, head int) (out, size []float64, lse float64) {
	r := b.rows[t]
	h, d := head/b.group, b.d
	base := b.base(r.seq)
	q := rig.Wide(b.q[(t*b.kvHeads*b.group+head)*d:][:d])
	for i := range q {
		q[i] /= math.Log2E / math.Sqrt(float64(d))
	}
	place := attention.Place{Head: head, Heads: b.kvHeads * b.group, Row: t, Position: r.position, First: base}
	var at []attention.Place
	var keys, values, abs [][]float64
	toks := b.toks[r.seq]
	cached := len(toks) - b.seqs[r.seq].new
	for i, tok := range toks {
		if i >= cached && r.tail>>(i-cached)&1 == 0 {
			continue
		}
		at = append(at, attention.Place{Head: h, Index: tok.index, Position: tok.position})
		keys, values = append(keys, tok.k[h*d:(h+1)*d]), append(values, tok.v[h*d:(h+1)*d])
		abs = append(abs, rig.Scaled(tok.v[h*d:(h+1)*d], 1, 0))
	}
	out, lse = v.Attend(place, q, at, keys, values)
	size, _ = v.Attend(place, q, at, keys, abs)
	return out, rig.Scaled(size, 1, 0), lse
}

// check compares the output. Weights are rounded to bf16 (2⁻⁸ of the weighted
// mean of |v|; with an e4m3 cache to f16, 2⁻¹¹), and so is the result; rounding is what a variant's transformed
// queries and keys add, in units of 2⁻⁸ of the size.
func (b *batch) check(t testing.TB, v *attention.Variant, got map[string][]byte, rounding float64) {
	weights := 1.0
	if b.kv == attention.KVE4M3 {
		weights = 0.125
	}
	for i := range b.rows {
		out := b.output(got, i)
		for head := range b.kvHeads * b.group {
			want, size, lse := b.want(v, i, head)
			rig.Near(t, want, out[head*b.d:(head+1)*b.d], rig.Scaled(size, (1+weights+rounding)*0x1p-8, 1e-6),
				"row %d (%+v), head %d",
				i, b.rows[i], head)
			b.checkLSE(t, v, got, i, head, lse, rounding)
		}
	}
}

// checkLSE compares the sum of the row's partial states' with the log-sum-exp.
func (b *batch) checkLSE(t testing.TB, v *attention.Variant, got map[string][]byte, row, head int, want,
	rounding float64) {
	at := row*b.kvHeads + head/b.group
	first, end := int(b.indptr[at]), int(b.indptr[at+1])
	if first == end || v != nil && v.Sum {
		return
	}
	top, sum := math.Inf(-1), 0.0
	_, all := statesOf(got["states"], b.d)
	for i := first; i < end; i++ {
		top = max(top, all[i*b.group+head%b.group])
	}
	if math.IsInf(want, -1) {
		require.Equal(t, want, top)
		return
	}
	for i := first; i < end; i++ {
		sum += math.Exp2(all[i*b.group+head%b.group] - top)
	}
	require.InDelta(t, want*math.Log2E, top+math.Log2(sum), (1e-5+rounding*0x1p-9)*(1+math.Abs(want)), "row %d, head %d",
		row, head)
}

const maskWords = 12
