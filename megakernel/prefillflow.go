package megakernel

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/prefill"
	"github.com/mkgen/mkgen/tasks/product"
)

// prefillFlow assembles the kernel of a prefill step.
type prefillFlow struct {
	*builder
	p     *Prefill
	ring  *pipeline.TileRing
	turns *pipeline.Turns // of attention's products

	prompt  dsl.Buf[dsl.U32]
	image   dsl.Buf[dsl.B128] // of a layer in bf16, see Prefill.Scratch
	normed  dsl.Buf[dsl.BF16] // the residual vectors times the next norm's gains
	norms   [2]*prefill.Norm  // of the inputs of QKV and of gate and up; nil where these have none
	final   *prefill.Norm     // of the LM head's input
	count   dsl.Val[dsl.U32]
	chooses dsl.Val[dsl.U32]
	// partBlocks is of keys and values, see attention.PrefillSplit.
	partBlocks dsl.Val[dsl.U32]
	gemms      [prefillMatrices]*prefill.GEMM
	att        *attention.PrefillAttention
	copy       *attention.PrefillCopy // of keys and values for attention; nil where it reads the cache
	argmax     *product.Argmax
	chosen     dsl.Buf[dsl.U32]
	codes      dsl.Buf[dsl.U32] // of the next product's input, with PrefillOptions.Activations of e4m3
	scales     dsl.Buf[dsl.F32] // of its tokens
	inputs     map[int]dsl.Buf[dsl.BF16]
	residuals  map[int]*prefill.Residual // behind o and behind down
	branches   map[int]*prefill.Branch   // the same, with norms behind attention and the MLP; else none
	syncs      prefillSyncs
	cons       *pipeline.TileConsumer
	prod       *pipeline.TileProducer
	several    prefillSeveral // in a kernel of several sequences
}

// prefillProducers is the number of warps of the producer's warpgroup; one of them works.
const prefillProducers = 4

// The registers of a thread, by role, with two consumer warpgroups.
const (
	prefillConsumerRegisters = 232
	prefillProducerRegisters = 40
)

func newPrefillFlow(p *Prefill) *prefillFlow {
	c, o := &p.Of.Config, &p.Of.Options
	consumers := 4 * p.Options.Groups
	doc := []string{
		fmt.Sprintf("A prefill step of %s: up to %d tokens of %s; %d layers, hidden %d, %d query and %d KV heads of %d, intermediate %d.",
			c.Name, p.Options.Tokens, p.Options.of(), c.Layers, c.Hidden, c.Heads, c.KVHeads, c.HeadDim, c.Intermediate),
		fmt.Sprintf("%d CTAs in clusters of %d; %d stages of %d bytes; tiles of %d tokens by %s rows; KV pages of %d tokens.",
			o.SMs, p.Options.Cluster, p.Stages, p.stageBytes, prefill.Tokens(p.Options.Groups), p.tilesText(), o.Page),
		"Warps: the consumers, warpgroups of four, multiply by wgmma; a producer behind them copies tiles of weights and activations to the stages. A stage's full",
		"barrier completes with the bytes of its copies, which may be shared in a cluster; its empty barrier when every CTA that got them has multiplied.",
		commentsEnd}
	k := dsl.New("mkgen_prefill", dsl.Options{Warps: consumers + prefillProducers, Grid: o.SMs, Cluster: p.Options.Cluster,
		SharedLimit: o.SharedLimit, Doc: doc})
	f := &prefillFlow{builder: &builder{mk: p.Of, k: k}, p: p}
	f.syncs = f.p.layerSyncs()
	f.declare()
	notes := dsl.Shared[dsl.U32](k, regionNotes, pipeline.NoteWords*k.Warps(), dsl.Align(16),
		dsl.Doc("what each warp waited for when it gave up"))
	f.watch = pipeline.NewWatch(k, f.bufs.abort, f.bufs.records, notes)
	each := dsl.Doc("one a consumer warp")
	f.env = grid.NewEnv(k, o.SMs, consumers, dsl.Shared[dsl.F32](k, regionScratch, consumers, each))
	if f.argmax != nil {
		f.argmax.SharedIndex = dsl.Shared[dsl.U32](k, regionIndex, consumers, each)
	}
	f.ring = pipeline.NewTileRing(k, pipeline.TileStages{Stages: p.Stages, Bytes: p.stageBytes, Warps: consumers,
		Cluster: p.Options.Cluster, Producers: p.Of.KV.Producers()}, f.watch)
	f.turns = f.att.Turns(k, f.watch)
	return f
}

