package megakernel

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/mkgen/mkgen/tasks/sample"
)

// builder assembles the kernel of one model.
type builder struct {
	mk   *Kernel
	k    *dsl.Kernel
	bufs *buffers
	ring *pipeline.Ring
	env  *grid.Env
	own  shares

	watch   *pipeline.Watch // of the waits for other SMs
	inner   *pipeline.Watch // of those within one
	trace   *pipeline.Trace
	leaving dsl.Buf[dsl.U32] // shared memory: whether the launch is given up

	indices dsl.Buf[dsl.U32] // shared memory, beside what a search for the largest compares

	stepReady dsl.MBars        // the producer may learn whether the step runs on
	stepAck   dsl.MBars        // it has
	running   dsl.Buf[dsl.U32] // shared memory: whether it does

	layer []phase // of one layer
	after []phase // after the last one

	flow flow

	held *product.RegisterPrefetch // chunks in registers; nil: none

	sample *sample.Sample // draws tokens; nil: every row takes its highest logit

	// In the consumer warps.
	cons *pipeline.Consumer
	bar  *grid.Barrier
	// In the producer warp.
	prod *pipeline.Producer
}

// phase is a Phase with the code of its two roles; either may be nil.
type phase struct {
	Phase
	produce, consume func(s attention.Step)

	// when, unless nil, is whether the phase and its sync run, the same in all
	// CTAs; such a phase has no produce.
	when func(s attention.Step) dsl.Pred

	// orders, unless nil, is whether the phase's count of arrivals is a grid barrier this time.
	orders func(s attention.Step) dsl.Pred

	// What is done before the phase's input is there, unless nil: early reads what no phase
	// writes, residual what it adds to, which an earlier sync than the last has brought (in
	// a graph of kernels it is read behind the wait), and hold holds the first chunks.
	early, residual, hold func(s attention.Step)
	// meanwhile, unless nil, is what its sync does while it waits: that of the next
	// phase; see workAhead.
	meanwhile func(s attention.Step)
}

// stages are the phases of a step: before the layers, of each, and after them.
type stages struct{ before, layer, after []phase }

// commentsEnd is the line of a kernel's head that says how its comments end.
const commentsEnd = "Comments in the code end with the template that they are from, its file and function."

