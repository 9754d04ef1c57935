package calibrate

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

// Shape is what the measuring kernel is built for.
type Shape struct {
	SMs, Consumers               int // CTAs, consumer warps of each
	StageBytes, Stages, InFlight int
	K                            int // columns of the product's matrix
	VectorBytes                  int // the longest vector that is exchanged, a multiple of 16, at least 2 bytes a column
}

// The scalars of the kernel. Units are elements of 16 bytes.
const (
	scalarFill   = "fill_units"   // not 0: the number of elements of data to write instead
	scalarPhases = "phases"       // phases of the launch, at most maxPhases
	scalarTiles  = "tiles"        // row tiles of the matrix that each CTA streams in a phase
	scalarWork   = "work"         // not 0: multiply them; else drain them unread
	scalarReady  = "ready_chunks" // the number of chunks that land before a phase begins
	scalarSync   = "sync"         // a Sync: what stands before each phase
	scalarTag    = "tag"          // of the first phase's words; no launch has had it, nor will have those behind it
	scalarSalt   = "salt"         // what is written begins with it; another in every launch
	scalarVector = "vector_units" // elements of the vector exchanged
	scalarProbes = "probes"       // requests that a warp of each CTA makes meanwhile, one after another
	scalarAtomic = "atomic"       // not 0: they are atomics; else loads
)

// The kernel's buffers. Clocks are the SM's own, low words.
const (
	bufferData    = "data"    // what is streamed; the host sizes it
	bufferVector  = "vector"  // [2][VectorBytes/16] what is exchanged, in turns
	bufferWords   = "words"   // [2][VectorBytes/8] the same in words with tags, 8 bytes in each
	bufferLinks   = "links"   // [linkWords] zeros; each tells how far beyond the next address is
	bufferCounter = "counter" // what atomics add to
	bufferBarrier = "barrier"
	bufferEpoch   = "epoch"
	bufferHeads   = "heads"  // [SMs][headWords] out
	bufferProbes  = "probed" // [SMs][probeWords] out
	bufferStamps  = "stamps" // [maxPhases][SMs][stampWords] out
	bufferSink    = "sink"   // [SMs][threads] out: so that the arithmetic has a use
)

const (
	maxPhases = 1024
	linkWords = 4096 // 128 lines
	lineWords = 32
	element   = 16
)

// The words of a CTA's head: when its consumers began and ended by the SM's clock and by the
// GPU's timer (ns, low word), and how many elements of vectors were not what was written.
const (
	headBegin = iota
	headBeginTime
	headEnd
	headEndTime
	headWrong
	headWords = 8
)

// The words of a CTA's probes: clocks that all of them took, and when the last was done.
const (
	probeTook = iota
	probeEnd
	probeWords = 2
)

// The words of a phase of a CTA, in clocks.
const (
	stampWait  = iota // from the arrival at the sync to its release
	stampRead         // until the vector was there
	stampDrain        // from the begin of draining to the end
	stampWords = 4
)

type u32 = dsl.Val[dsl.U32]

// Sync is how a launch's phases hand a vector on.
type Sync int

// The syncs.
const (
	None    Sync = iota
	Barrier      // all SMs pass the grid barrier
	Count        // all SMs count, which orders nothing: of no vector
	Counted      // all SMs count, and the vector is in words with tags
	Words        // the vector is in words with tags, for which who needs them waits
)

// builder is the kernel under construction.
type builder struct {
	Shape
	k      *dsl.Kernel
	e      *grid.Env
	ring   *pipeline.Ring
	gemv   *product.GEMV
	passed barrierClock

	data                   dsl.Buf[dsl.B128]
	words                  dsl.Buf[dsl.B128]
	vector, links, counter dsl.Buf[dsl.U32]
	barrier, epoch         dsl.Buf[dsl.U32]
	heads, probed, stamps  dsl.Buf[dsl.U32]
	sink                   dsl.Buf[dsl.F32]
	staged                 dsl.Buf[dsl.U32] // shared memory: the vector

	phases, tiles, work, ready, syncWay, tag, salt, units, probes, atomic u32
}

