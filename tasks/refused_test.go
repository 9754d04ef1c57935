package tasks_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
)

// attentionRig builds a kernel of nothing but an attention that spoil has made
// impossible.
func attentionRig(t testing.TB, spoil func(r *rig, a *tasks.Attention)) *rig {
	l := tasks.KVLayout{Layers: 1, Heads: 2, D: 32, Page: 8}
	r := newRig(t, setup{consumers: 2, kvToken: l.TokenBytes(), stage: 2048, stages: 2})
	a := &tasks.Attention{Heads: 4, KV: l, Splits: 1, PerStage: 16,
		Q: in[dsl.BF16](r, "q", nil, 128), States: out[dsl.B128](r, "partial_states", 64),
		Scratch: dsl.Shared[dsl.F32](r.k, "attention_scratch", 256, dsl.Align(16)),
		Tail:    dsl.Shared[dsl.B128](r.k, "tail", 8)}
	spoil(r, a)
	s := tasks.Step{Pos: r.k.U32(5), Cached: r.k.U32(5), Pages: r.k.U32(1), Layer: r.k.U32(0),
		Table: in[dsl.U32](r, "table", nil, 0), Cache: in[dsl.B128](r, "kv", nil, 0)}
	r.body(func(c *pipeline.Consumer) { a.Consume(r.e, c, r.ring, s) },
		func(p *pipeline.Producer) { a.Produce(r.e, p, s) })
	return r
}

func TestWhatAttentionRefuses(t *testing.T) {
	onAttention := func(spoil func(r *rig, a *tasks.Attention)) func(testing.TB) *rig {
		return func(t testing.TB) *rig { return attentionRig(t, spoil) }
	}
	vector := func(emit func(r *rig)) func(testing.TB) *rig {
		return func(t testing.TB) *rig { return vectorRig(t, emit) }
	}
	qkv := func(l tasks.KVLayout, heads, freq int) func(testing.TB) *rig {
		return vector(func(r *rig) {
			q := tasks.QKV{Heads: heads, KV: l, InvFreq: in[dsl.F32](r, "inv_freq", nil, freq), Q: out[dsl.BF16](r, "q", 128)}
			s := tasks.Step{Pos: r.k.U32(5), Pages: r.k.U32(1), Layer: r.k.U32(0), Table: in[dsl.U32](r, "table", nil, 0),
				Cache: inOut[dsl.B128](r, "kv", nil, 0)}
			q.Epilogue(r.e, s, func() dsl.Val[dsl.F32] { return r.k.F32(1) })(r.k.U32(0), r.k.F32(1), r.k.F32(1))
		})
	}
	for _, c := range []struct {
		file, want string
		rig        func(t testing.TB) *rig
	}{
		{"attention", `KV cache: elements in "fp4", want one of ["bf16" "e4m3"]`,
			onAttention(func(_ *rig, a *tasks.Attention) { a.KV.Type = "fp4" })},
		{"attention", "KV cache: 0 scales, want 4",
			onAttention(func(_ *rig, a *tasks.Attention) { a.KV.Type = tasks.KVE4M3 })},
		{"qkv", "KV cache: 0 scales, want 8", qkv(tasks.KVLayout{Layers: 2, Heads: 2, D: 32, Page: 8, Type: tasks.KVE4M3}, 4,
			16)},
		{"attention", "attention: 5 query heads are no multiple of 2 KV heads",
			onAttention(func(_ *rig, a *tasks.Attention) { a.Heads = 5 })},
		{"attention", "KV cache: 0 KV heads, want at least 1",
			onAttention(func(_ *rig, a *tasks.Attention) { a.KV.Heads = 0 })},
		{"attention", "KV cache: head dimension 24, want a multiple of 16 up to 256",
			onAttention(func(_ *rig, a *tasks.Attention) { a.KV.D = 24 })},
		{"attention", "KV cache: head dimension 272, want a multiple of 16 up to 256",
			onAttention(func(_ *rig, a *tasks.Attention) { a.KV.D = 272 })},
		{"attention", "KV cache: head dimension 0, want a multiple of 16 up to 256",
			onAttention(func(_ *rig, a *tasks.Attention) { a.KV.D = 0 })},
		{"attention", "KV cache: page size 12 is not a power of two",
			onAttention(func(_ *rig, a *tasks.Attention) { a.KV.Page = 12 })},
		{"attention", "KV cache: page size 0 is not a power of two",
			onAttention(func(_ *rig, a *tasks.Attention) { a.KV.Page = 0 })},
		{"attention", "attention: 0 splits, want at least 1", onAttention(func(_ *rig, a *tasks.Attention) { a.Splits = 0 })},
		{"attention", "attention: a stage holds 8 tokens, want a power of two of at least 16",
			onAttention(func(_ *rig, a *tasks.Attention) { a.PerStage = 8 })},
		{"attention", "attention: a stage holds 48 tokens, want a power of two of at least 16",
			onAttention(func(_ *rig, a *tasks.Attention) { a.PerStage = 48 })},
		{"attention", "attention: 32 tokens of 128 bytes are 4096 bytes, a stage has 2048",
			onAttention(func(_ *rig, a *tasks.Attention) { a.PerStage = 32 })},
		{"attention", "attention: Scratch has 256 elements, want 288 for 2 consumer warps",
			onAttention(func(_ *rig, a *tasks.Attention) { a.Heads = 6 })},
		{"attention", "attention: Tail has 4 elements, want 8",
			onAttention(func(r *rig, a *tasks.Attention) { a.Tail = dsl.Shared[dsl.B128](r.k, "short", 4) })},
		{"merge", "merge: 0 splits of 2 heads of 16, want at least 1 of each, and an even head", vector(func(r *rig) {
			m := tasks.Merge{Heads: 2, D: 16, States: in[dsl.B128](r, "in", nil, 16), Out: out[dsl.BF16](r, "out", 32)}
			m.Emit(r.e)
		})},
		{"qkv", "KV cache: head dimension 40, want a multiple of 16 up to 256",
			qkv(tasks.KVLayout{Layers: 1, Heads: 1, D: 40, Page: 8}, 1, 20)},
		{"qkv", "KV cache: page size 3 is not a power of two",
			qkv(tasks.KVLayout{Layers: 1, Heads: 1, D: 32, Page: 3}, 1, 16)},
		{"qkv", "qkv: 0 query heads, want at least 1", qkv(tasks.KVLayout{Layers: 1, Heads: 1, D: 32, Page: 8}, 0, 16)},
		{"qkv", "qkv: InvFreq has 32 elements, want half the head dimension, 16",
			qkv(tasks.KVLayout{Layers: 1, Heads: 1, D: 32, Page: 8}, 1, 32)},
	} {
		t.Run(c.want, func(t *testing.T) { refusesIn(t, c.file, c.want, c.rig(t)) })
	}
}
