package attend

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
)

// assembly is one kernel under construction.
type assembly struct {
	mk *Kernel
	k  *dsl.Kernel
	e  *grid.Env

	work    *attention.Work
	plan    dsl.Buf[dsl.U32]
	rows    dsl.Buf[dsl.U32]
	step    attention.Step
	steps   dsl.Val[dsl.U32]
	epoch   dsl.Buf[dsl.U32]
	barrier dsl.Buf[dsl.U32]
	attns   []*attention.Attention
	bar     *grid.Barrier // in the consumer warps
	trace   *pipeline.Trace
}

// Names of the shared-memory regions beside the ring.
const (
	regionScratch = "attention_scratch"
	regionRows    = "first_rows"
	regionItems   = "items"
	regionSums    = "scratch"
	regionFresh   = "fresh"
)

func newAssembly(mk *Kernel, k *dsl.Kernel) *assembly { return &assembly{mk: mk, k: k} }

// shape is attention of a class, without its buffers.
func (a *assembly) shape(class int) *attention.Attention {
	c := &a.mk.Config
	return &attention.Attention{Heads: c.Heads, KV: c.layout(), Tokens: c.Rows, Class: class,
		Variant: a.mk.variants[class],
		Work:    &attention.Work{Classes: len(a.mk.variants)}}
}

func (a *assembly) regions() []pipeline.Region {
	c := &a.mk.Config
	scratch := 0
	for i := range a.mk.variants {
		scratch = max(scratch, a.shape(i).ScratchLen(c.Consumers))
	}
	return []pipeline.Region{
		{Name: regionScratch, Bytes: 4 * scratch, Align: 16},
		{Name: regionRows, Bytes: 4 * c.Rows * kv.RowWords, Align: 16},
		{Name: regionItems, Bytes: 4 * attention.WorkWords(len(a.mk.variants), c.ItemsPerCTA), Align: 16},
		{Name: regionFresh, Bytes: pipeline.LandingBytes, Align: 8},
		{Name: regionSums, Bytes: 4 * c.Consumers, Align: 16},
	}
}

// declare declares every buffer but the variants'.
func (a *assembly) declare() (ring *pipeline.Ring) {
	c, k, p, ro := &a.mk.Config, a.k, a.mk.Plan, dsl.ReadOnly()
	at := func(name string) dsl.BufOpt { return dsl.PlaceAt(p.Region(name).Offset) }
	words := func(name string) int { return p.Region(name).Bytes / 4 }
	limits, n := a.mk.Limits(0), len(a.mk.variants)
	group := c.Heads / c.KVHeads
	ring = pipeline.NewRing(k, p, c.Consumers)
	scratch := dsl.Shared[dsl.F32](k, regionScratch, words(regionScratch), at(regionScratch), dsl.Align(16))
	first := dsl.Shared[dsl.U32](k, regionRows, words(regionRows), at(regionRows), dsl.Align(16))
	items := dsl.Shared[dsl.U32](k, regionItems, words(regionItems), at(regionItems), dsl.Align(16))
	fresh := pipeline.NewLanding(k, regionFresh, nil, at(regionFresh))
	a.e = grid.NewEnv(k, c.SMs, c.Consumers, dsl.Shared[dsl.F32](k, regionSums, words(regionSums), at(regionSums)))

	q := dsl.Global[dsl.BF16](k, BufferQ, int64(c.Rows*c.Heads*c.HeadDim), ro, dsl.Align(16), dsl.Doc("queries, scaled"))
	final := attention.RowMajor(dsl.Global[dsl.BF16](k, BufferOut, int64(c.Rows*c.Heads*c.HeadDim), dsl.Align(16),
		dsl.Doc("the last layer's outputs")), c.Heads*c.HeadDim)
	cache := dsl.Global[dsl.B128](k, BufferCache, 0, ro, dsl.Align(128), dsl.Doc("the KV cache"))
	entries := dsl.Global[dsl.U32](k, BufferEntries, 0, ro, dsl.Doc("page tables of the units of KV"))
	a.rows = dsl.Global[dsl.U32](k, BufferRows, int64(c.Rows*kv.RowWords), ro, dsl.Align(16), dsl.Doc("the query rows"))
	a.plan = dsl.Global[dsl.U32](k, BufferWork, int64(limits.WorkWords(n)), ro, dsl.Align(16), dsl.Doc("each CTA's work"))
	indptr := dsl.Global[dsl.U32](k, BufferMerges, int64(limits.MergeWords(n)), ro,
		dsl.Doc("which partial states make an output"))
	states := dsl.Global[dsl.B128](k, BufferStates, int64(c.Partials*attention.StatePackets(group, c.HeadDim)),
		dsl.Doc("partial states: words of two elements, the log-sum-exp of all, base 2, and a tag; 0 before the first launch"))
	a.epoch = dsl.Global[dsl.U32](k, "epoch", 1, dsl.Doc("value of barrier when a launch begins; kept by the kernel"))
	a.barrier = dsl.Global[dsl.U32](k, "barrier", 1, dsl.Doc("arrivals at the grid barrier"))
	a.step = attention.Step{Index: k.U32(0), Pages: dsl.Scalar[dsl.U32](k, "pages", "pages a layer in kv"), Table: entries,
		Cache: cache}
	if n := c.layout().ScalesLen(); n > 0 {
		a.step.Scales = dsl.Global[dsl.F32](k, BufferScales, int64(n), ro,
			dsl.Doc("what elements of kv are to be multiplied by"))
	}
	a.work = &attention.Work{Classes: n, PerCTA: c.ItemsPerCTA, Items: items, Rows: first, Selection: c.Selection,
		Fresh: fresh}
	if c.Selection {
		a.work.Positions = dsl.Global[dsl.U32](k, BufferPositions, 0, ro,
			dsl.Doc("position of each page entry's first token"))
	}
	if c.Trace > 0 {
		a.trace = pipeline.NewTrace(k, c.SMs, c.Trace)
		ring.Traced(a.trace)
	}
	a.steps = dsl.Scalar[dsl.U32](k, "steps", "times all layers are done, at least 1")
	for i, v := range a.mk.variants {
		att := a.shape(i)
		att.PerStage, att.Work, att.Q, att.States, att.Final, att.Scratch = limits.ChunkTokens, a.work, q, states, final,
			scratch
		att.LL = &grid.LL{Flag: func() dsl.Val[dsl.U32] { return a.bar.Flag() }}
		att.Merge = &attention.Merge{Heads: c.Heads, D: c.HeadDim, States: states, Variant: v,
			Table: &attention.MergeTable{Tokens: c.Rows, KVHeads: c.KVHeads, Class: i, Indptr: indptr, Work: a.work,
				Final: final}}
		a.attns = append(a.attns, att)
	}
	return ring
}

