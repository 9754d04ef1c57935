package megakernel

import (
	"slices"
	"strings"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

// Single is the flow of a kernel whose steps have one query row, of one sequence.
type single struct {
	*builder
	argmax *product.Argmax
	token  *dsl.Var[dsl.U32] // the step's token

	x         dsl.Buf[dsl.BF16] // shared memory: the input vector of the GEMV at work
	units     dsl.Buf[dsl.F32]  // shared memory: its units where it is in fixed point
	inputSums *dsl.Buf[dsl.I32] // shared memory: sums of it, where weights have zero points
	shared    dsl.Buf[dsl.F32]  // the same bytes as f32: attention's scratch
	part      product.Partials
	tail      dsl.Buf[dsl.B128]

	early *product.Early // what products need of memory beside their input
	gains *product.Gains // what their norms do

	residual dsl.Buf[dsl.F32] // shared memory: the residual vector, where it is kept there
	added    *product.Gains   // what the norms behind branches do then

	mlp mlpFlow
}

func newSingle(b *builder) *single {
	k, p := b.k, b.mk.Plan
	at := func(name string) dsl.BufOpt { return dsl.PlaceAt(p.Region(name).Offset) }
	words := func(name string) int { return p.Region(name).Bytes / 4 }
	f := &single{builder: b, early: &product.Early{}, gains: &product.Gains{N: b.mk.Config.Hidden, Gain: b.bufs.gains}}
	f.shared = dsl.Shared[dsl.F32](k, regionInput, words(regionInput), at(regionInput), dsl.Align(16),
		dsl.Doc("input vector ("+strings.Join(b.mk.inputTypes(), ", ")+") or attention scratch (f32)"))
	f.x = dsl.View[dsl.BF16](f.shared)
	f.part = product.Partials{Buf: dsl.Shared[dsl.F32](k, regionPartials, words(regionPartials), at(regionPartials),
		dsl.Align(16), dsl.Doc("the consumer warps' partial dot products"))}
	f.tail = dsl.Shared[dsl.B128](k, regionTail, words(regionTail)/4, at(regionTail),
		dsl.Doc("the query token's own K and V"))
	if b.mk.fixed() {
		f.units = dsl.Shared[dsl.F32](k, regionUnits, words(regionUnits), at(regionUnits), dsl.Align(16),
			dsl.Doc("of each group of the input vector, its unit"))
		if b.mk.zeros() {
			sums := dsl.Shared[dsl.I32](k, regionInputSums, words(regionInputSums), at(regionInputSums), dsl.Align(16),
				dsl.Doc("of each group of the input vector, sums of 32 elements"))
			f.inputSums = &sums
		}
	}
	f.mlp = b.mk.Options.mlp().flow(f)
	f.early.Pairs = 1 // of qkv
	if b.mk.biasRoles(MatrixQKV) != nil {
		f.early.Pairs++
	}
	if b.mk.kind().Attn.QKNorm.Kind != models.NoNorm {
		f.early.Pairs++
	}
	f.early.Pairs = max(f.early.Pairs, 2) // of o and down
	if b.mk.kept() {
		f.residual = dsl.Shared[dsl.F32](k, regionResidual, words(regionResidual), at(regionResidual), dsl.Align(16),
			dsl.Doc("the residual vector"))
		f.added = &product.Gains{N: b.mk.Config.Hidden, Gain: b.bufs.gains}
	}
	f.sample = f.sampler(k.U32(1), f.shared)
	return f
}

// inputTypes names the types in which products' inputs are in shared memory: of the layers' matrices, then of the LM
// head, each once.
func (mk *Kernel) inputTypes() (types []string) {
	for _, f := range append(mk.Options.layerFormats(), mk.Options.Head) {
		if t := product.InputType(f); !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return types
}

// fixed is where the input of matrix i's product is, nil where it is in x.
func (f *single) fixed(i int) *product.FixedInput {
	m := f.mk.matrix(i)
	of := m.Format
	if !of.Integers() {
		return nil
	}
	in := &product.FixedInput{K: pipeline.CeilDiv(m.K, of.Columns()) * of.Columns(), Wide: of.Bits() == 8,
		Bytes: dsl.View[dsl.U32](f.shared), Units: f.units, Order: f.order(i)}
	if zerosOf(of) {
		in.Sums = f.inputSums
	}
	return in
}

// order returns the order in which warps stage matrix i's input: each what it multiplies, or nil where they wait for
// each other.
func (f *single) order(i int) *grid.Order { return product.OwnOrder(f.env.Consumers, f.mk.matrix(i)) }

func (f *single) prologue() {
	f.clearIdle()
	f.mlp.begin()
}

func (f *single) init() {}

// gemv is the template for matrix i of the plan table.
func (f *single) gemv(i int) *product.GEMV {
	m := f.mk.matrix(i)
	return &product.GEMV{Name: m.Name, M: m, X: f.x, Fixed: f.fixed(i), Part: f.part, Prefetch: f.held,
		Idle: f.mk.idleAt(m), Exchanged: f.mk.exchanged(i)}
}

// matrixPhase is a phase that streams matrix i; finish makes its input and its
// epilogue in the consumer warps.
func (f *single) matrixPhase(p Phase, i int, finish func(s attention.Step) product.Finisher, after func()) phase {
	g := f.gemv(i)
	p.Matrix = g.Name
	var hold func(attention.Step)
	if f.held != nil {
		hold = func(attention.Step) { g.Hold(f.env, f.cons, f.ring, f.own.matrix(i)) }
	}
	return phase{Phase: p, hold: hold,
		produce: func(s attention.Step) { g.Produce(f.env, f.prod, f.own.matrix(i), f.bufs.weights, f.weightsOf(s, i)) },
		consume: func(s attention.Step) {
			epilogue := finish(s)
			g.Scales = f.scalesOf(s, i)
			g.Consume(f.env, f.cons, f.ring, f.own.matrix(i), epilogue)
			if after != nil {
				after()
			}
		}}
}

// norm stages the normalised residual vector x as matrix i's input; which is the row of gains of n.
func (f *single) norm(x product.Source, n models.Norm, which dsl.Val[dsl.U32], i int) product.NormScale {
	c := &f.mk.Config
	in := product.NormInput{N: c.Hidden, Eps: n.Eps, PlusOne: f.mk.plusOne(n), None: n.Kind == models.NoNorm, X: x,
		Gain: f.bufs.gains, Early: f.gains, Dst: f.x, Format: f.mk.matrix(i).Format, Fixed: f.fixed(i)}
	var scale product.NormScale
	f.env.Part("input vector", func() { scale = in.Emit(f.env, which) })
	return scale
}

// plain stages the input of matrix i of the plan table.
func (f *single) plain(i int, in product.PlainInput) {
	in.Dst, in.Format = f.x, f.mk.matrix(i).Format
	in.Fixed = f.fixed(i)
	f.env.Part("input vector", func() { in.Emit(f.env) })
}

func (f *single) phases() stages {
	if f.sample != nil {
		f.sample.Chosen = f.indices
	}
	return stages{layer: f.layerPhases(), after: []phase{f.finalPhase()}}
}

// layerPhases are the phases of one layer.
func (f *single) layerPhases() []phase {
	c, o, bufs, e := &f.mk.Config, &f.mk.Options, f.bufs, f.env
	projection, l := f.qkv(), f.mk.kind()
	qkv := &projection
	qkv.Early = f.earlyOf(MatrixQKV)
	if o.Queries == SyncWords {
		qkv.Packets = &attention.QKVPackets{LL: f.packets(0), Q: bufs.qWords, KV: bufs.kvWords}
		if qkv.Norm != nil {
			qkv.Packets.Normed = qkv
		}
	}
	to := &vectors{f}
	var atts []*attention.Attention
	var merges []*attention.Merge
	of := func(i int) pipeline.Format { return f.mk.matrix(i).Format }
	variants, each := f.layerAttention()
	for _, v := range variants {
		v = f.withoutFirstPage(v)
		att := &attention.Attention{Heads: c.Heads, KV: f.mk.KV, Splits: o.Splits, PerStage: kvTokensPerStage(f.mk.Plan),
			Variant: v, Q: bufs.q, Packets: qkv.Packets, States: bufs.states, Scratch: f.shared, Tail: f.tail}
		merge := &attention.Merge{Heads: c.Heads, D: c.HeadDim, Splits: o.Splits, States: bufs.states, Out: bufs.attn,
			Packets: to.output(0), Variant: v, Format: of(MatrixO)}
		f.plant(qkv, merge)
		if o.Merge == MergeWords {
			att.LL, att.Merge, att.Unsplit = f.packets(0), merge, f.mk.unsplit()
		}
		atts, merges = append(atts, att), append(merges, merge)
	}
	per := func(name string, ops ...string) Phase {
		return Phase{Name: name, PerLayer: true, Ops: ops}
	}
	all := []phase{
		f.matrixPhase(per("qkv", "embedding (layer 0)", "RMSNorm", "QKV projection", "RoPE", "KV append"), MatrixQKV,
			func(s attention.Step) product.Finisher {
				return qkv.Epilogue(e, s, func() product.NormScale {
					return f.norm(to.first(s), l.PreAttn, f.gainRow(s.Layer, models.RolePreAttn), MatrixQKV)
				})
			}, func() {
				f.fenceKV()
				qkv.Publish(e)
			}),
		{Phase: per("attention", "attention, split along KV"),
			produce: func(s attention.Step) { each(s, func(i int) { atts[i].Produce(e, f.prod, s) }) },
			consume: func(s attention.Step) { each(s, func(i int) { atts[i].Consume(e, f.cons, f.ring, s) }) }},
		{Phase: per("merge", "merge of partial states"),
			consume: func(s attention.Step) { each(s, func(i int) { merges[i].EmitIn(e, s) }) }},
		f.matrixPhase(per(phaseO, "output projection", "residual"), MatrixO, func(s attention.Step) product.Finisher {
			f.plain(MatrixO, product.PlainInput{N: c.Heads * c.HeadDim, X: bufs.attn,
				Packets: to.output(o.flagsSince(o.mergedIn(), phaseO)), Seen: f.seesAttention(s)})
			f.probeAttention(s)
			return to.afterO(s)
		}, nil),
		f.matrixPhase(per("gate_up", "RMSNorm", "gate and up projections", "SwiGLU"), MatrixGateUp,
			func(s attention.Step) product.Finisher {
				scale := f.norm(to.middle(s), l.PreMLP, f.gainRow(s.Layer, models.RolePreMLP), MatrixGateUp)
				if act := to.act(0); act != nil {
					return f.glu(s).Packets(e, act, of(MatrixDown), scale)
				}
				return f.glu(s).Epilogue(e, bufs.act, f.actAt(s), of(MatrixDown), scale)
			}, nil),
		f.matrixPhase(per(phaseDown, "down projection", "residual"), MatrixDown, func(s attention.Step) product.Finisher {
			in := product.PlainInput{N: c.Intermediate, Packets: to.act(o.flagsSince(phaseGateUp, phaseDown))}
			if in.Packets == nil {
				in.X, in.From = bufs.act, f.actAt(s)
			}
			f.plain(MatrixDown, in)
			return to.afterDown(s)
		}, nil),
	}
	f.mlp.phases(all, per)
	for i := range all {
		f.readAhead(&all[i], qkv, to)
	}
	if o.Merge != MergePhase { // the merge is attention's
		all[1].Ops = slices.Concat(all[1].Ops, all[2].Ops)
		all = slices.Delete(all, 2, 3)
	}
	for i := range all {
		all[i].Sync = o.wayBehind(all[i].Name)
		if all[i].Name == phaseGateUp && o.handsOn(phaseGateUp) {
			all[i].orders = func(s attention.Step) dsl.Pred { return s.Layer.EqC(c.Layers - 1).Named("last_layer") }
		}
	}
	return all
}

// finalPhase is the phase after the last layer.
func (f *single) finalPhase() phase {
	c, bufs, e := &f.mk.Config, f.bufs, f.env
	f.argmax = &product.Argmax{Vocab: c.Vocab, Logits: bufs.logits, Best: bufs.best, Index: bufs.bestIndex,
		SharedIndex: f.indices}
	var publish func()
	head := Phase{Name: "lm_head", Ops: []string{"final RMSNorm", "LM head", "argmax"}, Sync: gridBarrier}
	final := f.matrixPhase(head, layerMatrices, func(attention.Step) product.Finisher {
		scale := f.norm((&vectors{f}).last(), f.mk.arch.Final, f.k.U32(f.mk.finalGain()), layerMatrices)
		var epilogue product.Epilogue
		if f.mk.plainLogits() {
			epilogue, publish = f.argmax.Start(e, scale)
			return epilogue
		}
		epilogue, publish = f.argmax.Start(e, product.KnownScale(f.k.F32(1)))
		return product.Epilogue(func(row dsl.Val[dsl.U32], y0, y1 dsl.Val[dsl.F32]) {
			by := scale()
			epilogue(row, f.logit(y0.Mul(by)), f.logit(y1.Mul(by)))
		})
	}, func() { f.publish(publish, f.argmax.Published) })
	final.early = func(attention.Step) {
		f.gains.Fetch(e, f.k.U32(f.mk.finalGain()), f.order(layerMatrices))
		f.fetchAdded(inLayer(attention.Step{}, f.k.U32(c.Layers)), models.RolePostMLP, layerMatrices)
	}
	return final
}

func (f *single) check() {
	f.k.Assert(f.bufs.known.Gt(f.bufs.pos), "the token at the first position must be known")
}

func (f *single) start() {
	f.token = dsl.NewVar(f.k.U32(0), "token")
	f.startEarly()
}

func (f *single) step(s dsl.Val[dsl.U32]) attention.Step {
	f.mlp.step(s)
	pos := f.bufs.pos.Add(s).Named("pos_now")
	return attention.Step{Pos: pos, Index: s, Cached: f.cached(pos), Pages: f.bufs.pages, Table: f.bufs.table,
		Cache: f.bufs.kv, Scales: f.bufs.scales}
}

func (f *single) begin(s dsl.Val[dsl.U32], at attention.Step) {
	f.k.If(at.Pos.Lt(f.bufs.known), func() {
		f.token.Set(dsl.Uniform(f.bufs.tokens.Load(at.Pos), dsl.GPUScope))
	})
	f.open(s)
	if f.sample != nil {
		f.sample.Position = func(dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return at.Pos.AddC(1) }
		f.sample.Step, f.sample.Nth = s, at.Pos.AddC(1).Sub(f.bufs.known)
	}
}

// wanted: logits are of no use before the last token that is known.
func (f *single) wanted(at attention.Step) dsl.Pred { return at.Pos.AddC(1).Ge(f.bufs.known) }

func (f *single) finish(_ dsl.Val[dsl.U32], at attention.Step, running *dsl.Var[dsl.U32]) {
	f.mlp.finish()
	f.k.If(f.wanted(at), func() {
		f.consume(inLayer(at, f.k.U32(0)), f.after...)
		f.choose(at.Pos, running)
	})
}

func (f *single) done(_ dsl.Val[dsl.U32], at attention.Step) dsl.Val[dsl.U32] { return at.Pos.AddC(1) }

// choose takes the token the step chose and ends the launch if it ends the text.
func (f *single) choose(pos dsl.Val[dsl.U32], running *dsl.Var[dsl.U32]) {
	k, e, bufs := f.k, f.env, f.bufs
	k.Region("choose", func() {
		var chosen dsl.Val[dsl.U32]
		f.pick(func() { f.token.Set(dsl.Uniform(f.indices.Load(dsl.At(0)), dsl.GPUScope)) }, func() {
			chosen = f.argmax.Choose(e)
			f.token.Set(chosen)
		})
		if f.sample != nil { // either way's
			chosen = f.token.Get()
		}
		k.If(e.CTA.EqC(0).And(e.Tid.EqC(0)), func() {
			bufs.tokens.Store(pos.AddC(1), chosen)
			bufs.times.Store(pos.AddC(1), dsl.Cast[dsl.U32](k.GlobalTimer()), dsl.Relaxed(dsl.SysScope))
			bufs.stream.Store(pos.AddC(1), chosen, dsl.Relaxed(dsl.SysScope))
		})
		for i := range MaxEnds {
			k.If(chosen.Eq(dsl.Uniform(bufs.ends.Load(dsl.At(i)), dsl.GPUScope)), func() { running.Set(k.U32(0)) })
		}
		f.merge(running)
	})
}

// drop drains the first matrix of a step that does not run.
func (f *single) drop() { f.gemv(MatrixQKV).Drop(f.env, f.cons, f.own.matrix(MatrixQKV)) }
