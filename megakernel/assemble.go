package megakernel

import (
	"fmt"

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

	x       dsl.Buf[dsl.BF16] // shared memory: the input vector of the GEMV at work
	shared  dsl.Buf[dsl.F32]  // the same bytes as f32: attention's scratch
	part    tasks.Partials
	tail    dsl.Buf[dsl.B128]
	indices dsl.Buf[dsl.U32]

	cached dsl.Val[dsl.U32] // cached tokens the query attends to

	// In the consumer warps.
	cons *pipeline.Consumer
	bar  *tasks.GridBarrier
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
	b.own.row = dsl.Shared[dsl.U32](k, regionOwn, words(regionOwn), at(regionOwn), dsl.Doc("this SM's row of the plan table"))
	scratch := dsl.Shared[dsl.F32](k, regionScratch, words(regionScratch), at(regionScratch), dsl.Doc("one a consumer warp"))
	b.indices = dsl.Shared[dsl.U32](k, regionIndex, words(regionIndex), at(regionIndex), dsl.Doc("one a consumer warp"))
	b.env = tasks.NewEnv(k, o.SMs, o.Consumers, scratch)
	return b
}

// assemble builds the whole body: prologue, then the two roles side by side.
func (b *builder) assemble() {
	k, e, c := b.k, b.env, &b.mk.Config
	b.cached = b.cachedTokens()
	before, layer, after := b.embeddingPhase(), b.layerPhases(), b.finalPhases()
	for _, p := range append(append([]phase{before}, layer...), after...) {
		b.mk.Phases = append(b.mk.Phases, p.Phase)
	}
	k.Region("prologue", func() {
		k.If(e.Tid.EqC(0), b.ring.Init)
		b.own.fetch(e, b.bufs.plan)
		k.Barrier()
	})
	step := func(layer dsl.Val[dsl.U32]) tasks.Step {
		return tasks.Step{Pos: b.bufs.pos, Cached: b.cached, Pages: b.bufs.pages, Layer: layer, Table: b.bufs.table, Cache: b.bufs.kv}
	}
	layers, none := k.U32(c.Layers), k.U32(0)
	k.Roles(
		dsl.Role{Name: "consumers", First: 0, End: e.Consumers, Body: func() {
			b.cons, b.bar = b.ring.Consumer(), tasks.NewGridBarrier(e, b.bufs.barrier, b.bufs.epoch)
			b.consume(step(none), before)
			k.For(none, layers, func(l dsl.Val[dsl.U32]) { b.consume(step(l.Named("layer")), layer...) }, dsl.Unroll(1))
			b.consume(step(none), after...)
		}},
		dsl.Role{Name: "producer", First: e.Consumers, End: e.Consumers + 1, Body: func() {
			first := b.own.offset(planLayerOffset).Named("layer_offset")
			b.prod, b.offset = b.ring.Producer(), dsl.NewVar(first, "offset")
			k.For(none, layers, func(l dsl.Val[dsl.U32]) {
				b.offset.Set(dsl.Cast[dsl.U64](l.Named("layer")).MulC(int(b.mk.Plan.LayerBytes / 16)).Add(first))
				b.produce(step(l), layer...)
			}, dsl.Unroll(1))
			b.offset.Set(b.own.offset(planFinalOffset))
			b.produce(step(none), after...)
		}})
}

func (b *builder) consume(s tasks.Step, phases ...phase) {
	for _, p := range phases {
		b.k.Region(p.Name, func() { p.consume(s) })
		if p.Handoff != "" {
			b.k.Region("hand-off after "+p.Name, b.bar.Sync)
		}
	}
}

func (b *builder) produce(s tasks.Step, phases ...phase) {
	for _, p := range phases {
		if p.produce != nil {
			b.k.Region(p.Name, func() { p.produce(s) })
		}
	}
}