func (a *assembly) assemble() {
	k, ring := a.k, a.declare()
	e := a.e
	k.Assert(a.steps.GeC(1), "a launch runs at least one step")
	k.Region("prologue", func() {
		k.If(e.Tid.EqC(0), func() {
			a.work.Init()
			ring.Init()
		})
		a.work.Fetch(e, a.plan)
		a.work.FetchRows(e, a.rows, a.mk.Config.Rows)
		k.Barrier()
	})
	k.Roles(
		dsl.Role{Name: "consumers", First: 0, End: e.Consumers, Body: func() {
			c := ring.Consumer()
			e.Trace = a.trace
			a.trace.Start(0, e.Consumers-1)
			a.work.Start()
			a.bar = grid.NewGridBarrier(e, a.barrier, dsl.Uniform(a.epoch.Load(dsl.At(0)), dsl.GPUScope))
			a.eachLayer(func(s attention.Step, class int) {
				a.trace.Later()
				a.phase("attention", func() { a.attns[class].Consume(e, c, ring, s) })
				k.Region("sync after attention", a.bar.Sync)
				k.If(a.attns[class].Phase(), func() {
					a.trace.Later()
					a.phase("merge", func() { a.attns[class].Merge.EmitIn(e, s) })
					k.Region("sync after merge", a.bar.Sync)
				})
			})
			k.If(e.CTA.EqC(0).And(e.Tid.EqC(0)), func() { a.epoch.Store(dsl.At(0), a.bar.Epoch()) })
			a.trace.Finish()
		}},
		dsl.Role{Name: "producer", First: e.Consumers, End: e.Consumers + 1, Body: func() {
			p := ring.Producer()
			a.trace.Start(1, e.Consumers)
			a.eachLayer(func(s attention.Step, class int) {
				a.phase("attention", func() { a.attns[class].Produce(e, p, s) })
			})
			p.Finish()
			a.trace.Finish()
		}})
	if a.trace != nil {
		a.mk.Traced = a.trace.Sites
	}
}

// phase is a named phase, and a span of the trace.
func (a *assembly) phase(name string, body func()) {
	a.k.Region(name, func() { a.trace.Span(a.k, pipeline.TracePhase, name, body) })
}

// eachLayer calls body for the class of every layer of every step.
func (a *assembly) eachLayer(body func(s attention.Step, class int)) {
	k, c := a.k, &a.mk.Config
	k.For(k.U32(0), a.steps, func(step dsl.Val[dsl.U32]) {
		k.For(k.U32(0), k.U32(c.Layers), func(l dsl.Val[dsl.U32]) {
			s := a.step
			s.Layer = l.Named("layer")
			a.trace.At(step, s.Layer)
			name := func(class int) string { return fmt.Sprintf("layers of class %d", class) }
			attention.Turns(a.mk.pattern).Each(k, l, name, func(class int) { body(s, class) })
		}, dsl.Unroll(1))
	}, dsl.Unroll(1))
}
