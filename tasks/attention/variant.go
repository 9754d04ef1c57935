package attention

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// Variant is what makes attention more than softmax(Q·Kᵀ/√D)·V over all earlier
// tokens: hooks as FlashInfer's (Ye et al. 2025), Go functions that emit device
// code where attention is emitted. A nil hook changes nothing and emits nothing.
// A variant may close over buffers and scalars of the kernel.
//
// Scores are kept in base 2: a score is log2(e) times the logit, the sum of
// exponentials that of powers of 2, and queries are scaled by log2(e)/√D before
// any hook sees them. A hook that wants the logit as papers write it multiplies
// by ln 2, and its result by log2(e).
type Variant struct {
	Name string

	// Prepare computes what the other hooks want of a query row once for all keys;
	// they find it in Query.Prepared.
	Prepare func(q *Query) []f32
	// Query and Key change two elements of a query, or of a key as it is read
	// from the cache, its scale on it: lo is dimension dim (under D/2), hi dimension
	// dim + D/2. The results are rounded to bf16, with an e4m3 cache keys to f16.
	Query func(q *Query, dim u32, lo, hi f32) (f32, f32)
	Key   func(k *Key, dim u32, lo, hi f32) (f32, f32)
	// Value changes an element of a value as it is read, its scale on it; the result
	// is rounded to bf16, with an e4m3 cache to f16.
	Value func(k *Key, dim u32, v f32) f32
	// Logits changes a score. Where Sum is set its result is the weight.
	Logits func(q *Query, k *Key, score f32) f32
	// Near are cheaper ways to Logits of scores near 0, those of least magnitudes first: attention of many rows takes the
	// first one that does for all scores of a warp's block.
	Near []Near
	// Bound is the largest magnitude of what Logits gives; 0 where there is none. Attention of many rows searches no
	// maximum of scores that are bounded by at most maxBound.
	Bound float64
	// Slope is what Logits adds for each position that the key is ahead of the query, where it does nothing else.
	// Attention of many rows adds what the keys of a block have in common once a row. nil: see Logits.
	Slope func(q *Query) f32
	// Mask is whether a query sees a key, among those that it could: earlier
	// tokens and, as RowTail says, the step's own. A masked key weighs 0, so its
	// value must be finite: 0·NaN is NaN.
	Mask func(q *Query, k *Key) dsl.Pred
	// Output changes an element of the normalised output.
	Output func(q *Query, dim u32, v f32) f32

	// Sum is attention without softmax: the output is the sum of the values, each
	// times its weight, which Logits must give. Masked keys weigh 0. With an e4m3
	// cache weights are f16: at most 65504, and those under 2⁻¹⁴ lose digits.
	Sum bool

	// Window promises that Mask hides every key from position Sinks on that is
	// Window or more positions before the query: chunks of such keys are not even
	// read. 0: no window.
	Window, Sinks int
	// Windows, unless nil, is the window of a step's layer, 1 to Window, instead of Window.
	Windows func(s Step) u32

	// Means is the variant in float64.
	Means Meaning
}

// Near is Logits of a score of at most To in magnitude.
type Near struct {
	To    float64
	Logit func(k *dsl.Kernel, score f32) f32
}

// Query is a query token's head, as hooks see it.
type Query struct {
	Env   *grid.Env
	Step  Step
	Heads int // query heads

	Head     u32 // query head
	Row      u32 // token row of the step, 0 without a plan
	Position u32 // in the sequence

	Prepared []f32 // what Prepare returned

	work  *Work
	parts []*Query // of a combined variant: each part's
}

// Word is word i (kv.RowPosition, …) of the token row's record; 0 without a
// plan. It costs a load where it is called.
func (q *Query) Word(i int) u32 {
	if q.work == nil {
		return q.Env.K.U32(0)
	}
	return q.work.Rows.Load(q.Row.MulC(kv.RowWords).AddC(i))
}

// First is the position of the first new token of the query's sequence in this
// step. It costs two loads where it is called.
func (q *Query) First() u32 {
	if q.work == nil {
		return q.Step.Pos
	}
	return q.work.Rows.Load(q.Word(kv.RowFirst).MulC(kv.RowWords).AddC(kv.RowPosition)).Add(q.Step.Index)
}

