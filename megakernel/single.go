package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks"
)

// single is the flow of a kernel whose steps have one query row, of one sequence.
type single struct {
	*builder
	argmax *tasks.Argmax
	token  *dsl.Var[dsl.U32] // the step's token
}

// gemv is the template for matrix i of the plan table.
func (b *single) gemv(i int) *tasks.GEMV {
	m := b.mk.matrix(i)
	return &tasks.GEMV{Name: m.Name, M: m, X: b.x, Part: b.part}
}

// matrixPhase is a phase that streams matrix i; finish makes its input and its
// epilogue in the consumer warps.
func (b *single) matrixPhase(p Phase, i int, finish func(s tasks.Step) tasks.Epilogue, after func()) phase {
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

// first is the residual vector before attention: the token's embedding in the
// first layer, so that no hand-off is needed to begin a step.
func (b *single) first(s tasks.Step) tasks.Vector {
	return tasks.Either(b.env, s.Layer.EqC(0), b.embedding().Row(b.env, b.token.Get()), tasks.FromBuf(b.bufs.x))
}

// norm stages the normalised residual vector x; which is the norm's row of gains.
func (b *single) norm(x tasks.Vector, which dsl.Val[dsl.U32]) dsl.Val[dsl.F32] {
	c := &b.mk.Config
	in := tasks.NormInput{N: c.Hidden, Eps: c.NormEps, X: x, Gain: b.bufs.gains, Dst: b.x}
	return in.Emit(b.env, which)
}

func (b *single) plain(x dsl.Buf[dsl.BF16], n int) {
	in := tasks.PlainInput{N: n, X: x, Dst: b.x}
	in.Emit(b.env)
}

func (b *single) phases() (layer []phase, final phase) { return b.layerPhases(), b.finalPhase() }

// layerPhases are the phases of one layer.
func (b *single) layerPhases() []phase {
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
func (b *single) finalPhase() phase {
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

func (b *single) check() {
	b.k.Assert(b.bufs.known.Gt(b.bufs.pos), "the token at the first position must be known")
}

func (b *single) start() { b.token = dsl.NewVar(b.k.U32(0), "token") }

func (b *single) step(s dsl.Val[dsl.U32]) tasks.Step {
	pos := b.bufs.pos.Add(s).Named("pos_now")
	return tasks.Step{Pos: pos, Cached: b.cached(pos), Pages: b.bufs.pages, Table: b.bufs.table, Cache: b.bufs.kv}
}

func (b *single) begin(s dsl.Val[dsl.U32], at tasks.Step) {
	b.k.If(at.Pos.Lt(b.bufs.known), func() {
		b.token.Set(dsl.Uniform(b.bufs.tokens.Load(at.Pos), dsl.GPUScope))
	})
	b.open(s)
}

// wanted: logits are of no use before the last token that is known.
func (b *single) wanted(at tasks.Step) *dsl.Pred {
	p := at.Pos.AddC(1).Ge(b.bufs.known)
	return &p
}

func (b *single) finish(_ dsl.Val[dsl.U32], at tasks.Step, running *dsl.Var[dsl.U32]) {
	b.k.If(*b.wanted(at), func() {
		b.consume(inLayer(at, b.k.U32(0)), b.final)
		b.choose(at.Pos, running)
	})
}

func (b *single) done(_ dsl.Val[dsl.U32], at tasks.Step) dsl.Val[dsl.U32] { return at.Pos.AddC(1) }

// choose takes the token the step chose and ends the launch if it ends the text.
func (b *single) choose(pos dsl.Val[dsl.U32], running *dsl.Var[dsl.U32]) {
	k, e, bufs := b.k, b.env, b.bufs
	k.Region("choose", func() {
		chosen := b.argmax.Choose(e)
		b.token.Set(chosen)
		k.If(e.CTA.EqC(0).And(e.Tid.EqC(0)), func() {
			bufs.tokens.Store(pos.AddC(1), chosen)
			bufs.times.Store(pos.AddC(1), dsl.Cast[dsl.U32](k.GlobalTimer()), dsl.Relaxed(dsl.SysScope))
			bufs.stream.Store(pos.AddC(1), chosen, dsl.Relaxed(dsl.SysScope))
		})
		for i := range MaxEnds {
			k.If(chosen.Eq(dsl.Uniform(bufs.ends.Load(dsl.At(i)), dsl.GPUScope)), func() { running.Set(k.U32(0)) })
		}
	})
}

// drop drains the first matrix of a step that does not run.
func (b *single) drop() { b.gemv(MatrixQKV).Drop(b.env, b.cons, b.own.matrix(MatrixQKV)) }
