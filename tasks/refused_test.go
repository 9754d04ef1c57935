package tasks_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
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

// gemvRefused builds a GEMV that spoil has made impossible.
func gemvRefused(t testing.TB, spoil func(r *rig, g *tasks.GEMV)) *rig {
	r := newRig(t, setup{consumers: 2, stage: 1024, stages: 2, matrices: []pipeline.Matrix{{Name: "w", Rows: 8, K: 100}}})
	g := &tasks.GEMV{Name: "w", M: &r.plan.Layer[0], X: dsl.Shared[dsl.BF16](r.k, "input", 128, dsl.Align(16)),
		Part: tasks.Partials{Buf: dsl.Shared[dsl.F32](r.k, "partials", tasks.PartialsLen(2), dsl.Align(16))}}
	spoil(r, g)
	y := out[dsl.F32](r, "y", 8)
	r.body(func(c *pipeline.Consumer) {
		g.Consume(r.e, c, r.ring, r.share(0), tasks.AddResidual(y, tasks.FromBuf(y)))
	}, nil)
	return r
}

// vectorRig builds whatever emit does in the consumer warps.
func vectorRig(t testing.TB, emit func(r *rig)) *rig {
	r := newRig(t, setup{consumers: 2})
	r.body(func(*pipeline.Consumer) { emit(r) }, nil)
	return r
}

