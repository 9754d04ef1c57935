package megakernel

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
)

// builder assembles the kernel of one model.
type builder struct {
	mk   *Kernel
	k    *dsl.Kernel
	bufs *buffers
	ring *pipeline.Ring
	env  *tasks.Env
	own  shares

	watch   *pipeline.Watch  // of the waits for other SMs
	inner   *pipeline.Watch  // of those within one
	leaving dsl.Buf[dsl.U32] // shared memory: whether the launch is given up

	x       dsl.Buf[dsl.BF16] // shared memory: the input vector of the GEMV at work
	shared  dsl.Buf[dsl.F32]  // the same bytes as f32: attention's scratch
	part    tasks.Partials
	tail    dsl.Buf[dsl.B128]
	indices dsl.Buf[dsl.U32]

	decided dsl.MBars        // the producer may learn whether the step runs on
	heard   dsl.MBars        // it has
	running dsl.Buf[dsl.U32] // shared memory: whether it does

	layer  []phase // of one layer
	final  phase   // after the last one
	argmax *tasks.Argmax

	// In the consumer warps.
	token *dsl.Var[dsl.U32] // the step's token
	cons  *pipeline.Consumer
	bar   *tasks.GridBarrier
	// In the producer warp.
	prod   *pipeline.Producer
	offset *dsl.Var[dsl.U64]
}

// phase is a Phase with the code of its two roles; either may be nil.
type phase struct {
	Phase
	produce, consume func(s tasks.Step)
}

func newBuilder(mk *Kernel) *builder {
	c, o, p := &mk.Config, &mk.Options, mk.Plan
	k := dsl.New("mkgen_step", dsl.Options{Warps: o.Consumers + 1, Grid: o.SMs, SharedLimit: o.SharedLimit, Doc: []string{
		fmt.Sprintf("One decode step of %s: %d layers, hidden %d, %d query and %d KV heads of %d, intermediate %d, vocabulary %d.",
			c.Name, c.Layers, c.Hidden, c.Heads, c.KVHeads, c.HeadDim, c.Intermediate, c.Vocab),
		fmt.Sprintf("%d CTAs; ring of %d stages of %d bytes, %d copies in flight; KV pages of %d tokens, %d KV splits.",
			o.SMs, p.Stages, p.StageBytes, p.InFlight, o.Page, o.Splits)}})
	b := &builder{mk: mk, k: k, bufs: mk.declare(k), ring: pipeline.NewRing(k, p, o.Consumers)}
	at := func(name string) dsl.BufOpt { return dsl.PlaceAt(p.Region(name).Offset) }
	words := func(name string) int { return p.Region(name).Bytes / 4 }
	b.shared = dsl.Shared[dsl.F32](k, regionInput, words(regionInput), at(regionInput), dsl.Align(16), dsl.Doc("input vector (bf16) or attention scratch (f32)"))
	b.x = dsl.View[dsl.BF16](b.shared)
	b.part = tasks.Partials{Buf: dsl.Shared[dsl.F32](k, regionPartials, words(regionPartials), at(regionPartials), dsl.Align(16), dsl.Doc("the consumer warps' partial dot products"))}
	b.tail = dsl.Shared[dsl.B128](k, regionTail, words(regionTail)/4, at(regionTail), dsl.Doc("the query token's own K and V"))
	b.decided = dsl.NewMBars(k, regionDecided, 1, at(regionDecided), dsl.Doc("whether the step runs on is decided"))
	b.heard = dsl.NewMBars(k, regionHeard, 1, at(regionHeard), dsl.Doc("the producer knows whether the step runs on"))
	b.running = dsl.Shared[dsl.U32](k, regionRunning, 1, at(regionRunning), dsl.Doc("whether it does"))
	b.own.row = dsl.Shared[dsl.U32](k, regionOwn, words(regionOwn), at(regionOwn), dsl.Doc("this SM's row of the plan table"))
	scratch := dsl.Shared[dsl.F32](k, regionScratch, words(regionScratch), at(regionScratch), dsl.Doc("one a consumer warp"))
	b.indices = dsl.Shared[dsl.U32](k, regionIndex, words(regionIndex), at(regionIndex), dsl.Doc("one a consumer warp"))
	b.env = tasks.NewEnv(k, o.SMs, o.Consumers, scratch)
	if o.Watchdog != WatchNone {
		b.leaving = dsl.Shared[dsl.U32](k, regionLeaving, 1, at(regionLeaving), dsl.Doc("whether the launch is given up"))
		notes := dsl.Shared[dsl.U32](k, regionNotes, words(regionNotes), at(regionNotes), dsl.Align(16), dsl.Doc("what each warp waited for when it gave up"))
		b.watch = pipeline.NewWatch(k, b.bufs.abort, b.bufs.records, notes)
	}
	if o.Watchdog == WatchAll {
		b.inner = b.watch
		b.ring.Watched(b.watch)
	}
	return b
}

