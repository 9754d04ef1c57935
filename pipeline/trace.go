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

// NewTrace traces k.
func NewTrace(k *dsl.Kernel, spans, heads dsl.Buf[dsl.U32], capacity int) *Trace {
	return &Trace{Spans: spans, Heads: heads, Capacity: capacity, k: k, step: k.U32(0), layer: k.U32(0)}
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

// TraceSteps is where the number of a step in a span wraps.
const TraceSteps = 1 << (32 - siteBits - layerBits)

// Span is one that a warp noted: SpanWords words of Trace.Spans.
type Span struct {
	Begin, End  uint32 // the SM's clock, low word
	Site        int    // index into Trace.Sites
	Step, Layer int    // the step modulo TraceSteps; −1 before the layers
	Detail      uint32
}

// DecodeSpan reads a span.
func DecodeSpan(words []uint32) (Span, error) {
	if len(words) < SpanWords {
		return Span{}, fmt.Errorf("a span of %d words, want %d", len(words), SpanWords)
	}
	where := words[2]
	return Span{Begin: words[0], End: words[1], Site: int(where % MaxTraceSites), Layer: int(where>>siteBits%(1<<layerBits)) - 1,
		Step: int(where >> (siteBits + layerBits)), Detail: words[3]}, nil
}

// Head is a track's.
type Head struct {
	Spans      int       // noted, more than Capacity where some were lost; 0 where the role has not come to its end
	SM         int       // the hardware's number
	Clocks     [2]uint32 // of the SM when the role began and ended, low words
	Nanosecond [2]uint64 // of the GPU's timer then
}

// DecodeHead reads the head of a track.
func DecodeHead(words []uint32) (h Head, err error) {
	if len(words) < HeadWords {
		return h, fmt.Errorf("a track's head of %d words, want %d", len(words), HeadWords)
	}
	h.Spans, h.SM = int(words[headCount]), int(words[headSM])
	for i, at := range []int{headBegin, headEnd} {
		h.Clocks[i] = words[at]
		h.Nanosecond[i] = uint64(words[at+1]) | uint64(words[at+2])<<32
	}
	return h, nil
}
