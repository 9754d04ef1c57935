package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/product"
)

// Names of a ragged kernel's shared-memory regions.
const (
	regionRows   = "first_rows"
	regionPages  = "row_pages"
	regionItems  = "items"
	regionScales = "scales"
	regionSums   = "sums"
	regionChosen = "chosen"
	regionFresh  = "fresh"

	// Attention's scratch and the products' partial sums are never in use in the same phase.
	regionScratchOrPartials = "scratch_or_partials"
)

// ragged is the flow of a kernel whose steps have several query rows, each a
// token of any sequence. Inputs of matrices lie in global memory, all rows of
// them, and the norms are made where their vectors are: see product.GEMM.
type ragged struct {
	*builder
	rows *product.ColumnRows
	work *attention.Work

	first   dsl.Buf[dsl.U32] // shared memory: the rows as the host wrote them
	part    product.Partials
	scales  dsl.Buf[dsl.F32]
	sums    dsl.Buf[dsl.F32]
	scratch dsl.Buf[dsl.F32]
	chosen  dsl.Buf[dsl.U32] // each row's token

	argmax *product.ArgmaxColumns
	embed  phase
	final  phase
}

func newRagged(b *builder) *ragged {
	o, k, p := &b.mk.Options, b.k, b.mk.Plan
	at := func(name string) dsl.BufOpt { return dsl.PlaceAt(p.Region(name).Offset) }
	words := func(name string) int { return p.Region(name).Bytes / 4 }
	f := &ragged{builder: b}
	f.scratch = dsl.Shared[dsl.F32](k, regionScratchOrPartials, words(regionScratchOrPartials),
		at(regionScratchOrPartials), dsl.Align(16), dsl.Doc("attention scratch, or the consumer warps' partial dot products"))
	f.part = product.Partials{Buf: f.scratch}
	f.first = dsl.Shared[dsl.U32](k, regionRows, words(regionRows), at(regionRows), dsl.Align(16),
		dsl.Doc("the query rows, as they are in the launch's first step"))
	f.rows = &product.ColumnRows{T: o.Tokens, Count: b.bufs.count,
		Words: dsl.Shared[dsl.U32](k, regionPages, words(regionPages), at(regionPages), dsl.Align(16),
			dsl.Doc("the query rows, and the page of each"))}
	f.work = &attention.Work{Classes: len(b.mk.classes), PerCTA: b.mk.Limits(0).ItemsPerCTA, Rows: f.first,
		Selection: o.Selection, Positions: b.bufs.positions, Items: dsl.Shared[dsl.U32](k, regionItems, words(regionItems),
			at(regionItems), dsl.Align(16), dsl.Doc("this SM's attention work"))}
	f.work.Fresh = pipeline.NewLanding(k, regionFresh, nil, at(regionFresh))
	f.scales = dsl.Shared[dsl.F32](k, regionScales, words(regionScales), at(regionScales),
		dsl.Doc("RMSNorm's scale of each row, and sums of the warps"))
	f.sums = dsl.Shared[dsl.F32](k, regionSums, words(regionSums), at(regionSums),
		dsl.Doc("what the threads have of each row"))
	f.chosen = dsl.Shared[dsl.U32](k, regionChosen, words(regionChosen), at(regionChosen), dsl.Doc("each row's token"))
	if f.sample = f.sampler(f.rows.Count, f.scratch); f.sample != nil {
		f.sample.Chosen = f.chosen
		f.sample.Position = func(row dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return f.rows.Position(row).AddC(1) }
	}
	return f
}

// sharedTiles is how many tiles of a batch have their sums in shared memory, of 8 or 16 padded tokens: as many as an SM
// has of a matrix, at most.
func (mk *Kernel) sharedTiles(padded int) (tiles int) {
	o := &mk.Options
	for _, m := range append(mk.layerShapes(), mk.headShape()) {
		if product.SumsInShared(m.Format, padded) {
			tiles = max(tiles, pipeline.CeilDiv(pipeline.CeilDiv(m.Rows, pipeline.TileRows), o.SMs))
		}
	}
	return min(tiles, product.DefaultBatchTiles(padded, o.layerFormats()))
}

// raggedRegions are the regions a ragged kernel has of its own.
func (mk *Kernel) raggedRegions() []pipeline.Region {
	o, l, pad := &mk.Options, mk.Limits(0), product.ColumnsPadded(mk.Options.Tokens)
	att, tiles := mk.attention(0), mk.sharedTiles(pad)
	return append([]pipeline.Region{
		{Name: regionScratchOrPartials, Bytes: 4 * max(att.ScratchLen(o.Consumers),
			product.ColumnPartialsLen(o.Consumers, pad, tiles), mk.drawScratch()/4), Align: 16},
		{Name: regionRows, Bytes: 4 * o.Tokens * kv.RowWords, Align: 16},
		{Name: regionPages, Bytes: 4 * o.Tokens * kv.RowWords, Align: 16},
		{Name: regionItems, Bytes: 4 * attention.WorkWords(len(mk.classes), l.ItemsPerCTA), Align: 16},
		{Name: regionFresh, Bytes: pipeline.LandingBytes, Align: 8},
		{Name: regionScales, Bytes: 4 * product.ScaleColumnsLen(o.Consumers, pad), Align: 16},
		{Name: regionSums, Bytes: 4 * product.ColumnSumsLen(o.Consumers, pad), Align: 16},
		{Name: regionChosen, Bytes: 4 * o.Tokens, Align: 16},
	}, mk.drawRegions()...)
}