// assemble builds the whole body: prologue, then the two roles side by side.
func (b *builder) assemble() {
	k, e := b.k, b.env
	b.layer, b.final = b.layerPhases(), b.finalPhase()
	for _, p := range append(slices.Clone(b.layer), b.final) {
		b.mk.Phases = append(b.mk.Phases, p.Phase)
	}
	k.Assert(b.bufs.steps.GeC(1), "a launch runs at least one step")
	k.Assert(b.bufs.known.Gt(b.bufs.pos), "the token at the first position must be known")
	k.Region("prologue", func() {
		k.If(e.Tid.EqC(0), func() {
			b.decided.Init(dsl.At(0), k.U32(1))
			b.heard.Init(dsl.At(0), k.U32(1))
			b.ring.Init()
		})
		b.watch.Init(k)
		b.own.fetch(e, b.bufs.plan)
		k.Barrier()
	})
	k.Roles(
		dsl.Role{Name: "consumers", First: 0, End: e.Consumers, Body: b.consumers},
		dsl.Role{Name: "producer", First: e.Consumers, End: e.Consumers + 1, Body: b.producer})
	if b.watch != nil {
		b.mk.Sites = b.watch.Sites
	}
}

func (b *builder) step(pos, cached, layer dsl.Val[dsl.U32]) tasks.Step {
	return tasks.Step{Pos: pos, Cached: cached, Pages: b.bufs.pages, Layer: layer, Table: b.bufs.table, Cache: b.bufs.kv, Scales: b.bufs.scales}
}