// activations is the form of a matrix's input of n columns.
func (f *prefillFlow) activations(n int) prefill.Activations {
	return prefill.Activations{K: n, T: f.p.Room()}
}

// declare declares the buffers, the scalars, and what is made of them.
func (f *prefillFlow) declare() {
	mk, k := f.p.Of, f.k
	c, o, ro, room := &mk.Config, &mk.Options, dsl.ReadOnly(), f.p.Room()
	qRows := c.Heads * c.HeadDim
	input := func(name string, n int, what string) dsl.Buf[dsl.BF16] {
		return dsl.Global[dsl.BF16](k, name, int64(f.activations(n).Len()), dsl.Align(16),
			bufDoc("[%d][%d] %s, as tiles of 8 tokens", room, n, what))
	}
	f.bufs = &buffers{
		prefill: true,
		weights: dsl.Global[dsl.B128](k, "weights", mk.Plan.PackedBytes/16, ro, bufDoc("packed matrices, see the layout")),
		gains:   mk.declareGains(k),
		table:   dsl.Global[dsl.U32](k, BufferPrefillTable, 0, ro, bufDoc("page of tokens %d·i …, in order", o.Page)),
		kv: dsl.Global[dsl.B128](k, "kv", 0, dsl.Align(128),
			bufDoc("[%d layers][pages][%d KV heads][%d slots][K, V][%d] %s", c.Layers, c.KVHeads, o.Page, c.HeadDim, o.KV)),
		x: dsl.Global[dsl.F32](k, "x", elements(room, c.Hidden), dsl.Align(16),
			bufDoc("[%d][%d] residual vectors", room, c.Hidden)),
		q: dsl.Global[dsl.BF16](k, "q", elements(room, qRows), dsl.Align(16),
			bufDoc("[%d][%d][%d] rotated, scaled queries", room, c.Heads, c.HeadDim)),
		attn: input("attn", qRows, "attention outputs"),
		act:  input("act", c.Intermediate, "silu(gate)·up"),
		abort: dsl.Global[dsl.U32](k, "abort", pipeline.AbortWords, dsl.HostWrites(),
			bufDoc("not 0: give the launch up; the second word: for copies in flight too")),
		records: dsl.Global[dsl.U32](k, "records", elements(o.SMs, k.Warps(), pipeline.RecordWords),
			bufDoc("[%d][%d][%d] what each warp waited for when it gave up; 0 before a launch", o.SMs, k.Warps(),
				pipeline.RecordWords)),
		progress: dsl.Global[dsl.U32](k, "progress", 1, dsl.HostReads(), bufDoc("out: layers of the step that are finished")),
		epoch:    dsl.Global[dsl.U32](k, "epoch", 1, bufDoc("value of barrier when a launch begins; kept by the kernel")),
		barrier: dsl.Global[dsl.U32](k, "barrier", 1,
			bufDoc("arrivals at the grid barrier since it was zeroed, modulo 2^32")),
	}
	mk.declareFeatures(k, f.bufs)
	f.bufs.embed = mk.declareEmbed(k)
	f.prompt = dsl.Global[dsl.U32](k, BufferPrompt, elements(f.p.Options.Tokens), ro,
		bufDoc("[%d] the step's tokens", f.p.Options.Tokens))
	f.normed = input("normed", c.Hidden, "residual vectors times the next norm's gains")
	if n := f.p.Scratch(); n > 0 {
		f.image = dsl.Global[dsl.B128](k, BufferLayer, n/16, dsl.Align(128),
			bufDoc("matrices of a layer in bf16, packed as weights of that format"))
	}
	if f.p.Options.several() {
		f.declareSeveral()
		f.declareChoice()
	}
	x := map[int]dsl.Buf[dsl.BF16]{MatrixQKV: f.normed, MatrixO: f.bufs.attn, MatrixGateUp: f.normed,
		MatrixDown: f.bufs.act, prefillHead: f.normed}
	f.inputs = x
	f.declareCodes()
	for i := range f.p.tiled() {
		f.gemms[i] = f.p.gemm(i)
		if in := f.gemms[i].Input; in != nil {
			in.Codes, in.Scales = f.codes, f.scales
			in.Beside = f.mk.Options.Fault == FaultTokenScale && i == MatrixDown
		}
		if n := f.gemms[i].Parts; n > 1 {
			f.gemms[i].Sums = dsl.Global[dsl.F32](k, "part_"+f.gemms[i].Name, f.gemms[i].SumsLen(room), dsl.Align(16),
				bufDoc("[tile][CTA of the cluster][%d parts of the columns][fours of a thread's sums][thread][4]", n))
		}
		w := f.bufs.weights
		if f.gemms[i].Late {
			w = f.image
		}
		in, from := f.activations(f.gemms[i].M.K), x[i]
		if i == prefillHead && f.p.Options.several() {
			in, from = f.several.head, f.several.choice.Picked
		}
		f.gemms[i].Maps(k, w, in, from)
	}
	f.att = f.p.attention()
	f.att.Q, f.att.Out, f.att.To = f.bufs.q, f.activations(qRows), f.bufs.attn
	if n := f.att.QueryBytes(); n > 0 {
		f.att.Queries = dsl.Shared[dsl.B128](k, "queries", n/16, dsl.Align(1024),
			dsl.Doc("of attention's tiles, which registers have no room for"))
	}
	f.attends()
	f.declareCopy()
	f.att.Map(k, f.keys())
	f.declareArgmax()
	f.declareNorms()
	if !f.p.Options.several() {
		f.bufs.pos = dsl.Scalar[dsl.U32](k, ScalarPos,
			"position of the step's first token; the cache holds tokens 0 … pos-1")
	}
	f.count = dsl.Scalar[dsl.U32](k, ScalarRows, fmt.Sprintf("tokens of the step, 1 to %d", f.p.Options.Tokens))
	f.chooses = dsl.Scalar[dsl.U32](k, ScalarChooses,
		"0: the step ends behind the last layer's keys and values, without logits; else 1")
	f.bufs.pages = dsl.Scalar[dsl.U32](k, ScalarPages, "pages a layer in kv")
	f.declareSplit()
	if f.copy != nil {
		f.copy.N = dsl.Scalar[dsl.U32](k, ScalarKept, "pages in "+BufferKept)
	}
}

