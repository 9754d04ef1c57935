package calibrate

import "github.com/mkgen/mkgen/dsl"

// barrierClock reads an SM's cycle counter when a barrier of the CTA has been passed. A warp
// that comes to a barrier may still issue what stands right behind it and needs no memory:
// a read of the counter, too, which then says when the warp came and not when it went on
// (compiled by ptxas 13.0 for sm_90a: CS2R right behind BAR.SYNC.DEFER_BLOCKING). So this
// one depends on a load from shared memory, which is not carried out before. It costs the
// load's latency.
type barrierClock struct {
	k    *dsl.Kernel
	word dsl.Buf[dsl.U32]
}

// newBarrierClock declares the word of shared memory.
func newBarrierClock(k *dsl.Kernel, name string) barrierClock {
	return barrierClock{k, dsl.Shared[dsl.U32](k, name, 1, dsl.Doc("0: what the clock waits for behind a barrier"))}
}

// init writes it, in one thread, which all that read must have met since.
func (b barrierClock) init() { b.word.Store(dsl.At(0), b.k.U32(0)) }

// read is the counter's low word, right behind a barrier.
func (b barrierClock) read() dsl.Val[dsl.U32] {
	clock := dsl.NewVar(b.k.U32(0), "passed")
	b.k.If(b.word.Load(dsl.At(0)).NeC(0xffffffff), func() { clock.Set(dsl.Cast[dsl.U32](b.k.Clock())) })
	return clock.Get()
}