func newBuilder(mk *Kernel) *builder {
	c, o, p := &mk.Config, &mk.Options, mk.Plan
	doc := []string{
		fmt.Sprintf("One decode step of %s: %d layers, hidden %d, %d query and %d KV heads of %d, intermediate %d, vocabulary %d.",
			c.Name, c.Layers, c.Hidden, c.Heads, c.KVHeads, c.HeadDim, c.Intermediate, c.Vocab),
		fmt.Sprintf("%d CTAs; ring of %d stages of %d bytes, %s; KV pages of %d tokens, %d KV splits.",
			o.SMs, p.Stages, p.StageBytes, p.Copies(), o.Page, o.Splits)}
	if mk.Ragged() {
		doc[1] = fmt.Sprintf("%d CTAs; ring of %d stages of %d bytes, %s; KV pages of %d tokens, up to %d query rows a step.",
			o.SMs, p.Stages, p.StageBytes, p.Copies(), o.Page, o.Tokens)
	}
	if o.Held > 0 {
		doc = append(doc, fmt.Sprintf("Consumers hold the first %s of a product in registers while they wait for its input.",
			firstChunks(o.Held)))
	}
	last := "the last one,"
	if o.movesRegisters() {
		last = "behind them, with three that are idle,"
	}
	doc = append(doc, "Warps: the consumers compute; the producer, "+last+
		" streams weights and KV through the ring for all phases, one after another, and waits for no phase:",
		"for a stage to be empty, for copies before to land, which bounds those in flight, and once a step for whether it runs.",
		"A stage's full barrier completes with the bytes of its copy; its empty barrier with an arrival of each consumer warp.")
	if o.statesInWords() || o.counts() || o.Queries == SyncWords {
		doc = append(doc, "Packets (LL, as in NCCL): 16 bytes, data and a flag in one access. A reader polls the packet until its last word is the flag of this use. Flags come from",
			"epoch_target, which every grid barrier and every count of CTAs advances by their number and which goes on from launch to launch, so that an older packet never has it.")
	}
	doc = append(doc, commentsEnd)
	if o.Attention != "" {
		doc = append(doc, "Attention, the layers in turn: "+o.Attention+".")
	}
	k := dsl.New("mkgen_step", dsl.Options{Warps: o.warps(), Grid: o.SMs, SharedLimit: o.SharedLimit, Doc: doc})
	bufs := mk.declare(k)
	mk.instantiate(bufs)
	b := &builder{mk: mk, k: k, bufs: bufs, ring: pipeline.NewRing(k, p, o.Consumers), held: mk.held()}
	at := func(name string) dsl.BufOpt { return dsl.PlaceAt(p.Region(name).Offset) }
	words := func(name string) int { return p.Region(name).Bytes / 4 }
	if mk.Ragged() {
		b.flow = newRagged(b)
	} else {
		b.flow = newSingle(b)
	}
	b.stepReady = dsl.NewMBars(k, regionStepReady, 1, at(regionStepReady), dsl.Doc("whether the step runs on is decided"))
	b.stepAck = dsl.NewMBars(k, regionStepAck, 1, at(regionStepAck),
		dsl.Doc("the producer knows whether the step runs on"))
	b.running = dsl.Shared[dsl.U32](k, regionRunning, 1, at(regionRunning), dsl.Doc("whether it does"))
	b.own.row = dsl.Shared[dsl.U32](k, regionOwn, words(regionOwn), at(regionOwn),
		dsl.Doc("this SM's row of the plan table"))
	scratch := dsl.Shared[dsl.F32](k, regionScratch, words(regionScratch), at(regionScratch),
		dsl.Doc("one a consumer warp"))
	b.indices = dsl.Shared[dsl.U32](k, regionIndex, words(regionIndex), at(regionIndex), dsl.Doc("one a consumer warp"))
	b.env = grid.NewEnv(k, o.SMs, o.Consumers, scratch)
	b.env.Scarce = b.mk.beyondLlama() && !b.mk.Ragged()
	if o.Watchdog != WatchNone {
		b.leaving = dsl.Shared[dsl.U32](k, regionLeaving, 1, at(regionLeaving), dsl.Doc("whether the launch is given up"))
		notes := dsl.Shared[dsl.U32](k, regionNotes, words(regionNotes), at(regionNotes), dsl.Align(16),
			dsl.Doc("what each warp waited for when it gave up"))
		b.watch = pipeline.NewWatch(k, b.bufs.abort, b.bufs.records, notes)
		if b.sample != nil {
			b.sample.Watch = b.watch
		}
	}
	if o.Watchdog == WatchAll {
		b.inner = b.watch
		b.ring.Watched(b.watch)
	}
	if o.Trace > 0 {
		b.trace = pipeline.NewTrace(k, o.SMs, o.Trace)
		b.ring.Traced(b.trace)
	}
	return b
}

// assemble builds the whole body: prologue, then the two roles side by side.
func (b *builder) assemble() {
	k, e := b.k, b.env
	all := b.flow.phases()
	b.layer, b.after = all.layer, all.after
	b.workAhead()
	for _, p := range slices.Concat(all.before, all.layer, all.after) {
		b.mk.Phases = append(b.mk.Phases, p.Phase)
	}
	k.Assert(b.bufs.steps.GeC(1), "a launch runs at least one step")
	b.flow.check()
	k.Region("prologue", func() {
		k.If(e.Tid.EqC(0), func() {
			b.stepReady.Init(dsl.At(0), k.U32(1))
			b.stepAck.Init(dsl.At(0), k.U32(1))
			b.flow.init()
			b.ring.Init()
		})
		b.watch.Init(k)
		b.own.fetch(e, b.bufs.plan)
		b.flow.prologue()
		k.Barrier()
	})
	k.Roles(
		dsl.Role{Name: "consumers", First: 0, End: e.Consumers, Body: b.consumers},
		dsl.Role{Name: "producer", First: e.Consumers, End: k.Warps(), Body: b.producers})
	if b.watch != nil {
		b.mk.Sites = b.watch.Sites
	}
	if b.trace != nil {
		b.mk.Traced = b.trace.Sites
	}
}

// inLayer is a step in layer l.
func inLayer(s attention.Step, l dsl.Val[dsl.U32]) attention.Step {
	s.Layer = l.Named("layer")
	return s
}

