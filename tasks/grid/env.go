package grid

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// Env is what every template works on. Thread coordinates are computed once at
// the top of the kernel; Consumers warps 0 … Consumers−1 do the arithmetic.
type Env struct {
	K         *dsl.Kernel
	Consumers int // consumer warps
	Grid      int // CTAs

	CTA  u32 // index of this CTA
	Warp u32 // index of this warp
	Lane u32 // index of this lane
	Tid  u32 // index of this thread in the CTA; under 32·Consumers for consumers

	// Scratch holds one f32 a consumer warp, for sums over the CTA. From the staging of a product's input in an Order to
	// its last epilogue it holds the norm's sums of squares.
	Scratch dsl.Buf[dsl.F32]

	// Scarce is whether a kernel has so much to keep that registers spill without Anew.
	Scarce bool

	// round is the round of EachConsumer or EachOf whose body is being made, plus 1; 0 outside, and in a device loop.
	round int

	WholeWarps bool // EachConsumer and EachOf leave out whole warps only: n is a multiple of their lanes

	order *Order // of EachConsumer and EachOf, nil outside WithOrder
	first u32    // the thread's i of the first round there

	// Trace, unless nil, notes the parts of the consumers' phases.
	Trace *pipeline.Trace
}

// Part is a part of a phase, for a trace.
func (e *Env) Part(what string, body func()) {
	e.K.Helper()
	e.Trace.Span(e.K, pipeline.TraceTask, what, body)
}

// Wait is a part of a phase in which consumer warps wait for packets that other SMs write
// (LL), for a trace. It reads them, too, which takes a load's time where nobody waits.
func (e *Env) Wait(what string, body func()) {
	e.K.Helper()
	e.Trace.Span(e.K, pipeline.TraceWait, what, body)
}

// consumerBarrier is the named barrier of the consumer warps.
const consumerBarrier = 1

// NewEnv computes the thread coordinates; those that no template uses are left
// out of the kernel.
func NewEnv(k *dsl.Kernel, grid, consumers int, scratch dsl.Buf[dsl.F32]) *Env {
	at := func(v u32, name string) u32 { return dsl.Optional(v.Named(name)) }
	return &Env{K: k, Consumers: consumers, Grid: grid, Scratch: scratch,
		CTA: at(k.CTA(), "cta"), Warp: at(k.Warp(), "warp"), Lane: at(k.Lane(), "lane"), Tid: at(k.Tid(), "tid")}
}

// Anew makes body's code compute whatever it needs of the thread's coordinates itself, where registers are Scarce. In a
// loop the compiler would otherwise compute it once, before the loop, and keep it in registers.
func (e *Env) Anew(body func()) {
	if !e.Scarce {
		body()
		return
	}
	lane, tid := e.Lane, e.Tid
	e.Lane, e.Tid = dsl.Optional(dsl.Opaque(lane).Named("lane")), dsl.Optional(dsl.Opaque(tid).Named("tid"))
	body()
	e.Lane, e.Tid = lane, tid
}

// Threads is the number of consumer threads.
func (e *Env) Threads() int { return e.Consumers * dsl.WarpSize }

// Sync makes the consumer warps of the CTA wait for each other.
func (e *Env) Sync() { e.K.NamedBarrier(consumerBarrier, e.Consumers) }

// Producing runs body in the producer warps of a warpgroup behind the consumers: in its first warp, or where producers
// (pipeline.TileStages.Producers) is not 0, in all of them.
func (e *Env) Producing(producers int, body func()) {
	if producers > 0 {
		body()
		return
	}
	e.K.If(e.Warp.EqC(e.Consumers), body)
}

// maxUnrolled is how many rounds of EachConsumer are written out. Few warps over
// a wide vector would make hundreds, and nvcc take minutes.
const maxUnrolled = 16

// Order says which values of i EachConsumer and EachOf have for a warp: in round j the WarpSize values of group number
// Warp·Stride + Offsets[j], one a lane.
type Order struct {
	Stride  int   // groups from a warp's first one to the next warp's
	Offsets []int // groups from the warp's first one on
}

