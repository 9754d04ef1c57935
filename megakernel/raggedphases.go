package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks"
)

// phases of a ragged step.
func (f *ragged) phases() stages {
	f.embed, f.final = f.embedPhase(), f.finalPhase()
	return stages{before: []phase{f.embed}, layer: f.layerPhases(), after: []phase{f.final}}
}

// gemm is the template for matrix i of the plan table.
func (f *ragged) gemm(i int) *tasks.GEMM {
	m := f.mk.matrix(i)
	x := map[int]dsl.Buf[dsl.BF16]{MatrixQKV: f.bufs.input, MatrixO: f.bufs.attn, MatrixGateUp: f.bufs.input, MatrixDown: f.bufs.act, layerMatrices: f.bufs.input}[i]
	return &tasks.GEMM{Name: m.Name, M: m, In: f.mk.activations(m.K), X: x, Part: f.part}
}

// finisher is what a matrix's rows become.
type finisher struct {
	epilogue  tasks.ColumnEpilogue
	meanwhile func() // runs while the first input is on its way, or nil
	publish   func() // runs behind the last row, or nil
}

// matrixPhase is a phase that streams matrix i.
func (f *ragged) matrixPhase(p Phase, i int, finish func(s tasks.Step) finisher) phase {
	g := f.gemm(i)
	p.Matrix = g.Name
	return phase{Phase: p,
		produce: func(s tasks.Step) { g.Produce(f.env, f.prod, f.own.matrix(i), f.bufs.weights, f.weightsOf(s, i)) },
		consume: func(s tasks.Step) {
			done := finish(s)
			g.Scales = f.scalesOf(s, i)
			g.Consume(f.env, f.cons, f.ring, f.own.matrix(i), f.rows.Count, done.meanwhile, done.epilogue)
			if done.publish != nil {
				done.publish()
			}
		}}
}

// normed is a finisher of a matrix whose input a norm made: its scales come while
// the input is on its way.
func (f *ragged) normed(epilogue func(scale tasks.ColumnScale) finisher) finisher {
	c := &f.mk.Config
	scale := &tasks.ScaleColumns{N: c.Hidden, Eps: c.NormEps, T: f.mk.Options.Tokens, SQ: f.bufs.squares, Shared: f.scales}
	var of tasks.ColumnScale
	done := epilogue(func(token dsl.Val[dsl.U32]) dsl.Val[dsl.F32] { return of(token) })
	done.meanwhile = func() { of = scale.Emit(f.env) }
	return done
}

// residual is the finisher of a projection back into the residual vectors; norm is
// the one they go through next.
func (f *ragged) residual(norm dsl.Val[dsl.U32]) finisher {
	add := &tasks.AddResidualColumns{Out: f.mk.activations(f.mk.Config.Hidden), X: f.bufs.x, Next: f.bufs.input, Gain: f.bufs.gains, SQ: f.bufs.squares, Shared: f.sums}
	epilogue, publish := add.Start(f.env, norm)
	return finisher{epilogue: epilogue, publish: publish}
}

func (f *ragged) embedPhase() phase {
	embed := &tasks.EmbedColumns{Out: f.mk.activations(f.mk.Config.Hidden), X: f.bufs.x, Next: f.bufs.input, Gain: f.bufs.gains, SQ: f.bufs.squares, Row: f.embedding().Row}
	return phase{Phase: Phase{Name: "embed", Ops: []string{"embedding", "RMSNorm's gains"}, Handoff: gridBarrier},
		consume: func(tasks.Step) {
			embed.Emit(f.env, f.rows.Count, f.k.U32(0), func(t dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return f.chosen.Load(t) })
		}}
}

// layerPhases are the phases of one layer.
func (f *ragged) layerPhases() []phase {
	c, o, bufs, e := &f.mk.Config, &f.mk.Options, f.bufs, f.env
	per := func(name string, ops ...string) Phase {
		return Phase{Name: name, PerLayer: true, Ops: ops, Handoff: gridBarrier}
	}
	qkv := &tasks.QKVColumns{QKV: tasks.QKV{Heads: c.Heads, KV: f.mk.KV, InvFreq: bufs.invFreq, Q: bufs.q, RotateFor: f.rotatedFor()}, T: o.Tokens}
	list := []phase{f.matrixPhase(per("qkv", "QKV projection", "RMSNorm's scale", "RoPE", "KV append"), MatrixQKV, func(s tasks.Step) finisher {
		return f.normed(func(scale tasks.ColumnScale) finisher {
			return finisher{epilogue: qkv.Epilogue(e, s, f.rows, scale), publish: f.fenceKV}
		})
	})}
	list = append(list, f.attentionPhases(per, &qkv.QKV)...)
	return append(list,
		f.matrixPhase(per("o", "output projection", "residual", "RMSNorm's gains"), MatrixO, func(s tasks.Step) finisher {
			return f.residual(s.Layer.MulC(2).AddC(1))
		}),
		f.matrixPhase(per("gate_up", "gate and up projections", "RMSNorm's scale", "SwiGLU"), MatrixGateUp, func(tasks.Step) finisher {
			return f.normed(func(scale tasks.ColumnScale) finisher {
				return finisher{epilogue: tasks.SwiGLUColumns(e, f.mk.activations(c.Intermediate), bufs.act, scale)}
			})
		}),
		f.matrixPhase(per("down", "down projection", "residual", "RMSNorm's gains"), MatrixDown, func(s tasks.Step) finisher {
			return f.residual(s.Layer.MulC(2).AddC(2))
		}))
}

// finalPhase is the phase after the last layer.
func (f *ragged) finalPhase() phase {
	c, bufs := &f.mk.Config, f.bufs
	f.argmax = &tasks.ArgmaxColumns{Vocab: c.Vocab, T: f.mk.Options.Tokens, Logits: bufs.logits, Best: bufs.best, Index: bufs.bestIndex,
		SharedBest: f.sums, SharedIndex: f.indices, Chosen: f.chosen}
	head := Phase{Name: "lm_head", Ops: []string{"LM head", "final RMSNorm's scale", "argmax"}, Handoff: gridBarrier}
	return f.matrixPhase(head, layerMatrices, func(tasks.Step) finisher {
		return f.normed(func(scale tasks.ColumnScale) finisher {
			epilogue, publish := f.argmax.Start(f.env, scale)
			return finisher{epilogue: epilogue, publish: publish}
		})
	})
}