// flow is what differs between kernels of one query row a step and of several.
type flow interface {
	phases() stages
	// check asserts what a launch must be given.
	check()
	// init initialises mbarriers, in one thread, before the ring's.
	init()
	// prologue copies what stays for the launch; a CTA barrier follows.
	prologue()
	// start declares what a role keeps from step to step; it runs at the role's top.
	start()
	// step is what both roles know of launch step s, but for the layer.
	step(s dsl.Val[dsl.U32]) attention.Step
	// begin takes the step's tokens, in the consumers.
	begin(s dsl.Val[dsl.U32], at attention.Step)
	// finish runs the final phase where it is wanted, chooses tokens and clears
	// running when they end the launch, in the consumers.
	finish(s dsl.Val[dsl.U32], at attention.Step, running *dsl.Var[dsl.U32])
	// wanted is whether the final phase runs.
	wanted(at attention.Step) dsl.Pred
	// drop drains what the producer fetched ahead for a step that does not run.
	drop()
	// done is what the host hears of a finished step.
	done(s dsl.Val[dsl.U32], at attention.Step) dsl.Val[dsl.U32]
}

// consumers is the arithmetic of every step. A step that may not run tells the
// producer so and drains what that has fetched ahead.
func (b *builder) consumers() {
	k, e, bufs := b.k, b.env, b.bufs
	if b.mk.Options.movesRegisters() {
		k.MoreRegisters(consumerRegisters)
	}
	b.cons = b.ring.Consumer()
	b.bar = grid.NewGridBarrier(e, bufs.barrier, dsl.Uniform(bufs.epoch.Load(dsl.At(0)), dsl.GPUScope))
	b.bar.Watch = b.watch
	e.Trace = b.trace
	b.trace.Start(0, e.Consumers-1)
	b.flow.start()
	b.held.Start(e)
	running := dsl.NewVar(k.U32(1), "running")
	k.For(k.U32(0), bufs.steps, func(s dsl.Val[dsl.U32]) {
		k.If(running.Get().NeC(0), func() {
			step := b.flow.step(s)
			b.watch.Layer(k.U32(0))
			b.trace.Before(s)
			b.flow.begin(s, step)
			b.firstAhead(step)
			k.For(k.U32(0), k.U32(b.mk.Config.Layers), func(l dsl.Val[dsl.U32]) {
				b.at(s, l)
				e.Anew(func() { b.consume(inLayer(step, l), b.layer...) })
			}, dsl.Unroll(1))
			b.at(s, k.U32(b.mk.Config.Layers))
			stopped := dsl.Uniform(bufs.stopRequested.Load(s.AndC(1)), dsl.GPUScope).NeC(0)
			running.Set(dsl.Select(stopped, k.U32(0), k.U32(1)))
			e.Anew(func() { b.flow.finish(s, step, running) })
			k.If(e.CTA.EqC(0).And(e.Tid.EqC(0)), func() {
				bufs.progress.Store(dsl.At(0), b.flow.done(s, step), dsl.Relaxed(dsl.SysScope))
			})
			b.leave(running)
			k.If(running.Get().EqC(0).And(s.AddC(1).Lt(bufs.steps)), func() {
				b.tell(s.AddC(1), 0)
				b.flow.drop()
			})
		})
	}, dsl.Unroll(1))
	k.If(e.CTA.EqC(0).And(e.Tid.EqC(0)), func() { bufs.epoch.Store(dsl.At(0), b.bar.Epoch()) })
	b.trace.Finish()
	b.watch.Publish(k)
}

// packets are LL packets with the flag of ago changes of it before, which is when
// they were written.
func (b *builder) packets(ago int) *grid.LL {
	return &grid.LL{Flag: func() dsl.Val[dsl.U32] { return b.bar.FlagBefore(ago) }, Watch: b.watch}
}

// at says where in the launch what follows lies.
func (b *builder) at(step, layer dsl.Val[dsl.U32]) {
	b.watch.Layer(layer)
	b.trace.At(step, layer)
}

