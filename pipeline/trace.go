package pipeline

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl"
)

// Trace makes a kernel note what its warps do, and when: one warp of each role of every
// CTA, since the warps of a role do the same side by side. A span is noted when it ends, or
// behind the phase around it (Behind), by one 16-byte store that nobody waits for. A nil *Trace is a kernel that notes nothing
// and has no instruction for it.
type Trace struct {
	// Spans is [CTAs][TraceTracks][Capacity][SpanWords] and Heads
	// [CTAs][TraceTracks][HeadWords]; what a launch leaves there is for DecodeTrace.
	Spans, Heads dsl.Buf[dsl.U32]
	Capacity     int // spans of a track; what comes later is counted and lost
	// EachWait is whether every wait at the ring is a long one, a span of its own; set it
	// before Ring.Traced.
	EachWait bool
	// Sites lists what spans of the kernel built so far are of.
	Sites []TraceSite

	k           *dsl.Kernel
	released    dsl.Buf[dsl.U32] // shared memory, [traceHandoffs]: when one released the CTA
	handoff     int              // the number of the one that is built
	track       int
	notes       dsl.Pred          // whether this is the thread that notes
	next        *dsl.Var[dsl.U32] // the next span's place among those of all tracks
	end         dsl.Val[dsl.U32]  // that behind this track
	step, layer dsl.Val[dsl.U32]
	at          ringWaits
	later       bool             // whether the next phase is noted late
	late        func()           // which notes one
	put         []putOff         // by slot; of the consumers
	behind      int              // the slot behind the hand-off's that the next one takes
	came        dsl.Val[dsl.U32] // of the hand-off that is built; see Meets
	summed      bool             // while code is built all of whose waits are summed
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
	TraceHandoff TraceKind = "hand-off" // from the arrival at a grid barrier, or of the warp that notes at a count of arrivals, to the release
	TraceWait    TraceKind = "wait"     // at the ring (see ChunkWait and those below it), or for what other SMs write in words
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
	return &Trace{Capacity: capacity, k: k, step: k.U32(0), layer: k.U32(0), handoff: -1,
		released: dsl.Shared[dsl.U32](k, "trace_released", traceHandoffs, dsl.Doc("by hand-off: when it last released this CTA")),
		Spans: dsl.Global[dsl.U32](k, BufferSpans, tracks*int64(capacity)*SpanWords, dsl.Align(16),
			dsl.Doc(fmt.Sprintf("[%d][%d][%d][%d] out: spans of what each role did", ctas, TraceTracks, capacity, SpanWords))),
		Heads: dsl.Global[dsl.U32](k, BufferSpanHeads, tracks*HeadWords,
			dsl.Doc(fmt.Sprintf("[%d][%d][%d] out: their number, and the role's clocks", ctas, TraceTracks, HeadWords)))}
}

// Start begins a role's track, at the top of the role; warp is the one that notes: best
// one that does least of what others wait for.
func (t *Trace) Start(track, warp int) {
	if t == nil {
		return
	}
	k := t.k
	begin := k.CTA().MulC(TraceTracks).AddC(track).MulC(t.Capacity)
	t.track, t.next, t.end = track, dsl.NewVar(begin, "span"), begin.AddC(t.Capacity).Named("spans_end")
	t.notes = k.Lane().EqC(0).And(k.Warp().EqC(warp))
	t.put = nil
	if track == 0 {
		for slot := range behindSlots {
			t.put = append(t.put, newPutOff(k, slot))
		}
	}
	t.at.start(k, track)
	t.stamp(headBegin)
}

// Finish ends it, at the end of the role.
func (t *Trace) Finish() {
	if t == nil {
		return
	}
	t.k.If(t.notes, t.notePutOff)
	t.stamp(headEnd)
	t.k.If(t.notes, func() {
		t.Heads.Store(t.head().AddC(headCount), t.next.Get().Sub(t.end).AddC(t.Capacity))
		t.Heads.Store(t.head().AddC(headSM), t.k.SMID())
	})
}

// Settle is behind chunks that are drained outside of any span, before At says something
// else: their waits are noted.
func (t *Trace) Settle() {
	if t != nil {
		t.settle()
	}
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
	k.Require(!t.at.busy, "trace: a span %q within a chunk's use, want it around the chunks", what)
	site := t.site(kind, what)
	begin := t.clock().Named("began")
	t.settle()
	body()
	end := t.clock()
	sums := t.takeSums()
	note := func() {
		k.If(t.notes, func() {
			if kind == TracePhase {
				t.notePutOff()
			}
			sums()
			t.note(site, begin, end, detail)
		})
		if kind == TracePhase {
			t.clearPutOff()
		}
	}
	if t.later && kind == TracePhase {
		t.late, t.later = note, false
		return
	}
	note()
}

// Later says that the phase that follows is noted where NoteLate stands, behind it and
// with no other span between: where others do not wait for who notes.
func (t *Trace) Later() {
	if t != nil {
		t.later = true
	}
}

// NoteLate notes that phase; without one it does nothing. All lanes of all warps of the
// role take part.
func (t *Trace) NoteLate() {
	if t != nil && t.late != nil {
		t.late()
		t.late = nil
	}
}

// site is the number of a site at the place at hand. Waits of one name in one region
// are one.
func (t *Trace) site(kind TraceKind, what string) int {
	t.k.Helper()
	s := TraceSite{Kind: kind, What: what, Place: t.k.Place()}
	same := func(o TraceSite) bool {
		return kind == TraceWait && o.Kind == kind && o.What == what && o.Role == s.Role && slices.Equal(o.Regions, s.Regions)
	}
	if i := slices.IndexFunc(t.Sites, same); i >= 0 {
		return i
	}
	t.Sites = append(t.Sites, s)
	t.k.Require(len(t.Sites) <= MaxTraceSites, "trace: over %d places to note", MaxTraceSites)
	return len(t.Sites) - 1
}

// where is the word of a span that says what it is of.
func (t *Trace) where(site int) dsl.Val[dsl.U32] {
	return t.layer.ShlC(siteBits).Or(t.step.ShlC(siteBits + layerBits)).Or(t.k.U32(site))
}

// note stores a span, in the thread that notes.
func (t *Trace) note(site int, begin, end, detail dsl.Val[dsl.U32]) {
	t.store(begin, end, t.where(site), detail)
}

// store keeps spans in the L2 as long as that can be: what is written back to memory is what a
// trace costs most by (docs/RATIONALE.md).
func (t *Trace) store(begin, end, where, detail dsl.Val[dsl.U32]) {
	at := t.next.Get()
	t.k.If(at.Lt(t.end), func() {
		dsl.View[dsl.B128](t.Spans).Store(at, dsl.Join(begin, end, where, detail), dsl.CacheHint(dsl.EvictLast))
	})
	t.next.Set(at.AddC(1))
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
