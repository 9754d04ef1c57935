package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
)

// producer streams every step's weights and KV. It fetches the first matrix of
// a step before it is known whether the step runs; everything behind waits for
// the consumers' word, which also orders the KV written in earlier steps, by
// other SMs and through the generic proxy, before the copies of it.
func (b *builder) producer() {
	k, bufs := b.k, b.bufs
	b.prod = b.ring.Producer()
	b.trace.Start(1, b.env.Consumers)
	running := dsl.NewVar(k.U32(1), "running")
	k.For(k.U32(0), bufs.steps, func(s dsl.Val[dsl.U32]) {
		step := b.flow.step(s)
		k.For(k.U32(0), k.U32(b.mk.Config.Layers), func(l dsl.Val[dsl.U32]) {
			b.at(s, l)
			at := inLayer(step, l)
			k.If(running.Get().NeC(0), func() {
				b.produce(at, b.layer[0])
				k.If(l.EqC(0), func() {
					b.doing("waits for the consumers to decide on the step")
					b.inner.MBar(k, b.stepReady, dsl.At(0), s.AndC(1), s, "waits for the consumers to decide on launch step %d")
					running.Set(dsl.Uniform(b.running.Load(dsl.At(0)), dsl.CTAScope))
					k.SyncWarp()
					k.If(b.env.Lane.EqC(0), func() { b.stepAck.Arrive(dsl.At(0)) })
					k.FenceProxyAsyncGlobal()
				})
			})
			k.If(running.Get().NeC(0), func() { b.produce(at, b.layer[1:]...) })
		}, dsl.Unroll(1))
		b.at(s, k.U32(b.mk.Config.Layers))
		k.If(running.Get().NeC(0).And(b.flow.wanted(step)), func() {
			b.produce(inLayer(step, k.U32(0)), b.after...)
		})
	}, dsl.Unroll(1))
	b.prod.Finish()
	b.trace.Finish()
	b.watch.Publish(k)
}

func (b *builder) produce(s attention.Step, phases ...phase) {
	for _, p := range phases {
		if p.produce != nil {
			b.k.Region(p.Name, func() {
				b.doing("fills the ring: waits for a stage to be drained, or copies")
				b.trace.Span(b.k, pipeline.TracePhase, p.Name, func() { p.produce(s) })
			})
		}
	}
}

// fenceKV makes the keys and values that this thread has appended visible to other SMs' bulk
// copies. The copying SM fences, too: PTX leaves open which of the two must.
func (b *builder) fenceKV() { b.k.FenceProxyAsyncGlobal() }

// doing notes what the producer does, where its waits do not note it themselves.
func (b *builder) doing(what string) {
	b.k.Helper()
	if b.inner == nil {
		b.watch.Doing(b.k, what)
	}
}