// leave ends a launch that the host has given up, at the end of a step: all
// consumers of a CTA see the same, and the next step of a CTA that sees it later
// ends here, too, since none of its waits holds. The producer learns of it as of
// every end, and if it does not wait for that any more, then a step later.
func (b *builder) leave(running *dsl.Var[dsl.U32]) {
	if b.watch == nil {
		return
	}
	k, e := b.k, b.env
	k.If(e.Tid.EqC(0), func() {
		b.leaving.Store(dsl.At(0), b.bufs.abort.Load(dsl.At(0), dsl.Relaxed(dsl.SysScope)))
	})
	e.Sync()
	given := dsl.Uniform(b.leaving.Load(dsl.At(0)), dsl.CTAScope).NeC(0)
	k.If(given, func() { running.Set(k.U32(0)) })
}

// open lets the producer know that step s runs and passes the host's wish to stop
// on: CTA 0 reads it, so that all CTAs see the same at the end of the step.
func (b *builder) open(s dsl.Val[dsl.U32]) {
	k, e, bufs := b.k, b.env, b.bufs
	b.tell(s, 1)
	k.If(e.CTA.EqC(0).And(e.Tid.EqC(0)), func() {
		bufs.stopRequested.Store(s.AndC(1), bufs.stop.Load(dsl.At(0), dsl.Relaxed(dsl.SysScope)))
	})
}

// tell lets the producer know whether step s, which it has begun to fetch, runs,
// once it has heard of the step before: an SM without chunks to drain would
// otherwise be free to run ahead of its producer.
func (b *builder) tell(s dsl.Val[dsl.U32], running int) {
	k := b.k
	k.If(b.env.Tid.EqC(0), func() {
		b.inner.MBar(k, b.stepAck, dsl.At(0), s.AddC(1).AndC(1), s, "waits for the producer to hear of launch step %d")
		b.running.Store(dsl.At(0), k.U32(running))
		b.stepReady.Arrive(dsl.At(0))
	})
}

// weightsOf is where matrix i of the plan table begins in the packed weights, in a step's layer
// where it is not the LM head, in 16-byte elements.
func (b *builder) weightsOf(s attention.Step, i int) dsl.Val[dsl.U64] {
	p, m := b.mk.Plan, b.mk.matrix(i)
	if i == layerMatrices {
		return b.k.U64(uint64(p.Image(pipeline.FinalLayer)+m.Start) / 16)
	}
	return dsl.Cast[dsl.U64](s.Layer).MulC(int(p.LayerBytes / 16)).AddC(int(m.Start / 16))
}

// scalesOf are the scales of the rows of matrix i in a step's layer, nil where it has none.
func (b *builder) scalesOf(s attention.Step, i int) func(row dsl.Val[dsl.U32]) []dsl.Val[dsl.F32] {
	m := b.mk.matrix(i)
	var from dsl.Val[dsl.U64]
	if m.Format.ScaleBytes() > 0 {
		from = b.weightsOf(s, i)
	}
	return product.RowScales(b.k, m, b.bufs.weights, from)
}

func (b *builder) consume(s attention.Step, phases ...phase) {
	for _, p := range phases {
		run := func() {
			b.cons.Lost = b.lost(FaultLostRelease, p.Name)
			b.trace.Later()
			b.k.Region(p.Name, func() {
				b.trace.Span(b.k, pipeline.TracePhase, p.Name, func() { p.consume(s) })
			})
			var meanwhile func()
			if p.meanwhile != nil {
				meanwhile = func() { p.meanwhile(s) }
			}
			switch p.Sync {
			case gridBarrier:
				b.bar.Lost = b.lost(FaultLostArrival, p.Name)
				b.k.Region("sync after "+p.Name, func() { b.bar.SyncWhile(meanwhile) })
			case string(SyncCounted):
				var orders *dsl.Pred
				if p.orders != nil {
					last := p.orders(s)
					orders = &last
				}
				b.bar.Lost = b.lost(FaultLostArrival, p.Name)
				b.k.Region("sync after "+p.Name, func() { b.bar.Count(orders, meanwhile) })
			case string(SyncWords):
				b.env.Sync() // who needs them waits; but the next phase uses this one's shared memory
				b.trace.Arrived()
				if meanwhile != nil {
					meanwhile()
				}
			default:
				if meanwhile != nil {
					panic("BUG: " + p.Name + " has no sync to do something in")
				}
			}
			b.trace.NoteLate()
		}
		if p.when == nil {
			run()
			continue
		}
		b.k.If(p.when(s), run)
	}
}