// consumers is the arithmetic of every step. A step that may not run tells the
// producer so and drains what that has fetched ahead.
func (b *builder) consumers() {
	k, e, bufs := b.k, b.env, b.bufs
	b.cons = b.ring.Consumer()
	b.bar = tasks.NewGridBarrier(e, bufs.barrier, dsl.Uniform(bufs.epoch.Load(dsl.At(0)), dsl.GPUScope))
	b.bar.Watch = b.watch
	b.token = dsl.NewVar(k.U32(0), "token")
	running := dsl.NewVar(k.U32(1), "running")
	k.For(k.U32(0), bufs.steps, func(s dsl.Val[dsl.U32]) {
		k.If(running.Get().NeC(0), func() {
			pos := bufs.pos.Add(s).Named("pos_now")
			cached := b.cached(pos)
			b.begin(s, pos)
			k.For(k.U32(0), k.U32(b.mk.Config.Layers), func(l dsl.Val[dsl.U32]) {
				b.watch.Layer(l)
				b.consume(b.step(pos, cached, l.Named("layer")), b.layer...)
			}, dsl.Unroll(1))
			b.watch.Layer(k.U32(b.mk.Config.Layers))
			stopped := dsl.Uniform(bufs.verdict.Load(s.AndC(1)), dsl.GPUScope).NeC(0)
			running.Set(dsl.Select(stopped, k.U32(0), k.U32(1)))
			k.If(pos.AddC(1).Ge(bufs.known), func() {
				b.consume(b.step(pos, cached, k.U32(0)), b.final)
				b.choose(pos, running)
			})
			k.If(e.CTA.EqC(0).And(e.Tid.EqC(0)), func() {
				bufs.progress.Store(dsl.At(0), pos.AddC(1), dsl.Relaxed(dsl.SysScope))
			})
			b.leave(running)
			k.If(running.Get().EqC(0).And(s.AddC(1).Lt(bufs.steps)), func() {
				b.tell(s.AddC(1), 0)
				b.gemv(MatrixQKV).Drop(e, b.cons, b.own.matrix(MatrixQKV))
			})
		})
	}, dsl.Unroll(1))
	k.If(e.CTA.EqC(0).And(e.Tid.EqC(0)), func() { bufs.epoch.Store(dsl.At(0), b.bar.Epoch()) })
	b.watch.Publish(k)
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

// begin takes the step's token and passes the host's wish to stop on: CTA 0
// reads it, so that all CTAs see the same at the end of the step.
func (b *builder) begin(s, pos dsl.Val[dsl.U32]) {
	k, e, bufs := b.k, b.env, b.bufs
	b.watch.Layer(k.U32(0))
	k.If(pos.Lt(bufs.known), func() { b.token.Set(dsl.Uniform(bufs.tokens.Load(pos), dsl.GPUScope)) })
	b.tell(s, 1)
	k.If(e.CTA.EqC(0).And(e.Tid.EqC(0)), func() {
		bufs.verdict.Store(s.AndC(1), bufs.stop.Load(dsl.At(0), dsl.Relaxed(dsl.SysScope)))
	})
}

// tell lets the producer know whether step s, which it has begun to fetch, runs,
// once it has heard of the step before: an SM without chunks to drain would
// otherwise be free to run ahead of its producer.
func (b *builder) tell(s dsl.Val[dsl.U32], running int) {
	k := b.k
	k.If(b.env.Tid.EqC(0), func() {
		b.inner.MBar(k, b.heard, dsl.At(0), s.AddC(1).AndC(1), s, "waits for the producer to hear of launch step %d")
		b.running.Store(dsl.At(0), k.U32(running))
		b.decided.Arrive(dsl.At(0))
	})
}

// choose takes the token the step chose and ends the launch if it ends the text.
func (b *builder) choose(pos dsl.Val[dsl.U32], running *dsl.Var[dsl.U32]) {
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

// producer streams every step's weights and KV. It fetches the first matrix of
// a step before it is known whether the step runs; everything behind waits for
// the consumers' word, which also orders the KV written in earlier steps, by
// other SMs and through the generic proxy, before the copies of it.
func (b *builder) producer() {
	k, bufs := b.k, b.bufs
	first := b.own.offset(planLayerOffset).Named("layer_offset")
	b.prod, b.offset = b.ring.Producer(), dsl.NewVar(first, "offset")
	running := dsl.NewVar(k.U32(1), "running")
	k.For(k.U32(0), bufs.steps, func(s dsl.Val[dsl.U32]) {
		pos := bufs.pos.Add(s).Named("pos_now")
		cached := b.cached(pos)
		k.For(k.U32(0), k.U32(b.mk.Config.Layers), func(l dsl.Val[dsl.U32]) {
			b.watch.Layer(l)
			step := b.step(pos, cached, l.Named("layer"))
			k.If(running.Get().NeC(0), func() {
				b.offset.Set(dsl.Cast[dsl.U64](l).MulC(int(b.mk.Plan.LayerBytes / 16)).Add(first))
				b.produce(step, b.layer[0])
				k.If(l.EqC(0), func() {
					b.doing("waits for the consumers to decide on the step")
					b.inner.MBar(k, b.decided, dsl.At(0), s.AndC(1), s, "waits for the consumers to decide on launch step %d")
					running.Set(dsl.Uniform(b.running.Load(dsl.At(0)), dsl.CTAScope))
					k.SyncWarp()
					k.If(b.env.Lane.EqC(0), func() { b.heard.Arrive(dsl.At(0)) })
					k.FenceProxyAsyncGlobal()
				})
			})
			k.If(running.Get().NeC(0), func() { b.produce(step, b.layer[1:]...) })
		}, dsl.Unroll(1))
		b.watch.Layer(k.U32(b.mk.Config.Layers))
		k.If(running.Get().NeC(0).And(pos.AddC(1).Ge(bufs.known)), func() {
			b.offset.Set(b.own.offset(planFinalOffset))
			b.produce(b.step(pos, cached, k.U32(0)), b.final)
		})
	}, dsl.Unroll(1))
	b.prod.Finish()
	b.watch.Publish(k)
}

func (b *builder) consume(s tasks.Step, phases ...phase) {
	for _, p := range phases {
		b.cons.Lost = b.lost(FaultLostRelease, p.Name)
		b.k.Region(p.Name, func() { p.consume(s) })
		if p.Handoff != "" {
			b.bar.Lost = b.lost(FaultLostArrival, p.Name)
			b.k.Region("hand-off after "+p.Name, b.bar.Sync)
		}
	}
}

func (b *builder) produce(s tasks.Step, phases ...phase) {
	for _, p := range phases {
		if p.produce != nil {
			b.k.Region(p.Name, func() {
				b.doing("fills the ring: waits for a stage to be drained, or copies")
				p.produce(s)
			})
		}
	}
}

// doing notes what the producer does, where its waits do not note it themselves.
func (b *builder) doing(what string) {
	b.k.Helper()
	if b.inner == nil {
		b.watch.Doing(b.k, what)
	}
}