// assemble builds the whole body.
func (f *prefillFlow) assemble() {
	k, e := f.k, f.env
	if f.p.Options.several() {
		n := f.several.count
		k.Assert(n.GeC(1).And(n.LtC(f.p.Options.Sequences+1)),
			"the number of sequences is one the kernel was made for")
	}
	k.Assert(f.count.GeC(1).And(f.count.LtC(f.p.Options.Tokens+1)), "the number of tokens is one the kernel was made for")
	k.Assert(f.partBlocks.GeC(1).And(f.partBlocks.LtC(OnePart+1)),
		"a part has a number of blocks that it may have")
	k.Region("prologue", func() {
		k.If(e.Tid.EqC(0), func() {
			f.turns.Init()
			f.ring.Init()
		})
		f.watch.Init(k)
		k.ClusterBarrier()
	})
	k.Roles(
		dsl.Role{Name: "consumers", First: 0, End: e.Consumers, Body: f.consumers},
		dsl.Role{Name: "producer", First: e.Consumers, End: e.Consumers + prefillProducers, Body: f.producer})
	k.ClusterBarrier()
}

// step is what a layer's templates know.
func (f *prefillFlow) step(layer dsl.Val[dsl.U32]) attention.Step {
	return attention.Step{Pos: f.bufs.pos, Pages: f.bufs.pages, Layer: layer, Table: f.bufs.table, Cache: f.bufs.kv,
		Scales: f.bufs.scales}
}

