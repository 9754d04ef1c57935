package product_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
)

// gemmRefused builds a GEMM of 4 tokens that spoil has made impossible.
func gemmRefused(t testing.TB, batch int, spoil func(r *rig.Rig, g *product.GEMM)) *rig.Rig {
	r := rig.New(t, rig.Setup{Consumers: 2, Stage: 1024, Stages: 2, Batch: batch,
		Matrices: []pipeline.Matrix{{Name: "w", Rows: 8, K: 104}}})
	a := product.Activations{K: 104, T: 4}
	g := &product.GEMM{Name: "w", M: &r.Plan.Layer[0], In: a, X: rig.In[dsl.BF16](r, "x", nil, a.Len()),
		Part: product.Partials{Buf: rig.SharedF32(r, "partials", product.ColumnPartialsLen(2, 8, 0))}}
	spoil(r, g)
	r.Body(func(c *pipeline.Consumer) {
		g.Consume(r.Env, c, r.Ring, r.Share(0), r.K.U32(4), nil, func(_, _ dsl.Val[dsl.U32], _, _ dsl.Val[dsl.F32]) {})
	}, nil)
	return r
}

func TestWhatTemplatesForSeveralTokensRefuse(t *testing.T) {
	gemm := func(spoil func(r *rig.Rig, g *product.GEMM)) func(testing.TB) *rig.Rig {
		return func(t testing.TB) *rig.Rig { return gemmRefused(t, 2, spoil) }
	}
	vector := func(emit func(r *rig.Rig)) func(testing.TB) *rig.Rig {
		return func(t testing.TB) *rig.Rig { return rig.VectorRig(t, emit) }
	}
	residual := func(spoil func(r *rig.Rig, a *product.AddResidualColumns)) func(testing.TB) *rig.Rig {
		return vector(func(r *rig.Rig) {
			a := product.Activations{K: 64, T: 3}
			add := &product.AddResidualColumns{Out: a, X: rig.Out[dsl.F32](r, "x", 3*64),
				Next: rig.Out[dsl.BF16](r, "next", a.Len()),
				Gain: rig.In[dsl.BF16](r, "gain", nil, 64), SQ: rig.Out[dsl.F32](r, "sq", 8),
				Shared: rig.SharedF32(r, "sums", product.ColumnSumsLen(2, 8))}
			spoil(r, add)
			epilogue, publish := add.Start(r.Env, r.K.U32(0))
			epilogue(r.K.U32(0), r.K.U32(0), r.K.F32(1), r.K.F32(1))
			publish()
		})
	}
	argmax := func(spoil func(r *rig.Rig, a *product.ArgmaxColumns)) func(testing.TB) *rig.Rig {
		return vector(func(r *rig.Rig) {
			a := &product.ArgmaxColumns{Vocab: 8, T: 9, Logits: rig.Out[dsl.F32](r, "logits", 72),
				Best:  rig.Out[dsl.F32](r, "best", 16),
				Index: rig.Out[dsl.U32](r, "index", 16), SharedBest: rig.SharedF32(r, "bests", 16),
				SharedIndex: dsl.Shared[dsl.U32](r.K, "indices", 16), Chosen: dsl.Shared[dsl.U32](r.K, "chosen", 9)}
			spoil(r, a)
			a.Start(r.Env, nil)
		})
	}
	for _, c := range []struct {
		file, want string
		rig        func(t testing.TB) *rig.Rig
	}{
		{"gemm", "w: the plan has no batches",
			func(t testing.TB) *rig.Rig { return gemmRefused(t, 0, func(*rig.Rig, *product.GEMM) {}) }},
		{"gemm", "w: the input has 96 columns, the matrix 104", gemm(func(_ *rig.Rig, g *product.GEMM) { g.In.K = 96 })},
		{"gemm", "w: 17 tokens, want 2 to 16", gemm(func(r *rig.Rig, g *product.GEMM) {
			g.In.T, g.Part.Buf = 17, rig.SharedF32(r, "more", product.ColumnPartialsLen(2, 16, 0))
		})},
		{"gemm", "w: 1 tokens, want 2 to 16", gemm(func(_ *rig.Rig, g *product.GEMM) { g.In.T = 1 })},
		{"gemm", "w: the buffer has 96 elements, want 1024 for 4 tokens of 104 columns",
			gemm(func(r *rig.Rig, g *product.GEMM) { g.X = rig.In[dsl.BF16](r, "short", nil, 96) })},
		{"gemm", "w: Part has 100 elements, want 512 for 2 consumer warps and 8 columns",
			gemm(func(r *rig.Rig, g *product.GEMM) { g.Part.Buf = rig.SharedF32(r, "short", 100) })},
		{"gemm", "w: a chunk of 96 columns is 1536 bytes, a stage has 1024", gemm(func(_ *rig.Rig, g *product.GEMM) {
			m := *g.M
			m.ChunkK = 96
			g.M = &m
		})},
		{"columnepilogue", "residual: 12 columns, want a positive multiple of 8",
			residual(func(_ *rig.Rig, a *product.AddResidualColumns) { a.Out.K = 12 })},
		{"columnepilogue", "residual: X has 64 elements, want 192",
			residual(func(r *rig.Rig, a *product.AddResidualColumns) { a.X = rig.Out[dsl.F32](r, "short", 64) })},
		{"columnepilogue", "residual: SQ has 3 elements, want 8",
			residual(func(r *rig.Rig, a *product.AddResidualColumns) { a.SQ = rig.Out[dsl.F32](r, "short", 3) })},
		{"columnepilogue", "residual: Shared has 8 elements, want 16",
			residual(func(r *rig.Rig, a *product.AddResidualColumns) { a.Shared = rig.SharedF32(r, "short", 8) })},
		{"glu", "SwiGLU: the buffer has 64 elements, want 256 for 2 tokens of 32 columns", vector(func(r *rig.Rig) {
			product.GLU{}.Columns(r.Env, product.Activations{K: 32, T: 2}, rig.Out[dsl.BF16](r, "act", 64), nil)
		})},
		{"columnepilogue", "scale: SQ has 4 elements, want 8", vector(func(r *rig.Rig) {
			s := product.ScaleColumns{N: 32, T: 2, SQ: rig.Out[dsl.F32](r, "sq", 4), Shared: rig.SharedF32(r, "scales", 24)}
			s.Emit(r.Env)
		})},
		{"columnepilogue", "scale: Shared has 23 elements, want 24", vector(func(r *rig.Rig) {
			s := product.ScaleColumns{N: 32, T: 2, SQ: rig.Out[dsl.F32](r, "sq", 8), Shared: rig.SharedF32(r, "scales", 23)}
			s.Emit(r.Env)
		})},
		{"columnembed", "embedding: X has 32 elements, want 64", vector(func(r *rig.Rig) {
			a := product.Activations{K: 32, T: 2}
			e := product.EmbedColumns{Out: a, X: rig.Out[dsl.F32](r, "x", 32), Next: rig.Out[dsl.BF16](r, "next", a.Len()),
				SQ: rig.Out[dsl.F32](r, "sq", 8)}
			e.Emit(r.Env, r.K.U32(1), r.K.U32(0), nil)
		})},
		{"columnrows", "rows: Words has 8 elements, want 16", vector(func(r *rig.Rig) {
			rows := product.ColumnRows{T: 2, Words: dsl.Shared[dsl.U32](r.K, "words", kv.RowWords), Count: r.K.U32(1),
				Grown: r.K.U32(0)}
			rows.Load(r.Env, rig.In[dsl.U32](r, "rows", nil, 16), rig.In[dsl.U32](r, "table", nil, 0), 16)
		})},
		{"columnlogits", "argmax: a vocabulary of 0, want at least 1",
			argmax(func(_ *rig.Rig, a *product.ArgmaxColumns) { a.Vocab = 0 })},
		{"columnlogits", "argmax: 17 tokens, want 2 to 16", argmax(func(_ *rig.Rig, a *product.ArgmaxColumns) { a.T = 17 })},
		{"columnlogits", "argmax: Logits has 8 elements, want 72",
			argmax(func(r *rig.Rig, a *product.ArgmaxColumns) { a.Logits = rig.Out[dsl.F32](r, "short", 8) })},
		{"columnlogits", "argmax: Best and Index have 8 and 16 elements, want 16",
			argmax(func(r *rig.Rig, a *product.ArgmaxColumns) { a.Best = rig.Out[dsl.F32](r, "short", 8) })},
		{"columnlogits", "argmax: SharedBest and SharedIndex have 8 and 16 elements, want 16",
			argmax(func(r *rig.Rig, a *product.ArgmaxColumns) { a.SharedBest = rig.SharedF32(r, "short", 8) })},
		{"columnlogits", "argmax: Chosen has 8 elements, want 9",
			argmax(func(r *rig.Rig, a *product.ArgmaxColumns) { a.Chosen = dsl.Shared[dsl.U32](r.K, "short", 8) })},
	} {
		t.Run(c.want, func(t *testing.T) { rig.RefusesIn(t, c.file, c.want, c.rig(t)) })
	}
}