// Equal reports whether both hand out the same values; nil is the order without one.
func (o *Order) Equal(other *Order) bool {
	return o == other || o != nil && other != nil && o.Stride == other.Stride && slices.Equal(o.Offsets, other.Offsets)
}

// WithOrder runs body, whose EachConsumer and EachOf go through all of n = len(o.Offsets)·Threads values in o's order,
// each round written out. With nil they go through theirs. A thread's first value is made anew for each call (Opaque):
// nvcc would keep it in a register over a whole layer, and spill others.
func (e *Env) WithOrder(o *Order, body func()) {
	was, first := e.order, e.first
	if e.order = o; o != nil {
		e.first = dsl.Optional(dsl.Opaque(e.Warp).MulC(o.Stride * dsl.WarpSize).Add(e.Lane).Named("first"))
	}
	body()
	e.order, e.first = was, first
}

// Order returns the order that holds, nil outside WithOrder.
func (e *Env) Order() *Order { return e.order }

// ordered returns i of round j of n values in the order.
func (e *Env) ordered(n, j int) u32 {
	if n != len(e.order.Offsets)*e.Threads() {
		panic(fmt.Sprintf("BUG: %d values in an order of %d rounds of %d threads", n, len(e.order.Offsets), e.Threads()))
	}
	return dsl.Optional(e.first.AddC(e.order.Offsets[j] * dsl.WarpSize))
}

// EachConsumer calls body for i = Tid, Tid + Threads, … under n, or within WithOrder in its order. When n is a
// multiple of Threads no lane is left out. Up to maxUnrolled rounds are written
// out; more are a loop in the kernel.
func (e *Env) EachConsumer(n int, body func(i u32)) {
	if e.order != nil {
		for j := range e.order.Offsets {
			e.inRound(j, func() { body(e.ordered(n, j)) })
		}
		return
	}
	whole := n / e.Threads()
	if whole > maxUnrolled {
		e.K.For(e.K.U32(0), e.K.U32(whole), func(j u32) {
			e.inRound(inLoop, func() { body(e.Tid.Add(j.MulC(e.Threads()))) })
		}, dsl.Unroll(maxUnrolled/2))
	} else {
		for j := range whole {
			e.inRound(j, func() { body(dsl.Optional(e.Tid.AddC(j * e.Threads()))) })
		}
	}
	if n%e.Threads() != 0 {
		i := e.Tid.AddC(whole * e.Threads())
		e.K.If(e.under(i, n), func() { e.inRound(whole, func() { body(i) }) })
	}
}

// IfPred runs body where p holds, everywhere if p is nil.
func (e *Env) IfPred(p *dsl.Pred, body func()) {
	if p == nil {
		body()
		return
	}
	e.K.If(*p, body)
}

// EachConsumerBehind is EachConsumer with i = 0 in the first thread of the first warp that is behind the first busy
// threads. Where these are all threads or more, warps are counted from the first one again.
func (e *Env) EachConsumerBehind(busy, n int, body func(i u32)) {
	first := pipeline.CeilDiv(busy, dsl.WarpSize) % e.Consumers * dsl.WarpSize
	if first == 0 {
		e.EachConsumer(n, body)
		return
	}
	tid := dsl.Select(e.Tid.LtC(first), e.Tid.AddC(e.Threads()), e.Tid).SubC(first)
	of := *e
	of.Tid, of.WholeWarps, of.order = tid, false, nil
	e.inRound(inLoop, func() { of.EachConsumer(n, body) }) // i is another warp's
}

// under is whether i of the last round is below n: the same in a warp's lanes where warps are whole.
func (e *Env) under(i u32, n int) dsl.Pred {
	if rest := n % e.Threads(); e.WholeWarps && rest%dsl.WarpSize == 0 {
		return e.Warp.LtC(rest / dsl.WarpSize)
	}
	return i.LtC(n)
}

// OwnGroups calls body for this warp's of n groups, which the consumer warps take in
// turns: with how many it is the i-th, and with its number.
func (e *Env) OwnGroups(groups int, body func(i int, group u32)) {
	for i := range pipeline.CeilDiv(groups, e.Consumers) {
		group := dsl.Optional(e.Warp.AddC(i * e.Consumers))
		if (i+1)*e.Consumers <= groups {
			body(i, group)
		} else {
			e.K.If(group.LtC(groups), func() { body(i, group) })
		}
	}
}