// epochNow is the grid barrier's count when the launch begins.
func (f *prefillFlow) epochNow() dsl.Val[dsl.U32] {
	return dsl.Uniform(f.bufs.epoch.Load(dsl.At(0)), dsl.GPUScope)
}

// consumers is the arithmetic: each phase ends at a barrier of the grid, and what tensor maps read of it is fenced
// before.
func (f *prefillFlow) consumers() {
	mk, k, e := f.p.Of, f.k, f.env
	c := &mk.Config
	if f.p.Options.Groups == 2 {
		k.MoreRegisters(prefillConsumerRegisters)
	}
	f.cons = f.ring.Consumer()
	f.cons.Turn = f.turns.Start()
	f.bar = grid.NewGridBarrier(e, f.bufs.barrier, f.epochNow())
	f.bar.Watch = f.watch
	f.phase("embed", true, func() {
		f.residuals[MatrixDown].Embed(e, f.count, k.U32(0), f.p.Options.Padded(),
			func(t dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return f.prompt.Load(t) }, f.embedding().Row)
		f.dequantize(MatrixQKV, k.U32(0))
	})
	qkv := &attention.PrefillQKV{QKV: f.qkv(), Input: f.norms[0]}
	qkv.Copy, qkv.Queries = f.copy, f.scaled()
	if f.p.Options.several() {
		qkv.Place = func(token dsl.Val[dsl.U32]) (pos, page dsl.Val[dsl.U32]) {
			w := f.several.rows.LoadN(token.MulC(2), 2)
			return w[0].Named("position"), w[1].Named("page")
		}
	}
	wide := qkv.Norm != nil && !f.p.byHead()
	if f.p.byHead() {
		qkv.ByHead, qkv.Norm = qkv.Norm, nil
	}
	switch mk.Options.Fault {
	case FaultRope:
		qkv.QueryShift = 1
	case FaultDropToken:
		f.att.Blind = true
	case FaultMergeShare:
		f.att.Split.Doubled = true
	}
	k.For(k.U32(0), k.U32(c.Layers), func(l dsl.Val[dsl.U32]) {
		s := f.step(l.Named("layer"))
		f.watch.Layer(s.Layer)
		f.product(MatrixQKV, s, prefill.Span{N: f.count}, qkv.Epilogue(e, s, f.count), func() {
			if f.copy != nil {
				k.If(f.goesOn(l), func() { f.copy.Emit(e, s) })
			}
		})
		if wide {
			f.phase("qk_norm", true, func() { qkv.Normalise(e, s, f.count) })
		}
		k.If(f.goesOn(l), func() {
			span := f.span(l)
			f.phase("attention", true, func() {
				f.attention(s, func(att *attention.PrefillAttention) {
					f.each(f.reads(s), span, func(e *grid.Env, s attention.Step, span prefill.Span) {
						att.Consume(e, f.cons, f.ring.Data, s, span, f.p.Options.Padded())
					})
				})
				f.dequantize(MatrixO, l)
			})
			f.merge(s, span)
			f.product(MatrixO, s, span, f.residual(s, MatrixO, f.gainRow(l, models.RolePreMLP)),
				func() { f.dequantize(MatrixGateUp, l) })
			f.add(s, MatrixO, span)
			f.product(MatrixGateUp, s, span, prefill.GLU(f.glu(s), e, f.activations(c.Intermediate), f.bufs.act, f.norms[1]),
				func() { f.dequantize(MatrixDown, l) })
			f.product(MatrixDown, s, span, f.residual(s, MatrixDown, f.gainRow(l.AddC(1), models.RolePreAttn)), func() {
				if f.p.image != nil {
					k.If(l.NeC(c.Layers-1), func() { f.dequantize(MatrixQKV, l.AddC(1)) })
				}
			})
			f.add(s, MatrixDown, span)
		})
		k.If(e.CTA.EqC(0).And(e.Tid.EqC(0)),
			func() { f.bufs.progress.Store(dsl.At(0), s.Layer.AddC(1), dsl.Relaxed(dsl.SysScope)) })
	}, dsl.Unroll(1))
	f.watch.Layer(k.U32(c.Layers))
	k.If(f.chooses.NeC(0), f.choose)
	f.watch.Publish(k)
	k.If(e.CTA.EqC(0).And(e.Tid.EqC(0)), func() { f.bufs.epoch.Store(dsl.At(0), f.bar.Epoch()) })
}