// Key is a cached or new token of a KV head, as hooks see it.
type Key struct {
	Env  *grid.Env
	Step Step

	Head     u32 // KV head
	Index    u32 // place in the sequence, from 0
	Position u32 // position in the sequence: Index, but in a draft tree its depth there
	First    u32 // for the Key hook: position of the first new token of the sequence (of the item's first query row)

	ahead func() f32 // see Ahead; nil: by the positions
}

// Ahead is how far the key is ahead of a query: its position less the query's, 0 or negative for a key that is seen.
func (k *Key) Ahead(q *Query) f32 {
	if k.ahead != nil {
		return k.ahead()
	}
	return dsl.Cast[dsl.F32](dsl.Cast[dsl.I32](k.Position).Sub(dsl.Cast[dsl.I32](q.Position)))
}

// hooksKeys and hooksValues are whether the variant changes keys, or values, as
// they are read.
func (t *Attention) hooksKeys() bool   { return t.Variant != nil && t.Variant.Key != nil }
func (t *Attention) hooksValues() bool { return t.Variant != nil && t.Variant.Value != nil }

// sums is whether the variant has no softmax.
func (t *Attention) sums() bool { return t.Variant != nil && t.Variant.Sum }

// problem says what is wrong with the variant, or nothing.
func (v *Variant) problem() string {
	if v == nil {
		return ""
	}
	return rule.First(
		rule.Need(!v.Sum || v.Logits != nil, "attention: variant %q sums without softmax, but has no Logits to give weights",
			v.Name),
		rule.Need(v.Logits != nil || v.Slope == nil, "attention: variant %q has a slope, but no Logits", v.Name),
		rule.Need(!v.Sum || v.Slope == nil, "attention: variant %q sums without softmax, but has a slope", v.Name),
		rule.Need(v.Logits != nil || len(v.Near) == 0 && v.Bound == 0,
			"attention: variant %q says of its scores what they are near 0, or their bound, but has no Logits", v.Name),
		rule.Need(!v.Sum || v.Bound == 0, "attention: variant %q sums without softmax, but bounds scores", v.Name),
		rule.Need(v.Window >= 0 && v.Sinks >= 0, "attention: variant %q has a window of %d with %d sinks", v.Name, v.Window,
			v.Sinks),
		rule.Need(v.Window > 0 || v.Sinks == 0, "attention: variant %q has %d sinks without a window", v.Name, v.Sinks),
		rule.Need(v.Window == 0 || v.Mask != nil, "attention: variant %q has a window of %d, but no Mask", v.Name, v.Window))
}

// query is what hooks see of a query row; nil where no hook asks.
func (v *Variant) query(e *grid.Env, s Step, heads int, head, row u32, w *Work) *Query {
	q := &Query{Env: e, Step: s, Heads: heads, Head: dsl.Optional(head), Row: dsl.Optional(row), Position: s.Pos, work: w}
	if w != nil {
		q.Position = dsl.Optional(q.Word(kv.RowPosition).Add(s.Index))
	}
	q.prepare(v)
	return q
}

func (q *Query) prepare(v *Variant) {
	if v.Prepare != nil {
		for _, x := range v.Prepare(q) {
			q.Prepared = append(q.Prepared, dsl.Optional(x))
		}
	}
}

// asksForQueries is whether a hook of the variant that runs before the output does.
func (t *Attention) asksForQueries() bool {
	v := t.Variant
	return v != nil && (v.Query != nil || v.Logits != nil || v.Mask != nil)
}

func (t *Attention) query(e *grid.Env, s Step, head, row u32) *Query {
	if !t.asksForQueries() {
		return nil
	}
	return t.Variant.query(e, s, t.Heads, head, row, t.Work)
}

// outputs is the Output hook for a query row.
func (v *Variant) outputs(e *grid.Env, s Step, heads int, head, row u32, w *Work) func(dim u32, lo, hi f32) (f32, f32) {
	if v == nil || v.Output == nil {
		return func(_ u32, lo, hi f32) (f32, f32) { return lo, hi }
	}
	q := v.query(e, s, heads, head, row, w)
	return func(dim u32, lo, hi f32) (f32, f32) {
		return v.Output(q, dsl.Optional(dim), lo), v.Output(q, dsl.Optional(dim.AddC(1)), hi)
	}
}
