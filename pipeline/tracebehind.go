package pipeline

import "github.com/mkgen/mkgen/dsl"

// Behind is Span whose span is noted behind the phase that it is in, or else the next one:
// for what others wait behind at once, in the consumers, such as a hand-off's release, where
// body runs Released and Meets, and the staging of an input. Until then its ends are kept in
// registers, of one hand-off and a few other spans: one that is still kept where another
// takes its place is noted there. So spans are not in the order of their ends in a track.
func (t *Trace) Behind(k *dsl.Kernel, kind TraceKind, what string, body func()) {
	k.Helper()
	if t == nil {
		body()
		return
	}
	k.Require(!t.at.busy, "trace: a span %q within a chunk's use, want it around the chunks", what)
	k.Require(len(t.put) > 0, "trace: a span %q noted behind the phase, want it in the consumers", what)
	if len(t.put) == 0 {
		body()
		return
	}
	slot := t.slot(kind)
	site := t.site(kind, what)
	begin := t.clock().Named("began")
	if slot == behindHandoff {
		t.handoff++
		k.Require(t.handoff < traceHandoffs, "trace: over %d hand-offs", traceHandoffs)
	}
	t.settle()
	body()
	p := &t.put[slot]
	var ended dsl.Val[dsl.U32]
	if slot == behindHandoff {
		ended = t.released.Load(dsl.At(t.handoff)).Named("released") // nobody waits for it here
	} else {
		ended = t.clock().Named("ended")
	}
	sums := t.takeSums()
	k.If(t.notes, func() {
		sums()
		t.noteIfAny(p)
	})
	p.begin.Set(begin)
	p.end.Set(ended)
	p.where.Set(t.where(site))
	if p.came != nil {
		p.came.Set(t.came)
	}
}

// Released runs in the thread that waits for a hand-off, as soon as it is released: before
// the CTA's other consumers hear of it.
func (t *Trace) Released() {
	if t != nil {
		t.released.Store(dsl.At(t.handoff), t.clock())
	}
}

// Meets runs in all consumer threads where they come to the barrier in which they meet behind
// Released: a hand-off's span ends with the later of both. So nobody reads the clock behind
// the barrier, which a warp does that has only come to it, unless it waits for memory there.
func (t *Trace) Meets() {
	if t != nil {
		t.came = t.clock().Named("came")
	}
}

// traceHandoffs is how many hand-offs a traced program can have. Each has a word of its own:
// a warp may still read one when the next hand-off is released.
const traceHandoffs = 32

// The slots of spans that are put off, in the order they are noted in: a hand-off's, and
// behind it those that others take in turns, from each phase's note on.
const (
	behindHandoff = 0
	behindSlots   = 5
)

func (t *Trace) slot(kind TraceKind) int {
	if kind == TraceHandoff {
		return behindHandoff
	}
	n := t.behind
	t.behind = (n + 1) % (behindSlots - 1)
	return 1 + n
}

// putOff is a span that is to be noted behind a phase; there is none where its ends are
// the same.
type putOff struct {
	begin, end, where *dsl.Var[dsl.U32]
	came              *dsl.Var[dsl.U32] // of a hand-off: before which the end does not lie; else nil
}

func newPutOff(k *dsl.Kernel, slot int) putOff {
	v := func(name string) *dsl.Var[dsl.U32] { return dsl.NewVar(k.U32(0), name) }
	p := putOff{begin: v("put_off"), end: v("put_off_end"), where: v("put_off_of")}
	if slot == behindHandoff {
		p.came = v("put_off_came")
	}
	return p
}

// notePutOff notes what has been put off, in the thread that notes.
func (t *Trace) notePutOff() {
	for i := range t.put {
		t.noteIfAny(&t.put[i])
	}
}

func (t *Trace) noteIfAny(p *putOff) {
	begin, end := p.begin.Get(), p.end.Get()
	if p.came != nil { // the later of both
		came := p.came.Get()
		end = came.Add(dsl.Cast[dsl.U32](dsl.Cast[dsl.I32](end.Sub(came)).MaxC(0)))
	}
	t.k.If(end.Ne(begin), func() { t.store(begin, end, p.where.Get(), t.k.U32(0)) })
}

// clearPutOff is behind notePutOff, in all threads: what is known to be zero takes no
// register.
func (t *Trace) clearPutOff() {
	t.behind = 0
	for _, p := range t.put {
		for _, v := range []*dsl.Var[dsl.U32]{p.begin, p.end, p.where, p.came} {
			if v != nil {
				v.Set(t.k.U32(0))
			}
		}
	}
}
