package tasks_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
)

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

func TestWhatProductsRefuse(t *testing.T) {
	gemv := func(spoil func(r *rig, g *tasks.GEMV)) func(testing.TB) *rig {
		return func(t testing.TB) *rig { return gemvRefused(t, spoil) }
	}
	vector := func(emit func(r *rig)) func(testing.TB) *rig {
		return func(t testing.TB) *rig { return vectorRig(t, emit) }
	}
	input := func(r *rig, n int) dsl.Buf[dsl.BF16] { return dsl.Shared[dsl.BF16](r.k, "input", n, dsl.Align(16)) }
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
		{"lmhead", "argmax: a vocabulary of 0, want at least 1", argmax(0, 1, 2)},
		{"lmhead", "argmax: Best and Index have 2 and 2 elements, want one a CTA, 1", argmax(8, 2, 2)},
		{"lmhead", "argmax: SharedIndex and Scratch have 1 and 2 elements, want one a consumer warp, 2", argmax(8, 1, 1)},
	} {
		t.Run(c.want, func(t *testing.T) { refusesIn(t, c.file, c.want, c.rig(t)) })
	}
}