// EachOf calls body in the consumer threads for i = Tid, Tid + Threads, … below n, or within WithOrder in its order, up
// to most values of i together, of which value j is behind[j] behind the first, as far as that goes. Where some threads
// have a value more than others, the last value of those others is below n too, one that is not theirs: what body does
// with value j it does within mine(j, …), which is for the threads whose value it is. More than maxUnrolled rounds are
// a loop in the kernel, but for two batches: the longest vector of 70B is 28 rounds of 8 warps.
func (e *Env) EachOf(n, most int, body func(is []u32, behind []int, mine func(j int, do func()))) {
	if e.order != nil {
		e.eachOfOrdered(n, most, body)
		return
	}
	whole := n / e.Threads()
	apart := func(count int) (behind []int) {
		for j := range count {
			behind = append(behind, j*e.Threads())
		}
		return behind
	}
	together := func(first u32, count int) []u32 {
		is := make([]u32, count)
		for j := range is {
			is[j] = dsl.Optional(first.AddC(j * e.Threads()))
		}
		return is
	}
	always := func(_ int, do func()) { e.inRound(inLoop, do) }
	from := func(round int) func(int, func()) {
		return func(j int, do func()) { e.inRound(round+j, do) }
	}
	batches := whole / most
	if batches > 2 && batches*most > maxUnrolled {
		e.K.For(e.K.U32(0), e.K.U32(batches), func(b u32) {
			body(together(e.Tid.Add(b.MulC(most*e.Threads())), most), apart(most), always)
		}, dsl.Unroll(1))
	} else {
		for j := range batches {
			body(together(e.Tid.AddC(j*most*e.Threads()), most), apart(most), from(j*most))
		}
	}
	behind := from(batches * most)
	var rest []u32
	if n := whole % most; n > 0 {
		rest = together(e.Tid.AddC(batches*most*e.Threads()), n)
	}
	if n%e.Threads() == 0 {
		if len(rest) > 0 {
			body(rest, apart(len(rest)), behind)
		}
		return
	}
	last := e.Tid.AddC(whole * e.Threads())
	if len(rest) == 0 {
		e.K.If(e.under(last, n), func() { body([]u32{last}, apart(1), behind) })
		return
	}
	body(append(rest, last.MinC(n-1)), apart(len(rest)), func(j int, do func()) {
		if j < len(rest) {
			behind(j, do)
		} else {
			e.K.If(e.under(last, n), func() { behind(j, do) })
		}
	})
}

// eachOfOrdered does what EachOf does, within WithOrder.
func (e *Env) eachOfOrdered(n, most int, body func(is []u32, behind []int, mine func(j int, do func()))) {
	all := e.order.Offsets
	for from := 0; from < len(all); from += most {
		var is []u32
		var behind []int
		for j := from; j < min(from+most, len(all)); j++ {
			is, behind = append(is, e.ordered(n, j)), append(behind, (all[j]-all[from])*dsl.WarpSize)
		}
		body(is, behind, func(j int, do func()) { e.inRound(from+j, do) })
	}
}

// inLoop is the number of a round that a device loop counts.
const inLoop = -1

// inRound runs do with i of round j: Tid + j·Threads, or of the order.
func (e *Env) inRound(j int, do func()) {
	was := e.round
	e.round = j + 1
	do()
	e.round = was
}

// GroupOf returns i / WarpSize, i being what EachConsumer or EachOf has handed to the body that calls it. Where the
// round is known when the kernel is made, that is the warp and a constant. So places that follow from it are constant
// distances apart, which nvcc does not see of i itself, as i might wrap.
func (e *Env) GroupOf(i u32) u32 {
	switch {
	case e.round > 0 && e.order != nil:
		return e.Warp.MulC(e.order.Stride).AddC(e.order.Offsets[e.round-1])
	case e.round > 0:
		return e.Warp.AddC((e.round - 1) * e.Consumers)
	}
	return i.DivC(dsl.WarpSize)
}
