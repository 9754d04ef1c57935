package pipeline

import "github.com/mkgen/mkgen/dsl"

// What the consumers go through, phases, syncs and parts, is listed in shared memory, and
// noted from there when they have arrived at the next sync: others do not wait for it
// there. What is more than a list holds is noted at once, but for phases, which are listed
// when all before them is noted; so are the producer's phases.
type spanList struct {
	// shared memory, [listedSpans][SpanWords]: as in Trace.Spans, but the last word of a sync's is the index of its
	// release, plus 1
	spans dsl.Buf[dsl.U32]
	// shared memory, [traceSyncs][2]: when one released the CTA, the last time and the time before
	released dsl.Buf[dsl.U32]
	turn     *dsl.Var[dsl.U32] // which of these two is written: it changes with every sync
	syncs    int               // built so far
	came     dsl.Val[dsl.U32]  // of the sync that is built; see Meets
}

// listedSpans is how many spans have room: one a lane, which then store whole lines.
const listedSpans = 32

// traceSyncs is how many syncs a traced program can have. Each has words of its own, by
// turns: one may be read, to note a sync, while the next is released, which may be the
// same of another layer.
const traceSyncs = 32

// Span runs body and notes when it began and ended. All lanes of all warps of the role
// take part.
func (t *Trace) Span(k *dsl.Kernel, kind TraceKind, what string, body func()) {
	k.Helper()
	if t == nil {
		body()
		return
	}
	site := t.site(kind, what)
	begin := t.clock().Named("began")
	body()
	end := t.clock().Named("ended")
	add := func() { t.add(begin, end, t.where(site), k.U32(0)) }
	if t.later && kind == TracePhase {
		t.late, t.later = add, false
		return
	}
	add()
}

// Sync is Span of a sync, of which body runs Released and Meets.
func (t *Trace) Sync(k *dsl.Kernel, body func()) {
	k.Helper()
	if t == nil {
		body()
		return
	}
	site := t.site(TraceSync, "sync")
	begin := t.clock().Named("began")
	l := &t.list
	l.syncs++
	k.Require(l.syncs <= traceSyncs, "trace: over %d syncs", traceSyncs)
	l.turn.Set(l.turn.Get().XorC(1))
	body()
	t.add(begin, l.came, t.where(site), t.releaseWord().AddC(1))
}

// releaseWord is the index of the release of the sync that is built.
func (t *Trace) releaseWord() dsl.Val[dsl.U32] {
	return t.list.turn.Get().AddC(2 * (t.list.syncs - 1))
}

// Released runs in the thread that waits for a sync, as soon as it is released: before
// the CTA's other consumers hear of it.
func (t *Trace) Released() {
	if t != nil {
		t.list.released.Store(t.releaseWord(), t.clock())
	}
}

// Meets runs in all consumer threads where they come to the barrier in which they meet behind
// Released: a sync's span ends with the later of both. So nobody reads the clock behind
// the barrier, which a warp does that has only come to it, unless it waits for memory there.
func (t *Trace) Meets() {
	if t != nil {
		t.list.came = t.clock().Named("came")
	}
}

// Later says that the phase that follows is listed where Arrived stands, or NoteLate.
func (t *Trace) Later() {
	if t != nil {
		t.later = true
	}
}

// Arrived is behind the consumers' arrival at a sync: what is listed is noted. All lanes of
// all their warps take part.
func (t *Trace) Arrived() {
	if t != nil {
		t.noteListed()
		if t.late != nil { // behind all that lies in it
			t.late()
			t.late = nil
		}
	}
}

// NoteLate is Arrived behind a phase without a sync, and nothing where Arrived stood.
func (t *Trace) NoteLate() {
	if t != nil && t.late != nil {
		t.Arrived()
	}
}

// add lists a span, which the thread that notes must come by.
func (t *Trace) add(words ...dsl.Val[dsl.U32]) {
	k := t.k
	k.If(t.notes, func() {
		if t.track > 0 {
			at := t.state.Load(t.word(stateNext))
			t.put(at, words[0], words[1], words[2], words[3])
			t.state.Store(t.word(stateNext), at.AddC(1))
			return
		}
		n := t.state.Load(t.word(stateListed))
		k.IfElse(n.LtC(listedSpans), func() {
			t.list.spans.StoreN(n.MulC(SpanWords), words)
			t.state.Store(t.word(stateListed), n.AddC(1))
		}, func() {
			at := t.state.Load(t.word(stateNext))
			t.putListed(at, words)
			t.state.Store(t.word(stateNext), at.AddC(1))
		})
	})
}

// putListed stores a span of the list: a sync's ends with its release, if that is later.
func (t *Trace) putListed(at dsl.Val[dsl.U32], words []dsl.Val[dsl.U32]) {
	k := t.k
	end, release := dsl.NewVar(words[1], "ended"), words[3]
	k.If(release.NeC(0), func() {
		after := dsl.Cast[dsl.I32](t.list.released.Load(release.SubC(1)).Sub(end.Get()))
		end.Set(end.Get().Add(dsl.Cast[dsl.U32](after.MaxC(0))))
	})
	t.put(at, words[0], end.Get(), words[2], k.U32(0))
}

// noteListed notes what is listed, in the warp that notes: 32 spans side by side at most.
func (t *Trace) noteListed() {
	k := t.k
	k.If(t.noting, func() {
		k.SyncWarp() // behind what one lane has stored
		n, at, own := t.state.Load(t.word(stateListed)), t.state.Load(t.word(stateNext)), k.Lane()
		k.If(own.Lt(n), func() { t.putListed(at.Add(own), t.list.spans.LoadN(own.MulC(SpanWords), SpanWords)) })
		k.SyncWarp() // before it stores more
		k.If(t.notes, func() {
			t.state.Store(t.word(stateNext), at.Add(n))
			t.state.Store(t.word(stateListed), k.U32(0))
		})
	})
}