// residual is the epilogue of matrix i, a projection back into the residual vectors; norm is the row of gains of the
// norm that these go through next.
func (f *prefillFlow) residual(s attention.Step, i int, norm dsl.Val[dsl.U32]) prefill.Epilogue {
	if b := f.branches[i]; b != nil {
		dsl.Optional(norm)
		return b.Epilogue(f.env, f.biasRows(s, i))
	}
	return f.residuals[i].Epilogue(f.env, norm, f.biasRows(s, i), f.mk.kind().Residual)
}

// goesOn is whether a layer has more to do than keys and values: all but the last one do, and that one where the step
// chooses. That is looked at anew for each layer: kept for all of them it spills.
func (f *prefillFlow) goesOn(layer dsl.Val[dsl.U32]) dsl.Pred {
	return layer.NeC(f.p.Of.Config.Layers - 1).Or(dsl.Opaque(f.chooses).NeC(0))
}

// span is the tokens whose vectors are wanted behind a layer's keys and values: of one sequence behind those of the
// last layer of the last token alone.
func (f *prefillFlow) span(layer dsl.Val[dsl.U32]) prefill.Span {
	last := layer.EqC(f.p.Of.Config.Layers - 1)
	if f.p.Options.several() {
		last = last.And(f.several.count.EqC(1))
	}
	return prefill.Span{N: f.count, Last: &last}
}

// phase runs a phase and its sync. fence is whether tensor maps read what it writes.
func (f *prefillFlow) phase(name string, fence bool, body func()) {
	f.k.Region(name, body)
	f.k.Region("sync after "+name, func() {
		if fence {
			f.k.FenceProxyAsyncGlobal()
		}
		f.bar.Sync()
	})
}

// product is the phase of matrix i, behind which comes then, unless nil. In e4m3 the one that rounds its input comes
// first.
func (f *prefillFlow) product(i int, s attention.Step, span prefill.Span, epilogue prefill.Epilogue,
	then func()) {
	g := f.gemms[i]
	if g.Input != nil {
		q := &prefill.Quantise{From: f.activations(g.M.K), X: f.inputs[i], To: *g.Input}
		f.phase("quantise "+g.Name, true, func() { q.Emit(f.env, span, f.p.Options.Padded()) })
	}
	finish := func() { g.Consume(f.env, f.cons, f.ring, s.Layer, span, f.p.stageBytes, epilogue) }
	name := g.Name
	if g.Parts > 1 {
		f.phase(name, false, finish)
		name, finish = name+" sums", func() { g.Finish(f.env, s.Layer, span, epilogue) }
	}
	f.phase(name, true, func() {
		finish()
		if then != nil {
			then()
		}
	})
}

// dequantize makes matrix i of a layer bf16, where it is not, at the end of the phase before its product: an SM
// begins when it is done with that phase.
func (f *prefillFlow) dequantize(i int, layer dsl.Val[dsl.U32]) {
	p := f.p
	if p.image == nil {
		return
	}
	d := &prefill.Dequantize{M: &p.Of.Plan.Layer[i], Plan: p.Of.Plan, To: p.matrix(i), Weights: f.bufs.weights,
		Dst: dsl.View[dsl.BF16](f.image)}
	f.k.Region("dequantize "+d.M.Name, func() { d.Emit(f.env, layer) })
}
