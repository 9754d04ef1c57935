package pipeline

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
)

// Trace makes a kernel note what its warps do, and when: one warp of each role of every
// CTA, since the warps of a role do the same side by side. A span is noted when it ends, by
// one 16-byte store that nobody waits for. A nil *Trace is a kernel that notes nothing
// and has no instruction for it.
type Trace struct {
	// Spans is [CTAs][TraceTracks][Capacity][SpanWords] and Heads
	// [CTAs][TraceTracks][HeadWords]; what a launch leaves there is for DecodeTrace.
	Spans, Heads dsl.Buf[dsl.U32]
	Capacity     int // spans of a track; what comes later is counted and lost
	// Sites lists what spans of the kernel built so far are of.
	Sites []TraceSite

	k           *dsl.Kernel
	track       int
	notes       dsl.Pred // whether this is the thread that notes
	n           *dsl.Var[dsl.U32]
	step, layer dsl.Val[dsl.U32]
}

// TraceTracks is the number of roles that note: the consumers, then the producer.
const TraceTracks = 2

// TraceRoles names them.
func TraceRoles() []string { return []string{"consumers", "producer"} }

// TraceKind is what a span is.
type TraceKind string

// The kinds of spans.
const (
	TracePhase   TraceKind = "phase"    // of a layer or a step, up to its last instruction in the warp that notes
	TraceHandoff TraceKind = "hand-off" // from the CTA's arrival at a grid barrier to its release
	TraceWait    TraceKind = "wait"     // of consumers for a chunk, of the producer for a stage or for copies in flight
	TraceTask    TraceKind = "task"     // a part of a phase
)

// TraceSite is a place of the program that spans are of.
type TraceSite struct {
	Kind TraceKind
	What string
	dsl.Place
}

// The words of a span: clocks when it began and ended (low words), then site, layer and step
// in one word, then a detail, which the site gives its meaning.
const (
	SpanWords = 4

	siteBits, layerBits = 10, 10
)

// The words of a track's head: the number of spans, the SM, and when the role began and
// ended, each by the SM's clock (low word) and by the GPU's timer (ns, low word first).
const (
	headCount = iota
	headSM
	headBegin // clock, timer, timer
	headEnd   = headBegin + 3
	HeadWords = 8
)

// MaxTraceLayers and MaxTraceSites are what a span's word can tell apart; steps are
// counted modulo TraceSteps.
const (
	MaxTraceLayers = 1<<layerBits - 2
	MaxTraceSites  = 1 << siteBits
)

// The buffers of a traced kernel.
const (
	BufferSpans     = "spans"
	BufferSpanHeads = "span_heads"
)

// NewTrace traces k, a kernel of so many CTAs, and declares the buffers; capacity is
// spans of a track.
func NewTrace(k *dsl.Kernel, ctas, capacity int) *Trace {
	tracks := int64(ctas) * TraceTracks
	return &Trace{Capacity: capacity, k: k, step: k.U32(0), layer: k.U32(0),
		Spans: dsl.Global[dsl.U32](k, BufferSpans, tracks*int64(capacity)*SpanWords, dsl.Align(16),
			dsl.Doc(fmt.Sprintf("[%d][%d][%d][%d] out: spans of what each role did", ctas, TraceTracks, capacity, SpanWords))),
		Heads: dsl.Global[dsl.U32](k, BufferSpanHeads, tracks*HeadWords,
			dsl.Doc(fmt.Sprintf("[%d][%d][%d] out: their number, and the role's clocks", ctas, TraceTracks, HeadWords)))}
}

// Start begins a role's track, at the top of the role; first is its first warp.
func (t *Trace) Start(track, first int) {
	if t == nil {
		return
	}
	k := t.k
	t.track, t.n = track, dsl.NewVar(k.U32(0), "spans")
	t.notes = k.Lane().EqC(0).And(k.Warp().EqC(first))
	t.stamp(headBegin)
}

// Finish ends it, at the end of the role.
func (t *Trace) Finish() {
	if t == nil {
		return
	}
	t.stamp(headEnd)
	t.k.If(t.notes, func() {
		t.Heads.Store(t.head().AddC(headCount), t.n.Get())
		t.Heads.Store(t.head().AddC(headSM), t.k.SMID())
	})
}

// At says in which step of the launch and in which layer the spans that follow lie; the
// number of layers is behind them.
func (t *Trace) At(step, layer dsl.Val[dsl.U32]) {
	if t != nil {
		t.step, t.layer = step, layer.AddC(1)
	}
}

// Before says that the spans that follow lie before the layers of a step.
func (t *Trace) Before(step dsl.Val[dsl.U32]) {
	if t != nil {
		t.step, t.layer = step, t.k.U32(0)
	}
}

// Span runs body and notes when it began and ended. All lanes of all warps of the role
// take part. detail is the site's; 0 says nothing.
func (t *Trace) Span(k *dsl.Kernel, kind TraceKind, what string, detail dsl.Val[dsl.U32], body func()) {
	k.Helper()
	if t == nil {
		body()
		return
	}
	t.Sites = append(t.Sites, TraceSite{Kind: kind, What: what, Place: k.Place()})
	site := len(t.Sites) - 1
	k.Require(site < MaxTraceSites, "trace: over %d places to note", MaxTraceSites)
	begin := t.clock().Named("began")
	body()
	end := t.clock()
	n := t.n.Get()
	k.If(t.notes.And(n.LtC(t.Capacity)), func() {
		at := k.CTA().MulC(TraceTracks).AddC(t.track).MulC(t.Capacity).Add(n).MulC(SpanWords)
		where := t.layer.ShlC(siteBits).Or(t.step.ShlC(siteBits + layerBits)).Or(k.U32(site))
		t.Spans.StoreN(at, []dsl.Val[dsl.U32]{begin, end, where, detail})
	})
	t.n.Set(n.AddC(1))
}

func (t *Trace) clock() dsl.Val[dsl.U32] { return dsl.Cast[dsl.U32](t.k.Clock()) }

// head is the first word of this CTA's head of the track.
func (t *Trace) head() dsl.Val[dsl.U32] {
	return t.k.CTA().MulC(TraceTracks).AddC(t.track).MulC(HeadWords)
}

// stamp notes both clocks.
func (t *Trace) stamp(word int) {
	k := t.k
	k.If(t.notes, func() {
		clock, timer := t.clock(), k.GlobalTimer()
		for i, v := range []dsl.Val[dsl.U32]{clock, dsl.Cast[dsl.U32](timer), dsl.Cast[dsl.U32](timer.ShrC(32))} {
			t.Heads.Store(t.head().AddC(word+i), v)
		}
	})
}

// chunkCount is how many chunks of the launch lie before a role's position, which only
// a trace asks for.
type chunkCount struct {
	k *dsl.Kernel
	n *dsl.Var[dsl.U32] // nil without a trace
}

func (r *Ring) newCount() chunkCount {
	if r.trace == nil {
		return chunkCount{k: r.k}
	}
	return chunkCount{r.k, dsl.NewVar(r.k.U32(0), "chunks")}
}

func (c chunkCount) get() dsl.Val[dsl.U32] {
	if c.n == nil {
		return c.k.U32(0)
	}
	return c.n.Get()
}

func (c chunkCount) add(n dsl.Val[dsl.U32]) {
	if c.n != nil {
		c.n.Set(c.n.Get().Add(n))
	}
}
