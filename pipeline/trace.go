package pipeline

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl"
)

// Trace makes a kernel note what its warps do, and when: one warp of each role of every
// CTA, since the warps of a role do the same side by side. Spans lie in shared memory until
// there are many, or others do not wait for who notes them, and nobody waits for the stores
// then: to the host's memory, since what is written costs most by what it takes of the
// device's (docs/RATIONALE.md). A nil *Trace is a kernel that notes nothing and has no
// instruction for it.
type Trace struct {
	// Spans is [CTAs][TraceTracks][Capacity][SpanWords] and Heads
	// [CTAs][TraceTracks][HeadWords]; what a launch leaves there is for package
	// lab/trace. The producer's spans are of the consumers, too (ChunkWait).
	Spans, Heads dsl.Buf[dsl.U32]
	Capacity     int // spans of a track; what comes later is counted and lost
	// Sites lists what spans of the kernel built so far are of.
	Sites []TraceSite

	k             *dsl.Kernel
	track         int
	noting, notes dsl.Pred         // whether this is the warp that notes, and its first thread
	state         dsl.Buf[dsl.U32] // shared memory, [TraceTracks][stateWords]
	end           dsl.Val[dsl.U32] // the place behind this track, among the spans of all
	step, layer   dsl.Val[dsl.U32]
	list          spanList
	ring          ringWaits
	later         bool   // whether the next phase is listed behind the arrival
	late          func() // which does so
}

// TraceTracks is the number of roles that note: the consumers, then the producer.
const TraceTracks = 2

// TraceRoles names them.
func TraceRoles() []string { return []string{"consumers", "producer"} }

// TraceKind is what a span is.
type TraceKind string

// The kinds of spans.
const (
	TracePhase TraceKind = "phase" // of a layer or a step, up to its last instruction in the warp that notes
	// from the arrival at a grid barrier, or of the warp that notes at a count of arrivals, to the release
	TraceSync TraceKind = "sync"
	TraceWait TraceKind = "wait" // at the ring (see ChunkWait and those below it), or for what other SMs write in words
	TraceTask TraceKind = "task" // a part of a phase
)

// TraceSite is a place of the program that spans are of.
type TraceSite struct {
	Kind TraceKind
	What string
	dsl.Place
}

// The words of a span: clocks when it began and ended (low words), then site, layer and step
// in one word, then a detail, which the site gives its meaning. One of a wait at the ring that
// ends where it began stands for none: of a chunk that another warp took, say.
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

// The words of a track's state, while it is noted: the place of the next span among those of
// all tracks, and how many are listed.
const (
	stateNext = iota
	stateListed
	stateWords
)

// TracedLimit is what a limit of shared memory leaves a plan: of n spans a role, all of
// it where there are none.
func TracedLimit(limit, spans int) int {
	if spans == 0 {
		return limit
	}
	return limit - traceShared
}

// traceShared is how many bytes of shared memory a traced kernel takes at most beside the plan's.
const traceShared = 4*(TraceTracks*stateWords+(listedSpans+MaxStages+2*keptChunks)*SpanWords+2*traceSyncs) + 4*16

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

// NewTrace traces k, a kernel of n CTAs, and declares the buffers; capacity is
// spans of a track.
func NewTrace(k *dsl.Kernel, ctas, capacity int) *Trace {
	tracks := int64(ctas) * TraceTracks
	t := &Trace{Capacity: capacity, k: k, step: k.U32(0), layer: k.U32(0),
		Spans: dsl.Global[dsl.U32](k, BufferSpans, tracks*int64(capacity)*SpanWords, dsl.Align(16), dsl.HostKeeps(),
			dsl.Doc(fmt.Sprintf("[%d][%d][%d][%d] out: spans of what each role did", ctas, TraceTracks, capacity, SpanWords))),
		Heads: dsl.Global[dsl.U32](k, BufferSpanHeads, tracks*HeadWords,
			dsl.Doc(fmt.Sprintf("[%d][%d][%d] out: their number, and the role's clocks", ctas, TraceTracks, HeadWords)))}
	t.state = dsl.Shared[dsl.U32](k, "trace_state", TraceTracks*stateWords,
		dsl.Doc("by track: the place of the next span; how many are listed"))
	t.list.spans = dsl.Shared[dsl.U32](k, "trace_listed", listedSpans*SpanWords, dsl.Align(16),
		dsl.Doc("spans of the consumers that are not noted yet"))
	t.list.released = dsl.Shared[dsl.U32](k, "trace_released", traceSyncs*2,
		dsl.Doc(fmt.Sprintf("[%d][2] by sync, in turns: when it released this CTA", traceSyncs)))
	return t
}

// Start begins a role's track, at the top of the role; warp is the one that notes: best
// one that does least of what others wait for.
func (t *Trace) Start(track, warp int) {
	if t == nil {
		return
	}
	k := t.k
	begin := k.CTA().MulC(TraceTracks).AddC(track).MulC(t.Capacity)
	t.track, t.end = track, begin.AddC(t.Capacity).Named("spans_end")
	t.noting = k.Warp().EqC(warp)
	t.notes = t.noting.And(k.Lane().EqC(0))
	k.If(t.notes, func() {
		t.state.Store(t.word(stateNext), begin)
		t.state.Store(t.word(stateListed), k.U32(0))
	})
	t.list.turn = dsl.NewVar(k.U32(0), "turn")
	t.ring.start(t)
	t.stamp(headBegin)
}

// Finish ends it, at the end of the role.
func (t *Trace) Finish() {
	if t == nil {
		return
	}
	if t.track == 0 {
		t.noteListed()
	}
	t.stamp(headEnd)
	t.k.If(t.notes, func() {
		t.Heads.Store(t.head().AddC(headCount), t.state.Load(t.word(stateNext)).Sub(t.end).AddC(t.Capacity))
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

// word is the index of a word of the track's state.
func (t *Trace) word(i int) dsl.Index { return dsl.At(t.track*stateWords + i) }

// put stores a span if there is room.
func (t *Trace) put(at, begin, end, where, detail dsl.Val[dsl.U32]) {
	t.k.If(at.Lt(t.end), func() {
		dsl.View[dsl.B128](t.Spans).Store(at, dsl.Join(begin, end, where, detail))
	})
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