// Names of the shared-memory regions beside the ring.
const (
	regionVector   = "staged"
	regionPartials = "partials"
	regionScratch  = "scratch"
)

// Kernel builds the kernel that measures: the ring, the grid barrier and the matrix-vector
// product of the megakernel, and a warp of each CTA that makes small requests. Which of
// them work, and how much, scalars say. Every phase begins, where there are syncs, with
// an exchange: each CTA writes its part of a vector, passes the grid barrier or what is in
// its place, and reads the whole vector into shared memory.
func Kernel(s Shape) (*ir.Kernel, error) {
	b := &builder{Shape: s}
	plan, err := pipeline.New(s.request())
	if err != nil {
		return nil, err
	}
	k := dsl.New("mkgen_calibrate", dsl.Options{Warps: s.Consumers + 2, Grid: s.SMs, SharedLimit: sharedLimit,
		Doc: []string{"Measures what streaming, exchanges, small requests and draining take on a GPU."}})
	b.k = k
	b.declare(plan)
	fill := dsl.Scalar[dsl.U32](k, scalarFill, "16-byte elements to write instead of measuring")
	k.IfElse(fill.NeC(0), func() {
		k.Region("fill", func() { ceiling.Fill(k, dsl.View[dsl.U32](b.data), fill, s.SMs) })
	}, b.measure)
	return k.Finish()
}

const sharedLimit = 232448 // what sm_90 offers a block

// request asks for the ring, and for a matrix of one tile a CTA: how often it is streamed
// is decided at run time.
func (s *Shape) request() pipeline.Request {
	return pipeline.Request{SMs: s.SMs, Layers: 1,
		Layer: []pipeline.Matrix{{Name: "work", Rows: pipeline.TileRows * s.SMs, K: s.K}}, StageBytes: s.StageBytes,
		Stages: s.Stages, InFlight: s.InFlight, SharedLimit: sharedLimit, Fixed: []pipeline.Region{
			{Name: regionVector, Bytes: s.VectorBytes, Align: 16},
			{Name: regionPartials, Bytes: 4 * product.PartialsLen(s.Consumers), Align: 16},
			{Name: regionScratch, Bytes: 4 * s.Consumers, Align: 16},
		}}
}

func (b *builder) declare(p *pipeline.Plan) {
	k, sms := b.k, int64(b.SMs)
	at := func(name string) dsl.BufOpt { return dsl.PlaceAt(p.Region(name).Offset) }
	b.ring = pipeline.NewRing(k, p, b.Consumers)
	b.staged = dsl.Shared[dsl.U32](k, regionVector, b.VectorBytes/4, at(regionVector), dsl.Align(16),
		dsl.Doc("the vector, and the product's input"))
	part := dsl.Shared[dsl.F32](k, regionPartials, product.PartialsLen(b.Consumers), at(regionPartials), dsl.Align(16),
		dsl.Doc("the consumer warps' partial dot products"))
	b.e = grid.NewEnv(k, b.SMs, b.Consumers, dsl.Shared[dsl.F32](k, regionScratch, b.Consumers, at(regionScratch)))
	b.passed = newBarrierClock(k, "clock")
	b.gemv = &product.GEMV{Name: "work", M: &p.Layer[0], X: dsl.View[dsl.BF16](b.staged),
		Part: product.Partials{Buf: part}}
	b.data = dsl.Global[dsl.B128](k, bufferData, 0, dsl.Align(128), dsl.Doc("what is streamed"))
	word := func(name string, n int64, doc string) dsl.Buf[dsl.U32] {
		return dsl.Global[dsl.U32](k, name, n, dsl.Align(16), dsl.Doc(doc))
	}
	b.vector = word(bufferVector, 2*int64(b.VectorBytes)/4, "[2] what is exchanged, in turns")
	b.words = dsl.Global[dsl.B128](k, bufferWords, 2*int64(b.VectorBytes)/wordPayload,
		dsl.Doc("[2] the same in words with tags, in turns"))
	b.links = word(bufferLinks, linkWords, "zeros: how far beyond the next line the next load goes")
	b.counter = word(bufferCounter, 4, "what atomics add to")
	b.barrier = word(bufferBarrier, 4, "arrivals at the grid barrier since it was zeroed, modulo 2^32")
	b.epoch = word(bufferEpoch, 4, "value of barrier when a launch begins; kept by the kernel")
	b.heads = word(bufferHeads, headWords*sms, "[CTAs] out: when it began and ended, and what was wrong")
	b.probed = word(bufferProbes, probeWords*sms, "[CTAs] out: clocks of all requests together, and of the end")
	b.stamps = word(bufferStamps, maxPhases*stampWords*sms, "[phases][CTAs] out: clocks of wait, reading and draining")
	b.sink = dsl.Global[dsl.F32](k, bufferSink, sms*int64(b.Consumers*dsl.WarpSize), dsl.Doc("out: sums"))
	scalar := func(name, doc string) u32 { return dsl.Scalar[dsl.U32](k, name, doc) }
	b.phases, b.tiles = scalar(scalarPhases, "phases of the launch"),
		scalar(scalarTiles, "row tiles a CTA streams in a phase")
	b.work, b.ready = scalar(scalarWork, "multiply what is streamed"),
		scalar(scalarReady, "chunks that have landed when a phase begins to drain")
	b.syncWay = scalar(scalarSync,
		"an exchange before each phase: 1 behind a barrier, 2 of no vector behind a count, 3 in words behind a count, 4 in words")
	b.tag, b.salt = scalar(scalarTag, "of the first phase's words"),
		scalar(scalarSalt, "what the first element exchanged is")
	b.units = scalar(scalarVector, "16-byte elements of the vector exchanged")
	b.probes, b.atomic = scalar(scalarProbes, "small requests of each CTA"), scalar(scalarAtomic, "they are atomics")
}

