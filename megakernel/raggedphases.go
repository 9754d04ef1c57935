package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

// phases of a ragged step.
func (f *ragged) phases() stages {
	f.embed, f.final = f.embedPhase(), f.finalPhase()
	return stages{before: []phase{f.embed}, layer: f.layerPhases(), after: []phase{f.final}}
}

// gemm is the template for matrix i of the plan table.
func (f *ragged) gemm(i int) *product.GEMM {
	m := f.mk.matrix(i)
	x := map[int]dsl.Buf[dsl.BF16]{MatrixQKV: f.bufs.input, MatrixO: f.bufs.attn, MatrixGateUp: f.bufs.input,
		MatrixDown: f.bufs.act, layerMatrices: f.bufs.input}[i]
	return &product.GEMM{Name: m.Name, M: m, In: f.mk.activations(m.K), X: x, Part: f.part, Exchanged: f.mk.exchanged(i)}
}

// finisher is what a matrix's rows become.
type finisher struct {
	epilogue  product.ColumnEpilogue
	meanwhile func() // runs while the first input is on its way, or nil
	publish   func() // runs behind the last row, or nil
}

// matrixPhase is a phase that streams matrix i.
func (f *ragged) matrixPhase(p Phase, i int, finish func(s attention.Step) finisher) phase {
	g := f.gemm(i)
	p.Matrix = g.Name
	return phase{Phase: p,
		produce: func(s attention.Step) { g.Produce(f.env, f.prod, f.own.matrix(i), f.bufs.weights, f.weightsOf(s, i)) },
		consume: func(s attention.Step) {
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
func (f *ragged) normed(n models.Norm, epilogue func(scale product.ColumnScale) finisher) finisher {
	if n.Kind == models.NoNorm {
		return epilogue(func(dsl.Val[dsl.U32]) dsl.Val[dsl.F32] { return f.k.F32(1) })
	}
	scale := f.scale(n, f.bufs.squares)
	var of product.ColumnScale
	done := epilogue(func(token dsl.Val[dsl.U32]) dsl.Val[dsl.F32] { return of(token) })
	ahead := done.meanwhile
	done.meanwhile = func() {
		of = scale.Emit(f.env)
		if ahead != nil {
			ahead()
		}
	}
	return done
}

// scale is a norm's factor of each row.
func (f *ragged) scale(n models.Norm, squares dsl.Buf[dsl.F32]) *product.ScaleColumns {
	return &product.ScaleColumns{N: f.mk.Config.Hidden, Eps: n.Eps, T: f.mk.Options.Tokens, SQ: squares, Shared: f.scales}
}

// residual is the finisher of matrix i, a projection back into the residual vectors; norm is
// the row of gains of the one they go through next.
func (f *ragged) residual(s attention.Step, i int, norm func() dsl.Val[dsl.U32]) finisher {
	bias, l := f.biasRows(s, i), f.mk.kind()
	if f.mk.kept() {
		branch := &product.BranchColumns{N: f.mk.Config.Hidden, T: f.mk.Options.Tokens, Y: f.bufs.branch,
			SQ: f.bufs.branchSquares, Shared: f.sums}
		epilogue, publish := branch.Start(f.env)
		return finisher{epilogue: product.BiasedColumns(f.env, bias, 1, epilogue), publish: publish}
	}
	add := &product.AddResidualColumns{Out: f.mk.activations(f.mk.Config.Hidden), X: f.bufs.x, Next: f.bufs.input,
		Gain: f.bufs.gains, SQ: f.bufs.squares, Shared: f.sums, PlusOne: f.mk.plusOne(f.mk.arch.Final)}
	ahead, epilogue, publish := add.StartAhead(f.env, norm(), f.gemm(i), f.own.matrix(i), f.rows.Count)
	return finisher{meanwhile: ahead, epilogue: product.BiasedColumns(f.env, bias, l.Residual, epilogue), publish: publish}
}

// input makes the residual vectors, of row, and what the next product wants of them.
func (f *ragged) input(n models.Norm,
	row func(e *grid.Env, token dsl.Val[dsl.U32]) product.Vector) *product.EmbedColumns {
	return &product.EmbedColumns{Out: f.mk.activations(f.mk.Config.Hidden), X: f.bufs.x, Next: f.bufs.input,
		Gain: f.bufs.gains, SQ: f.bufs.squares, Row: row, PlusOne: f.mk.plusOne(n), None: n.Kind == models.NoNorm}
}

func (f *ragged) embedPhase() phase {
	embed := f.input(f.mk.kind().PreAttn, f.embedding().Row)
	return phase{Phase: Phase{Name: "embed", Ops: []string{"embedding", "RMSNorm's gains"}, Sync: gridBarrier},
		consume: func(attention.Step) {
			embed.Emit(f.env, f.rows.Count, f.k.U32(0), func(t dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return f.chosen.Load(t) })
		}}
}

// addPhase adds what attention or the MLP has made, behind its norm, to the residual vectors; next is the norm that
// these go through then.
func (f *ragged) addPhase(p Phase, role models.Role,
	next func(s attention.Step, add func(n models.Norm, row dsl.Val[dsl.U32]))) phase {
	l, norm := f.mk.kind(), f.mk.kind().PostAttn
	if role == models.RolePostMLP {
		norm = l.PostMLP
	}
	return phase{Phase: p, consume: func(s attention.Step) {
		scale := f.scale(norm, f.bufs.branchSquares).Emit(f.env)
		if f.mk.Options.Fault == FaultPostNorm && role == models.RolePostAttn {
			scale = func(dsl.Val[dsl.U32]) dsl.Val[dsl.F32] { return f.k.F32(1) }
		}
		f.env.Sync()
		added := &product.AddedColumns{N: f.mk.Config.Hidden, X: f.bufs.x, Y: f.bufs.branch, Gain: f.bufs.gains,
			PlusOne: f.mk.plusOne(norm), Factor: l.Residual, Scale: scale}
		row := func(e *grid.Env, token dsl.Val[dsl.U32]) product.Vector {
			return added.Row(e, token, f.gainRow(s.Layer, role))
		}
		next(s, func(n models.Norm, gain dsl.Val[dsl.U32]) {
			f.input(n, row).Emit(f.env, f.rows.Count, gain, func(t dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return t })
		})
	}}
}

// layerPhases are the phases of one layer.
func (f *ragged) layerPhases() []phase {
	c, o, bufs, e := &f.mk.Config, &f.mk.Options, f.bufs, f.env
	per := func(name string, ops ...string) Phase {
		return Phase{Name: name, PerLayer: true, Ops: ops, Sync: gridBarrier}
	}
	l := f.mk.kind()
	qkv := &attention.QKVColumns{QKV: f.qkv(), T: o.Tokens}
	list := []phase{f.matrixPhase(per("qkv", "QKV projection", "RMSNorm's scale", "RoPE", "KV append"), MatrixQKV,
		func(s attention.Step) finisher {
			return f.normed(l.PreAttn, func(scale product.ColumnScale) finisher {
				ahead, epilogue := qkv.StartAhead(e, s, f.rows, scale, f.gemm(MatrixQKV), f.own.matrix(MatrixQKV))
				return finisher{meanwhile: ahead, epilogue: epilogue, publish: f.fenceKV}
			})
		})}
	if qkv.Norm != nil {
		list = append(list, phase{Phase: per("qk_norm", "norms of q and k", "KV append"), consume: func(s attention.Step) {
			qkv.Normalise(e, s, f.rows)
			f.fenceKV()
		}})
	}
	list = append(list, f.attentionPhases(per, &qkv.QKV)...)
	list = append(list, f.matrixPhase(per("o", "output projection", "residual", "RMSNorm's gains"), MatrixO,
		func(s attention.Step) finisher {
			return f.residual(s, MatrixO, func() dsl.Val[dsl.U32] { return f.gainRow(s.Layer, models.RolePreMLP) })
		}))
	if f.mk.kept() {
		list = append(list, f.addPhase(per("add_attention", "RMSNorm", "residual", "RMSNorm's gains"), models.RolePostAttn,
			func(s attention.Step, add func(n models.Norm, row dsl.Val[dsl.U32])) {
				add(l.PreMLP, f.gainRow(s.Layer, models.RolePreMLP))
			}))
	}
	list = append(list,
		f.matrixPhase(per("gate_up", "gate and up projections", "RMSNorm's scale", "SwiGLU"), MatrixGateUp,
			func(s attention.Step) finisher {
				return f.normed(l.PreMLP, func(scale product.ColumnScale) finisher {
					return finisher{epilogue: f.glu(s).Columns(e, f.mk.activations(c.Intermediate), bufs.act, scale)}
				})
			}),
		f.matrixPhase(per("down", "down projection", "residual", "RMSNorm's gains"), MatrixDown,
			func(s attention.Step) finisher {
				return f.residual(s, MatrixDown, func() dsl.Val[dsl.U32] { return s.Layer.MulC(2).AddC(2) })
			}))
	if f.mk.kept() {
		list = append(list, f.addPhase(per("add_mlp", "RMSNorm", "residual", "RMSNorm's gains"), models.RolePostMLP,
			f.addMLP))
	}
	return list
}

// addMLP adds the MLP's output for the next layer's attention, or behind the last one for the LM head.
func (f *ragged) addMLP(s attention.Step, add func(n models.Norm, row dsl.Val[dsl.U32])) {
	k, l := f.k, f.mk.kind()
	if l.PreAttn.Kind != models.NoNorm { // the final norm's gains lie behind the last layer's
		add(l.PreAttn, f.gainRow(s.Layer.AddC(1), models.RolePreAttn))
		return
	}
	k.IfElse(s.Layer.LtC(f.mk.Config.Layers-1), func() { add(l.PreAttn, k.U32(0)) },
		func() { add(f.mk.arch.Final, k.U32(f.mk.finalGain())) })
}

// finalPhase is the phase after the last layer.
func (f *ragged) finalPhase() phase {
	c, bufs := &f.mk.Config, f.bufs
	f.argmax = &product.ArgmaxColumns{Vocab: c.Vocab, T: f.mk.Options.Tokens, Logits: bufs.logits, Best: bufs.best,
		Index: bufs.bestIndex, SharedBest: f.sums, SharedIndex: f.indices, Chosen: f.chosen}
	head := Phase{Name: "lm_head", Ops: []string{"LM head", "final RMSNorm's scale", "argmax"}, Sync: gridBarrier}
	return f.matrixPhase(head, layerMatrices, func(attention.Step) finisher {
		return f.normed(f.mk.arch.Final, func(scale product.ColumnScale) finisher {
			if f.mk.plainLogits() {
				epilogue, publish := f.argmax.Start(f.env, scale)
				return finisher{epilogue: epilogue, publish: func() { f.publish(publish, f.argmax.Published) }}
			}
			of, publish := f.argmax.Start(f.env, func(dsl.Val[dsl.U32]) dsl.Val[dsl.F32] { return f.k.F32(1) })
			epilogue := func(row, token dsl.Val[dsl.U32], y0, y1 dsl.Val[dsl.F32]) {
				by := scale(token)
				of(row, token, f.logit(y0.Mul(by)), f.logit(y1.Mul(by)))
			}
			return finisher{epilogue: epilogue, publish: func() { f.publish(publish, f.argmax.Published) }}
		})
	})
}