// attention is the template of a class's shape, without its buffers. The chunk is
// unknown while the planner is asked.
func (mk *Kernel) attention(class int) *attention.Attention {
	c := &mk.Config
	a := &attention.Attention{Heads: c.Heads, KV: mk.KV, Tokens: mk.Options.Tokens, Class: class,
		Variant: mk.classes[class],
		Work:    &attention.Work{Classes: len(mk.classes)}}
	if mk.Plan != nil {
		a.PerStage = mk.ChunkTokens()
	}
	return a
}

func (f *ragged) check() {
	k, n := f.k, f.bufs.count
	k.Assert(n.GeC(1).And(n.LtC(f.mk.Options.Tokens+1)), "the number of rows is one the kernel was made for")
	k.Assert(f.bufs.chooses.NeC(0).Or(f.bufs.steps.EqC(1)), "a step that chooses nothing is the launch's only one")
}

// prologue copies what stays the same for the whole launch.
func (f *ragged) prologue() {
	e := f.env
	f.work.Fetch(e, f.bufs.items)
	f.work.FetchRows(e, f.bufs.rows, f.mk.Options.Tokens)
}

func (f *ragged) start() { f.work.Start() }

func (f *ragged) init() { f.work.Init() }

func (f *ragged) step(s dsl.Val[dsl.U32]) attention.Step {
	return attention.Step{Index: s, Pages: f.bufs.pages, Table: f.bufs.entries, Cache: f.bufs.kv, Scales: f.bufs.scales}
}

// begin looks up where the step's keys and values go, and makes the residual
// vectors of its tokens: the host's, or those that the step before chose.
func (f *ragged) begin(s dsl.Val[dsl.U32], at attention.Step) {
	k, e, chosen := f.k, f.env, f.chosen
	f.rows.Grown = s
	if f.sample != nil {
		f.sample.Step, f.sample.Nth = s, s
	}
	f.k.Region("rows", func() {
		f.rows.Load(e, f.bufs.rows, f.bufs.entries, f.mk.Options.Page)
		k.If(s.EqC(0), func() {
			k.If(e.Tid.Lt(f.rows.Count), func() { chosen.Store(e.Tid, f.rows.Word(e.Tid, kv.RowToken)) })
			e.Sync()
		})
	})
	f.open(s)
	f.consume(inLayer(at, k.U32(0)), f.embed)
}

func (f *ragged) wanted(attention.Step) dsl.Pred { return f.bufs.chooses.NeC(0) }

func (f *ragged) finish(s dsl.Val[dsl.U32], at attention.Step, running *dsl.Var[dsl.U32]) {
	f.k.If(f.wanted(at), func() {
		f.consume(inLayer(at, f.k.U32(0)), f.final)
		f.choose(s, running)
	})
}

func (f *ragged) done(s dsl.Val[dsl.U32], _ attention.Step) dsl.Val[dsl.U32] { return s.AddC(1) }

// choose takes the tokens the step chose; the launch ends when one of them ends
// its text.
func (f *ragged) choose(s dsl.Val[dsl.U32], running *dsl.Var[dsl.U32]) {
	k, e, bufs := f.k, f.env, f.bufs
	k.Region("choose", func() {
		f.pick(func() {}, func() { f.argmax.Choose(e) })
		ended := dsl.NewVar(k.U32(0), "ended")
		k.If(e.Lane.Lt(f.rows.Count), func() {
			token := f.chosen.Load(e.Lane)
			for i := range MaxEnds {
				ended.Set(dsl.Select(token.Eq(bufs.ends.Load(dsl.At(i))), k.U32(1), ended.Get()))
			}
			k.If(e.CTA.EqC(0).And(e.Warp.EqC(0)), func() {
				bufs.stream.Store(s.MulC(f.mk.Options.Tokens).Add(e.Lane), token, dsl.Relaxed(dsl.SysScope))
			})
		})
		k.If(e.CTA.EqC(0).And(e.Tid.EqC(0)), func() {
			bufs.times.Store(s, dsl.Cast[dsl.U32](k.GlobalTimer()), dsl.Relaxed(dsl.SysScope))
		})
		any := dsl.Select(dsl.Any(ended.Get().NeC(0)), k.U32(1), k.U32(0))
		k.If(dsl.Uniform(any, dsl.GPUScope).NeC(0), func() { running.Set(k.U32(0)) })
		f.merge(running)
	})
}

func (f *ragged) drop() { f.gemm(MatrixQKV).Drop(f.env, f.cons, f.own.matrix(MatrixQKV)) }