func TestWhatTemplatesRefuse(t *testing.T) {
	attention := func(spoil func(r *rig, a *tasks.Attention)) func(testing.TB) *rig {
		return func(t testing.TB) *rig { return attentionRig(t, spoil) }
	}
	gemv := func(spoil func(r *rig, g *tasks.GEMV)) func(testing.TB) *rig {
		return func(t testing.TB) *rig { return gemvRefused(t, spoil) }
	}
	vector := func(emit func(r *rig)) func(testing.TB) *rig {
		return func(t testing.TB) *rig { return vectorRig(t, emit) }
	}
	input := func(r *rig, n int) dsl.Buf[dsl.BF16] { return dsl.Shared[dsl.BF16](r.k, "input", n, dsl.Align(16)) }
	qkv := func(l tasks.KVLayout, heads, freq int) func(testing.TB) *rig {
		return vector(func(r *rig) {
			q := tasks.QKV{Heads: heads, KV: l, InvFreq: in[dsl.F32](r, "inv_freq", nil, freq), Q: out[dsl.BF16](r, "q", 128)}
			s := tasks.Step{Pos: r.k.U32(5), Pages: r.k.U32(1), Layer: r.k.U32(0), Table: in[dsl.U32](r, "table", nil, 0),
				Cache: inOut[dsl.B128](r, "kv", nil, 0)}
			q.Epilogue(r.e, s, func() dsl.Val[dsl.F32] { return r.k.F32(1) })(r.k.U32(0), r.k.F32(1), r.k.F32(1))
		})
	}
	argmax := func(vocab, grid, shared int) func(testing.TB) *rig {
		return vector(func(r *rig) {
			a := tasks.Argmax{Vocab: vocab, Logits: out[dsl.F32](r, "logits", 8), Best: out[dsl.F32](r, "best", grid),
				Index: out[dsl.U32](r, "index", grid), SharedIndex: dsl.Shared[dsl.U32](r.k, "indices", shared)}
			epilogue, publish := a.Start(r.e, r.k.F32(1))
			epilogue(r.k.U32(0), r.k.F32(1), r.k.F32(1))
			publish()
		})
	}
	for _, c := range []struct {
		file, want string
		rig        func(t testing.TB) *rig
	}{
		{"attention", `KV cache: elements in "fp4", want one of ["bf16" "e4m3"]`,
			attention(func(_ *rig, a *tasks.Attention) { a.KV.Type = "fp4" })},
		{"attention", "KV cache: 0 scales, want 4", attention(func(_ *rig, a *tasks.Attention) { a.KV.Type = tasks.KVE4M3 })},
		{"qkv", "KV cache: 0 scales, want 8", qkv(tasks.KVLayout{Layers: 2, Heads: 2, D: 32, Page: 8, Type: tasks.KVE4M3}, 4,
			16)},
		{"attention", "attention: 5 query heads are no multiple of 2 KV heads",
			attention(func(_ *rig, a *tasks.Attention) { a.Heads = 5 })},
		{"attention", "KV cache: 0 KV heads, want at least 1",
			attention(func(_ *rig, a *tasks.Attention) { a.KV.Heads = 0 })},
		{"attention", "KV cache: head dimension 24, want a multiple of 16 up to 256",
			attention(func(_ *rig, a *tasks.Attention) { a.KV.D = 24 })},
		{"attention", "KV cache: head dimension 272, want a multiple of 16 up to 256",
			attention(func(_ *rig, a *tasks.Attention) { a.KV.D = 272 })},
		{"attention", "KV cache: head dimension 0, want a multiple of 16 up to 256",
			attention(func(_ *rig, a *tasks.Attention) { a.KV.D = 0 })},
		{"attention", "KV cache: page size 12 is not a power of two",
			attention(func(_ *rig, a *tasks.Attention) { a.KV.Page = 12 })},
		{"attention", "KV cache: page size 0 is not a power of two",
			attention(func(_ *rig, a *tasks.Attention) { a.KV.Page = 0 })},
		{"attention", "attention: 0 splits, want at least 1", attention(func(_ *rig, a *tasks.Attention) { a.Splits = 0 })},
		{"attention", "attention: a stage holds 8 tokens, want a power of two of at least 16",
			attention(func(_ *rig, a *tasks.Attention) { a.PerStage = 8 })},
		{"attention", "attention: a stage holds 48 tokens, want a power of two of at least 16",
			attention(func(_ *rig, a *tasks.Attention) { a.PerStage = 48 })},
		{"attention", "attention: 32 tokens of 128 bytes are 4096 bytes, a stage has 2048",
			attention(func(_ *rig, a *tasks.Attention) { a.PerStage = 32 })},
		{"attention", "attention: Scratch has 256 elements, want 288 for 2 consumer warps",
			attention(func(_ *rig, a *tasks.Attention) { a.Heads = 6 })},
		{"attention", "attention: Tail has 4 elements, want 8",
			attention(func(r *rig, a *tasks.Attention) { a.Tail = dsl.Shared[dsl.B128](r.k, "short", 4) })},
		{"gemv", "w: the input X has 96 elements, want 128 for 100 columns padded", gemv(func(r *rig, g *tasks.GEMV) {
			g.X = dsl.Shared[dsl.BF16](r.k, "short", 96, dsl.Align(16))
		})},
		{"gemv", "w: Part has 256 elements, want 512 for 2 consumer warps", gemv(func(r *rig, g *tasks.GEMV) {
			g.Part.Buf = dsl.Shared[dsl.F32](r.k, "short", 256, dsl.Align(16))
		})},
		{"gemv", "w: a chunk of 96 columns is 1536 bytes, a stage has 1024", gemv(func(_ *rig, g *tasks.GEMV) {
			m := *g.M
			m.ChunkK = 96
			g.M = &m
		})},
		{"vector", "embedding: length 6 is not a positive multiple of 4", vector(func(r *rig) {
			e := tasks.Embedding{N: 6, Vocab: 2, Table: in[dsl.BF16](r, "table", nil, 12)}
			e.Row(r.e, r.k.U32(0))
		})},
		{"vector", "norm input: length 6 is not a positive multiple of 4", vector(func(r *rig) {
			n := tasks.NormInput{N: 6, X: tasks.FromBuf(out[dsl.F32](r, "x", 8)), Gain: in[dsl.BF16](r, "gain", nil, 8),
				Dst: input(r, 32)}
			n.Emit(r.e, r.k.U32(0))
		})},
		{"vector", "norm input: Dst has 32 elements, want 64 for 36 padded", vector(func(r *rig) {
			n := tasks.NormInput{N: 36, X: tasks.FromBuf(out[dsl.F32](r, "x", 36)), Gain: in[dsl.BF16](r, "gain", nil, 36),
				Dst: input(r, 32)}
			n.Emit(r.e, r.k.U32(0))
		})},
		{"vector", "norm input: Early is for 64 elements, want 32", vector(func(r *rig) {
			n := tasks.NormInput{N: 32, X: tasks.FromBuf(out[dsl.F32](r, "x", 32)), Gain: in[dsl.BF16](r, "gain", nil, 32),
				Dst: input(r, 32), Early: &tasks.Gains{N: 64}}
			n.Emit(r.e, r.k.U32(0))
		})},
		{"vector", "plain input: length 12 is not a positive multiple of 8", vector(func(r *rig) {
			p := tasks.PlainInput{N: 12, X: in[dsl.BF16](r, "x", nil, 16), Dst: input(r, 32)}
			p.Emit(r.e)
		})},
		{"vector", "plain input: Dst has 32 elements, want 64 for 40 padded", vector(func(r *rig) {
			p := tasks.PlainInput{N: 40, X: in[dsl.BF16](r, "x", nil, 40), Dst: input(r, 32)}
			p.Emit(r.e)
		})},
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
		{"lmhead", "argmax: a vocabulary of 0, want at least 1", argmax(0, 1, 2)},
		{"lmhead", "argmax: Best and Index have 2 and 2 elements, want one a CTA, 1", argmax(8, 2, 2)},
		{"lmhead", "argmax: SharedIndex and Scratch have 1 and 2 elements, want one a consumer warp, 2", argmax(8, 1, 1)},
	} {
		t.Run(c.want, func(t *testing.T) {
			// One line, naming the template's line and its caller's in this file.
			lines := fmt.Sprintf(`^tasks/%s\.go:\d+ \(called from tasks/refused_test\.go:\d+\): %s$`, c.file,
				regexp.QuoteMeta(c.want))
			require.Regexp(t, lines, c.rig(t).refused())
		})
	}
}