// measure is a launch that is no fill.
func (b *builder) measure() {
	k, e := b.k, b.e
	k.Assert(b.phases.LtC(maxPhases+1), "more phases than are noted")
	k.Assert(b.units.LtC(b.VectorBytes/element+1), "the vector is longer than the kernel was made for")
	k.Assert(b.syncWay.NeC(int(Count)).Or(b.units.EqC(0)), "a count orders no vector")
	k.Assert(b.syncWay.LtC(int(Counted)).Or(b.units.MulC(element/wordPayload).GeC(b.SMs)),
		"fewer words than CTAs, each of which must write some")
	k.Assert(b.ready.LtC(b.Stages+1), "more chunks than the ring holds")
	k.If(e.Tid.EqC(0), func() {
		b.ring.Init()
		b.passed.init()
	})
	k.ForStep(e.Tid, k.U32(b.VectorBytes/4), k.Warps()*dsl.WarpSize, func(i u32) { b.staged.Store(i, k.U32(0)) })
	k.Barrier()
	k.Roles(
		dsl.Role{Name: "consumers", First: 0, End: b.Consumers, Body: b.consume},
		dsl.Role{Name: "producer", First: b.Consumers, End: b.Consumers + 1, Body: b.produce},
		dsl.Role{Name: "prober", First: b.Consumers + 1, End: b.Consumers + 2, Body: b.probe})
}

// share is what a CTA streams in a phase.
func (b *builder) share() product.Share { return product.Share{First: b.k.U32(0), Count: b.tiles} }

func (b *builder) produce() {
	k, e := b.k, b.e
	p := b.ring.Producer()
	tile := int(b.gemv.M.TileBytes() / element)
	first := dsl.Cast[dsl.U64](e.CTA).Mul(dsl.Cast[dsl.U64](b.phases.Mul(b.tiles))).MulC(tile).Named("first")
	k.For(k.U32(0), b.phases, func(phase u32) {
		b.gemv.Produce(e, p, b.share(), b.data, first.Add(dsl.Cast[dsl.U64](phase.Mul(b.tiles)).MulC(tile)))
	}, dsl.Unroll(1))
}

func (b *builder) clock() u32 { return dsl.Cast[dsl.U32](b.k.Clock()) }

