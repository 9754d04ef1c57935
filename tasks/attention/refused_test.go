package attention_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
)

// attentionRig builds a kernel of nothing but an attention that spoil has made
// impossible.
func attentionRig(t testing.TB, spoil func(r *rig.Rig, a *attention.Attention)) *rig.Rig {
	l := attention.KVLayout{Layers: 1, Heads: 2, D: 32, Page: 8}
	r := rig.New(t, rig.Setup{Consumers: 2, KVToken: l.TokenBytes(), Stage: 2048, Stages: 2})
	a := &attention.Attention{Heads: 4, KV: l, Splits: 1, PerStage: 16,
		Q: rig.In[dsl.BF16](r, "q", nil, 128), States: rig.Out[dsl.B128](r, "partial_states", 64),
		Scratch: dsl.Shared[dsl.F32](r.K, "attention_scratch", 320, dsl.Align(16)),
		Tail:    dsl.Shared[dsl.B128](r.K, "tail", 8)}
	spoil(r, a)
	s := attention.Step{Pos: r.K.U32(5), Cached: r.K.U32(5), Pages: r.K.U32(1), Layer: r.K.U32(0),
		Table: rig.In[dsl.U32](r, "table", nil, 0), Cache: rig.In[dsl.B128](r, "kv", nil, 0)}
	r.Body(func(c *pipeline.Consumer) { a.Consume(r.Env, c, r.Ring, s) },
		func(p *pipeline.Producer) { a.Produce(r.Env, p, s) })
	return r
}

func TestWhatAttentionRefuses(t *testing.T) {
	onAttention := func(spoil func(r *rig.Rig, a *attention.Attention)) func(testing.TB) *rig.Rig {
		return func(t testing.TB) *rig.Rig { return attentionRig(t, spoil) }
	}
	vector := func(emit func(r *rig.Rig)) func(testing.TB) *rig.Rig {
		return func(t testing.TB) *rig.Rig { return rig.VectorRig(t, emit) }
	}
	qkv := func(l attention.KVLayout, heads, freq int) func(testing.TB) *rig.Rig {
		return vector(func(r *rig.Rig) {
			q := attention.QKV{Heads: heads, KV: l, InvFreq: rig.In[dsl.F32](r, "inv_freq", nil, freq),
				Q: rig.Out[dsl.BF16](r, "q", 128)}
			s := attention.Step{Pos: r.K.U32(5), Pages: r.K.U32(1), Layer: r.K.U32(0),
				Table: rig.In[dsl.U32](r, "table", nil, 0),
				Cache: rig.InOut[dsl.B128](r, "kv", nil, 0)}
			scale := func() product.NormScale { return product.KnownScale(r.K.F32(1)) }
			q.Epilogue(r.Env, s, scale)(r.K.U32(0), r.K.F32(1), r.K.F32(1))
		})
	}
	for _, c := range []struct {
		file, want string
		rig        func(t testing.TB) *rig.Rig
	}{
		{"attention", `KV cache: elements in "fp4", want one of ["bf16" "e4m3"]`,
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.KV.Type = "fp4" })},
		{"attention", "KV cache: 0 scales, want 4",
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.KV.Type = attention.KVE4M3 })},
		{"qkv", "KV cache: 0 scales, want 8", qkv(attention.KVLayout{Layers: 2, Heads: 2, D: 32, Page: 8,
			Type: attention.KVE4M3}, 4,
			16)},
		{"attention", "attention: 5 query heads are no multiple of 2 KV heads",
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.Heads = 5 })},
		{"attention", "KV cache: 0 KV heads, want at least 1",
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.KV.Heads = 0 })},
		{"attention", "KV cache: head dimension 24, want a multiple of 16 up to 256",
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.KV.D = 24 })},
		{"attention", "KV cache: head dimension 272, want a multiple of 16 up to 256",
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.KV.D = 272 })},
		{"attention", "KV cache: head dimension 0, want a multiple of 16 up to 256",
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.KV.D = 0 })},
		{"attention", "KV cache: page size 12 is not a power of two",
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.KV.Page = 12 })},
		{"attention", "KV cache: page size 0 is not a power of two",
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.KV.Page = 0 })},
		{"attention", "attention: 0 splits, want at least 1",
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.Splits = 0 })},
		{"attention", "attention: a stage holds 8 tokens, want a power of two of at least 16",
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.PerStage = 8 })},
		{"attention", "attention: a stage holds 48 tokens, want a power of two of at least 16",
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.PerStage = 48 })},
		{"attention", "attention: 32 tokens of 128 bytes are 4096 bytes, a stage has 2048",
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.PerStage = 32 })},
		{"attention", "attention: Scratch has 320 elements, want 384 for 2 consumer warps",
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.Heads = 6 })},
		{"attention", "attention: Tail has 4 elements, want 8",
			onAttention(func(r *rig.Rig, a *attention.Attention) { a.Tail = dsl.Shared[dsl.B128](r.K, "short", 4) })},
		{"attention", "attention: unsplit up to 9 tokens, but states meet in another phase; want LL and Merge",
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.Unsplit.Tokens = 9 })},
		{"attention", "attention: unsplit up to -1 tokens, want 0 to 1048576",
			onAttention(func(_ *rig.Rig, a *attention.Attention) { a.Unsplit.Tokens = -1 })},
		{"attention", "attention: unsplit in split 1 of 1", onAttention(func(_ *rig.Rig, a *attention.Attention) {
			a.Unsplit, a.LL, a.Merge = attention.Unsplit{Tokens: 9, Split: 1}, &grid.LL{}, &attention.Merge{}
		})},
		{"merge", "merge: 0 splits of 2 heads of 16, want at least 1 of each, and an even head", vector(func(r *rig.Rig) {
			m := attention.Merge{Heads: 2, D: 16, States: rig.In[dsl.B128](r, "in", nil, 16),
				Out: rig.Out[dsl.BF16](r, "out", 32)}
			m.Emit(r.Env)
		})},
		{"qkv", "KV cache: head dimension 40, want a multiple of 16 up to 256",
			qkv(attention.KVLayout{Layers: 1, Heads: 1, D: 40, Page: 8}, 1, 20)},
		{"qkv", "KV cache: page size 3 is not a power of two",
			qkv(attention.KVLayout{Layers: 1, Heads: 1, D: 32, Page: 3}, 1, 16)},
		{"qkv", "qkv: 0 query heads, want at least 1", qkv(attention.KVLayout{Layers: 1, Heads: 1, D: 32, Page: 8}, 0, 16)},
		{"qkv", "qkv: InvFreq has 32 elements, want half the head dimension, 16",
			qkv(attention.KVLayout{Layers: 1, Heads: 1, D: 32, Page: 8}, 1, 32)},
		{"columnqkv", "qkv: Q has 32 elements, want 64 for 2 tokens", vector(func(r *rig.Rig) {
			q := attention.QKVColumns{QKV: attention.QKV{Heads: 1, KV: attention.KVLayout{Layers: 1, Heads: 1, D: 32, Page: 8},
				InvFreq: rig.In[dsl.F32](r, "inv_freq", nil, 16), Q: rig.Out[dsl.BF16](r, "q", 32)}, T: 2}
			q.Epilogue(r.Env, attention.Step{Layer: r.K.U32(0), Pages: r.K.U32(1), Cache: rig.InOut[dsl.B128](r, "kv", nil, 0)},
				nil, nil)
		})},
	} {
		t.Run(c.want, func(t *testing.T) { rig.RefusesIn(t, c.file, c.want, c.rig(t)) })
	}
}
