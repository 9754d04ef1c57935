package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
)

const gridBarrier = "grid barrier"

// matrix is the i-th matrix of the plan table: the layer's, then the LM head.
func (mk *Kernel) matrix(i int) *pipeline.MatrixPlan {
	if i == layerMatrices {
		return &mk.Plan.Final[0]
	}
	return &mk.Plan.Layer[i]
}

// gemv is the template for matrix i of the plan table.
func (b *builder) gemv(i int) *tasks.GEMV {
	m := b.mk.matrix(i)
	return &tasks.GEMV{Name: m.Name, M: m, X: b.x, Part: b.part}
}

// matrixPhase is a phase that streams matrix i; finish makes its input and its
// epilogue in the consumer warps.
func (b *builder) matrixPhase(p Phase, i int, finish func(s tasks.Step) tasks.Epilogue, after func()) phase {
	g := b.gemv(i)
	p.Matrix = g.Name
	return phase{Phase: p,
		produce: func(tasks.Step) { g.Produce(b.env, b.prod, b.own.matrix(i), b.bufs.weights, b.offset) },
		consume: func(s tasks.Step) {
			epilogue := finish(s)
			g.Consume(b.env, b.cons, b.ring, b.own.matrix(i), epilogue)
			if after != nil {
				after()
			}
		}}
}

// norm stages the normalised residual vector x; which is the norm's row of gains.
func (b *builder) norm(x tasks.Vector, which dsl.Val[dsl.U32]) dsl.Val[dsl.F32] {
	c := &b.mk.Config
	in := tasks.NormInput{N: c.Hidden, Eps: c.NormEps, X: x, Gain: b.bufs.gains, Dst: b.x}
	return in.Emit(b.env, which)
}

// first is the residual vector before attention: the token's embedding in the
// first layer, so that no hand-off is needed to begin a step.
func (b *builder) first(s tasks.Step) tasks.Vector {
	return tasks.Either(b.env, s.Layer.EqC(0), b.embedding().Row(b.env, b.token.Get()), tasks.FromBuf(b.bufs.x))
}

// embedding is the matrix of token embeddings: one of its own, or the LM head's,
// whose tiles, as it is alone in the final phase, follow one another there.
func (b *builder) embedding() interface {
	Row(e *tasks.Env, token dsl.Val[dsl.U32]) tasks.Vector
} {
	c, p := &b.mk.Config, b.mk.Plan
	if !c.TieEmbeddings {
		return &tasks.Embedding{N: c.Hidden, Table: b.bufs.embed, Vocab: c.Vocab}
	}
	if len(p.Final) != 1 {
		panic("BUG: the LM head shares the final phase")
	}
	return &tasks.PackedEmbedding{M: &p.Final[0], Weights: b.bufs.weights, Start: int64(p.Layers) * p.LayerBytes}
}

func (b *builder) plain(x dsl.Buf[dsl.BF16], n int) {
	in := tasks.PlainInput{N: n, X: x, Dst: b.x}
	in.Emit(b.env)
}

// layerPhases are the phases of one layer.
func (b *builder) layerPhases() []phase {
	c, o, bufs, e := &b.mk.Config, &b.mk.Options, b.bufs, b.env
	qkv := &tasks.QKV{Heads: c.Heads, KV: b.mk.KV, InvFreq: bufs.invFreq, Q: bufs.q}
	att := &tasks.Attention{Heads: c.Heads, KV: b.mk.KV, Splits: o.Splits, PerStage: kvTokensPerStage(b.mk.Plan),
		Q: bufs.q, Out: bufs.part, LSE: bufs.lse, Scratch: b.shared, Tail: b.tail}
	merge := &tasks.Merge{Heads: c.Heads, D: c.HeadDim, Splits: o.Splits, In: bufs.part, LSE: bufs.lse, Out: bufs.attn}
	b.plant(qkv, merge)
	per := func(name string, ops ...string) Phase {
		return Phase{Name: name, PerLayer: true, Ops: ops, Handoff: gridBarrier}
	}
	return []phase{
		b.matrixPhase(per("qkv", "embedding (layer 0)", "RMSNorm", "QKV projection", "RoPE", "KV append"), MatrixQKV, func(s tasks.Step) tasks.Epilogue {
			return qkv.Epilogue(e, s, b.norm(b.first(s), s.Layer.MulC(2)))
		}, nil),
		{Phase: per("attention", "attention, split along KV"),
			produce: func(s tasks.Step) { att.Produce(e, b.prod, s) },
			consume: func(s tasks.Step) { att.Consume(e, b.cons, b.ring, s) }},
		{Phase: per("merge", "merge of partial states"),
			consume: func(tasks.Step) { merge.Emit(e) }},
		b.matrixPhase(per("o", "output projection", "residual"), MatrixO, func(s tasks.Step) tasks.Epilogue {
			b.plain(bufs.attn, c.Heads*c.HeadDim)
			return tasks.AddResidual(bufs.x, b.first(s))
		}, nil),
		b.matrixPhase(per("gate_up", "RMSNorm", "gate and up projections", "SwiGLU"), MatrixGateUp, func(s tasks.Step) tasks.Epilogue {
			return tasks.SwiGLU(e, bufs.act, b.norm(tasks.FromBuf(bufs.x), s.Layer.MulC(2).AddC(1)))
		}, nil),
		b.matrixPhase(per("down", "down projection", "residual"), MatrixDown, func(tasks.Step) tasks.Epilogue {
			b.plain(bufs.act, c.Intermediate)
			return tasks.AddResidual(bufs.x, tasks.FromBuf(bufs.x))
		}, nil),
	}
}

// finalPhase is the phase after the last layer.
func (b *builder) finalPhase() phase {
	c, bufs, e := &b.mk.Config, b.bufs, b.env
	b.argmax = &tasks.Argmax{Vocab: c.Vocab, Logits: bufs.logits, Best: bufs.best, Index: bufs.bestIndex, SharedIndex: b.indices}
	var publish func()
	head := Phase{Name: "lm_head", Ops: []string{"final RMSNorm", "LM head", "argmax"}, Handoff: gridBarrier}
	return b.matrixPhase(head, layerMatrices, func(tasks.Step) tasks.Epilogue {
		scale := b.norm(tasks.FromBuf(bufs.x), b.k.U32(2*c.Layers))
		var epilogue tasks.Epilogue
		epilogue, publish = b.argmax.Start(e, scale)
		return epilogue
	}, func() { publish() })
}
