package pipeline

import "github.com/mkgen/mkgen/dsl"

// Behind is Span whose span is noted behind the phase that it is in, or else the next one:
// for what others wait behind at once, in the consumers, such as a hand-off's release, where
// body ends with a barrier of the CTA, and the staging of an input. Until then its ends are kept in registers, of one hand-off
// and one other span: one that is still kept where the next ends is noted there. So spans
// are not in the order of their ends in a track.
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
	slot := behindTask
	if kind == TraceHandoff {
		slot = behindHandoff
	}
	site := t.site(kind, what)
	begin := t.clock().Named("began")
	t.settle()
	body()
	end := t.clock
	if kind == TraceHandoff {
		end = t.behind.Read
	}
	ended := end().Named("ended")
	p, sums := &t.put[slot], t.takeSums()
	k.If(t.notes, func() {
		sums()
		t.noteIfAny(p)
	})
	p.begin.Set(begin)
	p.end.Set(ended)
	p.where.Set(t.where(site))
}

// The slots of spans that are put off, in the order they are noted in.
const (
	behindHandoff = iota
	behindTask
)

// putOff is a span that is to be noted behind a phase; there is none where its ends are
// the same.
type putOff struct{ begin, end, where *dsl.Var[dsl.U32] }

func newPutOff(k *dsl.Kernel) putOff {
	v := func(name string) *dsl.Var[dsl.U32] { return dsl.NewVar(k.U32(0), name) }
	return putOff{v("put_off"), v("put_off_end"), v("put_off_of")}
}

// notePutOff notes what has been put off, in the thread that notes.
func (t *Trace) notePutOff() {
	for i := range t.put {
		t.noteIfAny(&t.put[i])
	}
}

func (t *Trace) noteIfAny(p *putOff) {
	begin, end := p.begin.Get(), p.end.Get()
	t.k.If(end.Ne(begin), func() { t.store(begin, end, p.where.Get(), t.k.U32(0)) })
}

// clearPutOff is behind notePutOff, in all threads: what is known to be zero takes no
// register.
func (t *Trace) clearPutOff() {
	for _, p := range t.put {
		for _, v := range []*dsl.Var[dsl.U32]{p.begin, p.end, p.where} {
			v.Set(t.k.U32(0))
		}
	}
}
