package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/prefill"
)

// producer streams tiles. Weights run ahead as far as the ring goes; inputs wait for the barrier in front of their
// product.
func (f *prefillFlow) producer() {
	k, e := f.k, f.env
	if f.p.Options.Groups == 2 {
		k.FewerRegisters(prefillProducerRegisters)
	}
	e.Producing(f.att.Producers, func() {
		f.prod = f.ring.Producer()
		first := f.epochNow().AddC(e.Grid).Named("first_barrier") // behind the embedding
		// All of them have read the epoch before the first one helps the launch to its end.
		f.prod.Meet()
		input := func(layer dsl.Val[dsl.U32], barrier int) {
			// A layer has a barrier more, behind attention, where keys and values are split. The products of it are computed
			// for each wait: a producer's thread has few registers to keep them in.
			merges := dsl.Select(dsl.Opaque(f.partBlocks).LtC(OnePart), k.U32(1), k.U32(0)).Named("merges")
			before := layer.Mul(merges.AddC(f.syncs.all)).AddC(barrier)
			if barrier > f.syncs.keys {
				before = before.Add(merges)
			}
			want := first.Add(before.MulC(e.Grid))
			f.watch.Until(k, f.bufs.barrier, dsl.At(0), dsl.GE, want, "waits for the grid barrier to count %d arrivals",
				dsl.Acquire(dsl.GPUScope))
			k.FenceProxyAsyncGlobal()
		}
		produce := func(i int, layer dsl.Val[dsl.U32], weights dsl.Val[dsl.U32], span prefill.Span) {
			if f.gemms[i].Late {
				weights = k.U32(0)
			}
			k.Region(f.gemms[i].Name, func() {
				f.gemms[i].Produce(e, f.prod, weights, span, f.p.Stages, func() { input(layer, f.syncs.inputs[i]) })
			})
		}
		layers := f.p.Of.Config.Layers
		k.For(k.U32(0), k.U32(layers), func(l dsl.Val[dsl.U32]) {
			f.watch.Layer(l)
			produce(MatrixQKV, l, l, prefill.Span{N: f.count})
			k.If(f.goesOn(l), func() {
				k.Region("attention", func() {
					ready := func() { input(l, f.syncs.keys) }
					if f.p.Options.several() {
						ready()
						ready = func() {}
					}
					f.each(f.reads(f.step(l)), f.span(l), func(e *grid.Env, s attention.Step, span prefill.Span) {
						f.att.Produce(e, f.prod, s, span, f.p.Options.Padded(), ready)
					})
				})
				for _, i := range []int{MatrixO, MatrixGateUp, MatrixDown} {
					produce(i, l, l, f.span(l))
				}
			})
		}, dsl.Unroll(1))
		f.watch.Layer(k.U32(layers))
		if f.gemms[prefillHead] != nil {
			k.If(f.chooses.NeC(0), func() { produce(prefillHead, k.U32(layers), k.U32(0), f.only()) })
		}
		f.watch.Publish(k)
	})
}