func (b *builder) consume() {
	k, e := b.k, b.e
	c := b.ring.Consumer()
	bar := grid.NewGridBarrier(e, b.barrier, dsl.Uniform(b.epoch.Load(dsl.At(0)), dsl.GPUScope))
	first := e.Tid.EqC(0)
	head := e.CTA.MulC(headWords)
	stamp := func(at int) {
		k.If(first, func() {
			b.heads.StoreN(head.AddC(at), []u32{b.clock(), dsl.Cast[dsl.U32](k.GlobalTimer())})
		})
	}
	stamp(headBegin)
	wrong, keep := dsl.NewVar(k.U32(0), "wrong"), dsl.NewVar(k.F32(0), "keep")
	k.For(k.U32(0), b.phases, func(phase u32) {
		wait, read := dsl.NewVar(k.U32(0), "wait"), dsl.NewVar(k.U32(0), "read")
		k.If(b.syncWay.NeC(int(None)), func() {
			k.Region("exchange", func() {
				x := &exchange{b: b, bar: bar, phase: phase, wait: wait, read: read, wrong: wrong}
				k.IfElse(b.syncWay.LtC(int(Counted)), x.behindAll, x.inWords)
			})
		})
		k.If(b.ready.NeC(0), func() { c.Await(b.ready.SubC(1)) })
		e.Sync()
		begin := b.passed.read()
		k.IfElse(b.work.NeC(0), func() {
			b.gemv.Consume(e, c, b.ring, b.share(), product.Epilogue(func(row u32, y0, y1 dsl.Val[dsl.F32]) {
				dsl.Optional(row)
				keep.Set(keep.Get().Add(y0).Add(y1))
			}))
		}, func() { b.gemv.Drop(e, c, b.share()) })
		e.Sync()
		end := b.passed.read()
		k.If(first, func() {
			at := phase.MulC(b.SMs).Add(e.CTA).MulC(stampWords)
			b.stamps.StoreN(at, []u32{wait.Get(), read.Get(), end.Sub(begin), k.U32(0)})
		})
	}, dsl.Unroll(1))
	stamp(headEnd)
	b.sink.Store(e.CTA.MulC(e.Threads()).Add(e.Tid), keep.Get())
	k.If(wrong.Get().NeC(0),
		func() { dsl.ReduceAdd(b.heads, head.AddC(headWrong), wrong.Get(), dsl.Relaxed(dsl.GPUScope)) })
	k.If(b.syncWay.EqC(int(Count)).Or(b.syncWay.EqC(int(Counted))), bar.Sync) // counts order nothing
	// only then have all read the epoch
	met := b.syncWay.NeC(int(None)).And(b.syncWay.NeC(int(Words))).And(b.phases.NeC(0))
	k.If(met.And(e.CTA.EqC(0)).And(first), func() { b.epoch.Store(dsl.At(0), bar.Epoch()) })
}

// probe makes small requests one after another: where the next one goes depends on what
// the last one brought. One lane of each CTA does.
func (b *builder) probe() {
	k, e := b.k, b.e
	k.If(e.Lane.EqC(0).And(b.probes.NeC(0)), func() {
		at := dsl.NewVar(e.CTA.MulC(lineWords).AndC(linkWords-1), "at")
		last := dsl.NewVar(k.U32(0), "last")
		begin := b.clock()
		k.IfElse(b.atomic.NeC(0), func() {
			k.For(k.U32(0), b.probes, func(u32) {
				// The counter stays far below 2^31, so this is its first word always.
				last.Set(dsl.AtomicAdd(b.counter, last.Get().ShrC(31), k.U32(1), dsl.Relaxed(dsl.GPUScope)))
			}, dsl.Unroll(1))
		}, func() {
			k.For(k.U32(0), b.probes, func(u32) {
				v := b.links.Load(at.Get(), dsl.Relaxed(dsl.GPUScope))
				at.Set(at.Get().AddC(lineWords).Add(v).AndC(linkWords - 1))
				last.Set(v)
			}, dsl.Unroll(1))
		})
		// The clock is read when the last result is there: it decides on reading it.
		k.If(last.Get().NeC(0xffffffff), func() {
			end := b.clock()
			b.probed.StoreN(e.CTA.MulC(probeWords), []u32{end.Sub(begin), end})
		})
	})
}
