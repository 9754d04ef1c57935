package grid

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// Barrier makes all CTAs wait for each other and what each wrote before
// visible to all after. Every CTA adds 1 to one counter that is never reset;
// the wait compares by wrap-safe difference, so the counter may pass 2³².
// All CTAs must be resident at once (cooperative launch).
type Barrier struct {
	e       *Env
	counter dsl.Buf[dsl.U32]
	target  *dsl.Var[dsl.U32]

	// Lost plants a fault: this CTA, if not 0 its number plus 1, does not arrive.
	Lost int
	// Watch, unless nil, makes the barrier's waits end when the launch is given up.
	Watch *pipeline.Watch
}

// NewGridBarrier starts at epoch, the counter's value when the launch begins:
// the number of arrivals of all earlier launches modulo 2³².
func NewGridBarrier(e *Env, counter dsl.Buf[dsl.U32], epoch u32) *Barrier {
	return &Barrier{e: e, counter: counter, target: dsl.NewVar(epoch, "epoch_target")}
}

// Epoch is the counter's value once every CTA has passed the last barrier.
func (g *Barrier) Epoch() u32 { return g.target.Get() }

// Flag returns the flag of LL packets: odd, and another one behind every SyncWhile and Count, for the next
// 2³¹ arrivals.
func (g *Barrier) Flag() u32 { return g.FlagBefore(0) }

// FlagBefore is what Flag was before the last n of them.
func (g *Barrier) FlagBefore(n int) u32 {
	return g.target.Get().SubC(n * g.e.Grid).MulC(2).AddC(1)
}

// Sync is the barrier, run by all consumer threads. Thread 0 arrives for its
// CTA with one release add, which is cumulative over the CTA barrier before it,
// and polls with acquire loads.
func (g *Barrier) Sync() { g.SyncWhile(nil) }

// SyncWhile is Sync, between whose arrival and wait the consumer threads run meanwhile, which
// may be nil: something that needs nothing of what other CTAs write behind the barrier before
// this one; it may look at words that have come by then. It holds back this
// CTA alone, and only if it takes longer than the others' arrival.
func (g *Barrier) SyncWhile(meanwhile func()) {
	g.target.Set(g.target.Get().AddC(g.e.Grid))
	g.e.Sync()
	g.e.K.Note("grid barrier: thread 0 arrives and polls the counter until all CTAs have; " +
		"the CTA's threads meet behind it")
	g.meet(func() { g.arrive(dsl.Release(dsl.GPUScope)) }, func() { g.wait(dsl.Acquire(dsl.GPUScope)) }, meanwhile)
}

// Count is SyncWhile that orders no memory, but that the CTA's consumer threads have
// met behind it: who has come through it knows that thread 0 of every CTA has come to it,
// and must look for itself whether what they all wrote is there. Behind a product the arrival says, too, that the CTA's
// warps have read its input, since they have met at the barrier in front of the epilogue, or of CTAs without a tile
// behind the staging.
//
// Where orders holds, which is the same in the whole grid, it does order memory: an arrival releases what the CTA's
// threads wrote before their last barrier, and the wait acquires. nil: nowhere.
func (g *Barrier) Count(orders *dsl.Pred, meanwhile func()) {
	g.target.Set(g.target.Get().AddC(g.e.Grid))
	note := "it orders no memory, packets say whether data are there"
	if orders != nil {
		note = "it releases and acquires where it has to order memory; elsewhere packets say whether data are there"
	}
	g.e.K.Note("a count of CTAs: thread 0 arrives and polls it until all have; %s", note)
	counted := func(run func(dsl.MemOpt), ordering dsl.MemOpt) func() {
		relaxed := func() { run(dsl.Relaxed(dsl.GPUScope)) }
		if orders == nil {
			return relaxed
		}
		return func() { g.e.K.IfElse(*orders, func() { run(ordering) }, relaxed) }
	}
	g.meet(counted(g.arrive, dsl.Release(dsl.GPUScope)), counted(g.wait, dsl.Acquire(dsl.GPUScope)), meanwhile)
}

func (g *Barrier) meet(arrive, wait func(), meanwhile func()) {
	e := g.e
	e.Trace.Sync(e.K, func() {
		first := e.Tid.EqC(0)
		if meanwhile == nil && e.Trace == nil {
			e.K.If(first, func() { arrive(); wait() })
		} else {
			e.K.If(first, arrive)
			e.Trace.Arrived()
			if meanwhile != nil {
				meanwhile()
			}
			e.K.If(first, func() {
				wait()
				e.Trace.Released()
			})
			e.Trace.Meets()
		}
		e.Sync()
	})
}

// arrive arrives for the CTA, in one thread.
func (g *Barrier) arrive(order dsl.MemOpt) {
	e := g.e
	arrive := func() { dsl.ReduceAdd(g.counter, dsl.At(0), e.K.U32(1), order) }
	if g.Lost == 0 {
		arrive()
	} else {
		e.K.If(e.CTA.NeC(g.Lost-1), arrive)
	}
}

// wait waits for all CTAs' arrivals, in one thread.
func (g *Barrier) wait(order dsl.MemOpt) {
	g.Watch.Until(g.e.K, g.counter, dsl.At(0), dsl.GE, g.target.Get(), "waits for the grid barrier to count %d arrivals",
		order)
}
