package product_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
)

// gemvRefused builds a GEMV that spoil has made impossible.
func gemvRefused(t testing.TB, spoil func(r *rig.Rig, g *product.GEMV)) *rig.Rig {
	r := rig.New(t, rig.Setup{Consumers: 2, Stage: 1024, Stages: 2,
		Matrices: []pipeline.Matrix{{Name: "w", Rows: 8, K: 100}}})
	g := &product.GEMV{Name: "w", M: &r.Plan.Layer[0], X: dsl.Shared[dsl.BF16](r.K, "input", 128, dsl.Align(16)),
		Part: product.Partials{Buf: dsl.Shared[dsl.F32](r.K, "partials", product.PartialsLen(2), dsl.Align(16))}}
	spoil(r, g)
	y := rig.Out[dsl.F32](r, "y", 8)
	r.Body(func(c *pipeline.Consumer) {
		g.Consume(r.Env, c, r.Ring, r.Share(0), product.AddResidual(y, product.FromBuf(y)))
	}, nil)
	return r
}

func TestWhatProductsRefuse(t *testing.T) {
	gemv := func(spoil func(r *rig.Rig, g *product.GEMV)) func(testing.TB) *rig.Rig {
		return func(t testing.TB) *rig.Rig { return gemvRefused(t, spoil) }
	}
	vector := func(emit func(r *rig.Rig)) func(testing.TB) *rig.Rig {
		return func(t testing.TB) *rig.Rig { return rig.VectorRig(t, emit) }
	}
	input := func(r *rig.Rig, n int) dsl.Buf[dsl.BF16] { return dsl.Shared[dsl.BF16](r.K, "input", n, dsl.Align(16)) }
	argmax := func(vocab, grid, shared int) func(testing.TB) *rig.Rig {
		return vector(func(r *rig.Rig) {
			a := product.Argmax{Vocab: vocab, Logits: rig.Out[dsl.F32](r, "logits", 8), Best: rig.Out[dsl.F32](r, "best", grid),
				Index: rig.Out[dsl.U32](r, "index", grid), SharedIndex: dsl.Shared[dsl.U32](r.K, "indices", shared)}
			epilogue, publish := a.Start(r.Env, product.KnownScale(r.K.F32(1)))
			epilogue(r.K.U32(0), r.K.F32(1), r.K.F32(1))
			publish()
		})
	}
	for _, c := range []struct {
		file, want string
		rig        func(t testing.TB) *rig.Rig
	}{
		{"gemv", "w: the input X has 96 elements, want 128 for 100 columns padded", gemv(func(r *rig.Rig, g *product.GEMV) {
			g.X = dsl.Shared[dsl.BF16](r.K, "short", 96, dsl.Align(16))
		})},
		{"gemv", "w: the input X has 128 elements, want 64 zeros from element 96 on, a multiple of 8",
			gemv(func(_ *rig.Rig, g *product.GEMV) { g.Idle = 48 })},
		{"gemv", "w: Part has 256 elements, want 512 for 2 consumer warps", gemv(func(r *rig.Rig, g *product.GEMV) {
			g.Part.Buf = dsl.Shared[dsl.F32](r.K, "short", 256, dsl.Align(16))
		})},
		{"gemv", "w: a chunk of 96 columns is 1536 bytes, a stage has 1024", gemv(func(_ *rig.Rig, g *product.GEMV) {
			m := *g.M
			m.ChunkK = 96
			g.M = &m
		})},
		{"gemv", "w: Fixed is staged in another order than warps multiply it", gemv(func(r *rig.Rig, g *product.GEMV) {
			m := *g.M
			m.Format = pipeline.FormatI4G128
			g.M, g.Fixed = &m, fixedInput(r, &m)
			g.Fixed.Order = &grid.Order{Stride: 3, Offsets: []int{1}}
		})},
		{"vector", "embedding: length 6 is not a positive multiple of 4", vector(func(r *rig.Rig) {
			e := product.Embedding{N: 6, Vocab: 2, Table: rig.In[dsl.BF16](r, "table", nil, 12)}
			e.Row(r.Env, r.K.U32(0))
		})},
		{"vector", "norm input: length 6 is not a positive multiple of 4", vector(func(r *rig.Rig) {
			n := product.NormInput{N: 6, X: product.FromBuf(rig.Out[dsl.F32](r, "x", 8)),
				Gain: rig.In[dsl.BF16](r, "gain", nil, 8),
				Dst:  input(r, 32)}
			n.Emit(r.Env, r.K.U32(0))
		})},
		{"vector", "norm input: Dst has 32 elements, want 64 for 36 padded", vector(func(r *rig.Rig) {
			n := product.NormInput{N: 36, X: product.FromBuf(rig.Out[dsl.F32](r, "x", 36)),
				Gain: rig.In[dsl.BF16](r, "gain", nil, 36),
				Dst:  input(r, 32)}
			n.Emit(r.Env, r.K.U32(0))
		})},
		{"vector", "norm input: Early is for 64 elements, want 32", vector(func(r *rig.Rig) {
			n := product.NormInput{N: 32, X: product.FromBuf(rig.Out[dsl.F32](r, "x", 32)),
				Gain: rig.In[dsl.BF16](r, "gain", nil, 32),
				Dst:  input(r, 32), Early: &product.Gains{N: 64}}
			n.Emit(r.Env, r.K.U32(0))
		})},
		{"vector", "plain input: length 12 is not a positive multiple of 8", vector(func(r *rig.Rig) {
			p := product.PlainInput{N: 12, X: rig.In[dsl.BF16](r, "x", nil, 16), Dst: input(r, 32)}
			p.Emit(r.Env)
		})},
		{"vector", "plain input: Dst has 32 elements, want 64 for 40 padded", vector(func(r *rig.Rig) {
			p := product.PlainInput{N: 40, X: rig.In[dsl.BF16](r, "x", nil, 40), Dst: input(r, 32)}
			p.Emit(r.Env)
		})},
		{"lmhead", "argmax: a vocabulary of 0, want at least 1", argmax(0, 1, 2)},
		{"lmhead", "argmax: Best and Index have 2 and 2 elements, want one a CTA, 1", argmax(8, 2, 2)},
		{"lmhead", "argmax: SharedIndex and Scratch have 1 and 2 elements, want one a consumer warp, 2", argmax(8, 1, 1)},
	} {
		t.Run(c.want, func(t *testing.T) { rig.RefusesIn(t, c.file, c.want, c.rig(t)) })
	}
}
