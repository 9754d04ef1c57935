package tasks_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

// gemmRefused builds a GEMM of 4 tokens that spoil has made impossible.
func gemmRefused(t testing.TB, batch int, spoil func(r *rig, g *tasks.GEMM)) *rig {
	r := newRig(t, setup{consumers: 2, stage: 1024, stages: 2, batch: batch,
		matrices: []pipeline.Matrix{{Name: "w", Rows: 8, K: 104}}})
	a := tasks.Activations{K: 104, T: 4}
	g := &tasks.GEMM{Name: "w", M: &r.plan.Layer[0], In: a, X: in[dsl.BF16](r, "x", nil, a.Len()),
		Part: tasks.Partials{Buf: sharedF32(r, "partials", tasks.ColumnPartialsLen(2, 8, 0))}}
	spoil(r, g)
	r.body(func(c *pipeline.Consumer) {
		g.Consume(r.e, c, r.ring, r.share(0), r.k.U32(4), nil, func(_, _ dsl.Val[dsl.U32], _, _ dsl.Val[dsl.F32]) {})
	}, nil)
	return r
}

func TestWhatTemplatesForSeveralTokensRefuse(t *testing.T) {
	gemm := func(spoil func(r *rig, g *tasks.GEMM)) func(testing.TB) *rig {
		return func(t testing.TB) *rig { return gemmRefused(t, 2, spoil) }
	}
	vector := func(emit func(r *rig)) func(testing.TB) *rig {
		return func(t testing.TB) *rig { return vectorRig(t, emit) }
	}
	residual := func(spoil func(r *rig, a *tasks.AddResidualColumns)) func(testing.TB) *rig {
		return vector(func(r *rig) {
			a := tasks.Activations{K: 64, T: 3}
			add := &tasks.AddResidualColumns{Out: a, X: out[dsl.F32](r, "x", 3*64), Next: out[dsl.BF16](r, "next", a.Len()),
				Gain: in[dsl.BF16](r, "gain", nil, 64), SQ: out[dsl.F32](r, "sq", 8),
				Shared: sharedF32(r, "sums", tasks.ColumnSumsLen(2, 8))}
			spoil(r, add)
			epilogue, publish := add.Start(r.e, r.k.U32(0))
			epilogue(r.k.U32(0), r.k.U32(0), r.k.F32(1), r.k.F32(1))
			publish()
		})
	}
	argmax := func(spoil func(r *rig, a *tasks.ArgmaxColumns)) func(testing.TB) *rig {
		return vector(func(r *rig) {
			a := &tasks.ArgmaxColumns{Vocab: 8, T: 9, Logits: out[dsl.F32](r, "logits", 72), Best: out[dsl.F32](r, "best", 16),
				Index: out[dsl.U32](r, "index", 16), SharedBest: sharedF32(r, "bests", 16),
				SharedIndex: dsl.Shared[dsl.U32](r.k, "indices", 16), Chosen: dsl.Shared[dsl.U32](r.k, "chosen", 9)}
			spoil(r, a)
			a.Start(r.e, nil)
		})
	}
	for _, c := range []struct {
		file, want string
		rig        func(t testing.TB) *rig
	}{
		{"gemm", "w: the plan has no batches",
			func(t testing.TB) *rig { return gemmRefused(t, 0, func(*rig, *tasks.GEMM) {}) }},
		{"gemm", "w: the input has 96 columns, the matrix 104", gemm(func(_ *rig, g *tasks.GEMM) { g.In.K = 96 })},
		{"gemm", "w: 17 tokens, want 2 to 16", gemm(func(r *rig, g *tasks.GEMM) {
			g.In.T, g.Part.Buf = 17, sharedF32(r, "more", tasks.ColumnPartialsLen(2, 16, 0))
		})},
		{"gemm", "w: 1 tokens, want 2 to 16", gemm(func(_ *rig, g *tasks.GEMM) { g.In.T = 1 })},
		{"gemm", "w: the buffer has 96 elements, want 1024 for 4 tokens of 104 columns",
			gemm(func(r *rig, g *tasks.GEMM) { g.X = in[dsl.BF16](r, "short", nil, 96) })},
		{"gemm", "w: Part has 100 elements, want 512 for 2 consumer warps and 8 columns",
			gemm(func(r *rig, g *tasks.GEMM) { g.Part.Buf = sharedF32(r, "short", 100) })},
		{"gemm", "w: a chunk of 96 columns is 1536 bytes, a stage has 1024", gemm(func(_ *rig, g *tasks.GEMM) {
			m := *g.M
			m.ChunkK = 96
			g.M = &m
		})},
		{"columnepilogue", "residual: 12 columns, want a positive multiple of 8",
			residual(func(_ *rig, a *tasks.AddResidualColumns) { a.Out.K = 12 })},
		{"columnepilogue", "residual: X has 64 elements, want 192",
			residual(func(r *rig, a *tasks.AddResidualColumns) { a.X = out[dsl.F32](r, "short", 64) })},
		{"columnepilogue", "residual: SQ has 3 elements, want 8",
			residual(func(r *rig, a *tasks.AddResidualColumns) { a.SQ = out[dsl.F32](r, "short", 3) })},
		{"columnepilogue", "residual: Shared has 8 elements, want 16",
			residual(func(r *rig, a *tasks.AddResidualColumns) { a.Shared = sharedF32(r, "short", 8) })},
		{"glu", "SwiGLU: the buffer has 64 elements, want 256 for 2 tokens of 32 columns", vector(func(r *rig) {
			tasks.GLU{}.Columns(r.e, tasks.Activations{K: 32, T: 2}, out[dsl.BF16](r, "act", 64), nil)
		})},
		{"columnepilogue", "scale: SQ has 4 elements, want 8", vector(func(r *rig) {
			s := tasks.ScaleColumns{N: 32, T: 2, SQ: out[dsl.F32](r, "sq", 4), Shared: sharedF32(r, "scales", 24)}
			s.Emit(r.e)
		})},
		{"columnepilogue", "scale: Shared has 23 elements, want 24", vector(func(r *rig) {
			s := tasks.ScaleColumns{N: 32, T: 2, SQ: out[dsl.F32](r, "sq", 8), Shared: sharedF32(r, "scales", 23)}
			s.Emit(r.e)
		})},
		{"columnembed", "embedding: X has 32 elements, want 64", vector(func(r *rig) {
			a := tasks.Activations{K: 32, T: 2}
			e := tasks.EmbedColumns{Out: a, X: out[dsl.F32](r, "x", 32), Next: out[dsl.BF16](r, "next", a.Len()),
				SQ: out[dsl.F32](r, "sq", 8)}
			e.Emit(r.e, r.k.U32(1), r.k.U32(0), nil)
		})},
		{"columnqkv", "qkv: Q has 32 elements, want 64 for 2 tokens", vector(func(r *rig) {
			q := tasks.QKVColumns{QKV: tasks.QKV{Heads: 1, KV: tasks.KVLayout{Layers: 1, Heads: 1, D: 32, Page: 8},
				InvFreq: in[dsl.F32](r, "inv_freq", nil, 16), Q: out[dsl.BF16](r, "q", 32)}, T: 2}
			q.Epilogue(r.e, tasks.Step{Layer: r.k.U32(0), Pages: r.k.U32(1), Cache: inOut[dsl.B128](r, "kv", nil, 0)}, nil, nil)
		})},
		{"columnrows", "rows: Words has 8 elements, want 16", vector(func(r *rig) {
			rows := tasks.ColumnRows{T: 2, Words: dsl.Shared[dsl.U32](r.k, "words", kv.RowWords), Count: r.k.U32(1),
				Grown: r.k.U32(0)}
			rows.Load(r.e, in[dsl.U32](r, "rows", nil, 16), in[dsl.U32](r, "table", nil, 0), 16)
		})},
		{"columnlogits", "argmax: a vocabulary of 0, want at least 1",
			argmax(func(_ *rig, a *tasks.ArgmaxColumns) { a.Vocab = 0 })},
		{"columnlogits", "argmax: 17 tokens, want 2 to 16", argmax(func(_ *rig, a *tasks.ArgmaxColumns) { a.T = 17 })},
		{"columnlogits", "argmax: Logits has 8 elements, want 72",
			argmax(func(r *rig, a *tasks.ArgmaxColumns) { a.Logits = out[dsl.F32](r, "short", 8) })},
		{"columnlogits", "argmax: Best and Index have 8 and 16 elements, want 16",
			argmax(func(r *rig, a *tasks.ArgmaxColumns) { a.Best = out[dsl.F32](r, "short", 8) })},
		{"columnlogits", "argmax: SharedBest and SharedIndex have 8 and 16 elements, want 16",
			argmax(func(r *rig, a *tasks.ArgmaxColumns) { a.SharedBest = sharedF32(r, "short", 8) })},
		{"columnlogits", "argmax: Chosen has 8 elements, want 9",
			argmax(func(r *rig, a *tasks.ArgmaxColumns) { a.Chosen = dsl.Shared[dsl.U32](r.k, "short", 8) })},
	} {
		t.Run(c.want, func(t *testing.T) {
			lines := fmt.Sprintf(`^tasks/%s\.go:\d+ \(called from tasks/columnsrefused_test\.go:\d+\): %s$`, c.file,
				regexp.QuoteMeta(c.want))
			require.Regexp(t, lines, c.rig(t).refused())
		})
	}
}
