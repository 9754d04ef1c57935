package pipeline

import "github.com/mkgen/mkgen/dsl"

// The waits at the ring, as a trace names them: each is a span. Their detail is the number of
// the chunk, of the launch, that they are for.
const (
	// consumers; where warps share chunks out, of those that the warp that notes takes
	ChunkWait = "waits for a chunk"
	StageWait = "waits for a free stage" // the producer
	// FlightWait is the producer's behind the StageWait of the same chunk: as many copies
	// are under way as may be or, where it leads, more than may be then.
	FlightWait = "waits for copies in flight"
)

// ringWaits are the waits at the ring that are not noted yet. The producer notes them, the
// consumers' too: these have others waiting for them, and the producer mostly waits. A
// consumer leaves its wait for a chunk by the chunk's stage, and the producer takes it from
// there when it is about to fill the stage again. With its own waits for that next chunk it
// is kept until there are 32 such pairs, a lane's each: they are stored side by side, so in
// whole lines.
type ringWaits struct {
	stages int
	limits bool // whether the producer waits for copies in flight
	// shared memory, [stages][SpanWords]: by stage, the span of the consumers' wait for the chunk that is in it
	drained dsl.Buf[dsl.U32]
	// shared memory, [keptChunks][2][SpanWords]: begin, end and end of the producer's waits, and where; such a span
	kept   dsl.Buf[dsl.U32]
	chunks *dsl.Var[dsl.U32] // of the launch that the producer has filled
}

// keptChunks is how many pairs are kept before they are noted: one a lane.
const keptChunks = 32

func (w *ringWaits) of(k *dsl.Kernel, stages int, limits bool) {
	w.stages, w.limits = stages, limits
	w.drained = dsl.Shared[dsl.U32](k, "trace_drained", stages*SpanWords, dsl.Align(16),
		dsl.Doc("by stage: the consumers' wait for its chunk"))
	w.kept = dsl.Shared[dsl.U32](k, "trace_kept", keptChunks*2*SpanWords, dsl.Align(16),
		dsl.Doc("waits of the producer, and consumers' that it has found"))
}

// start is at the top of a role.
func (w *ringWaits) start(t *Trace) {
	if w.stages == 0 || t.track == 0 {
		return
	}
	k := t.k
	w.chunks = dsl.NewVar(k.U32(0), "chunks")
	k.If(t.notes, func() {
		k.For(k.U32(0), k.U32(w.stages), func(stage dsl.Val[dsl.U32]) { w.leave(k, stage, k.U32(0), k.U32(0)) },
			dsl.Unroll(1))
	})
}

// leave leaves a span without a length at a stage, for the consumers to fill in.
func (w *ringWaits) leave(k *dsl.Kernel, stage, where, number dsl.Val[dsl.U32]) {
	w.drained.StoreN(stage.MulC(SpanWords), []dsl.Val[dsl.U32]{k.U32(0), k.U32(0), where, number})
}

// The sites of the waits at the ring follow one another: a StageWait's, and some behind it
// those of the FlightWait and of the consumers' ChunkWait.
const (
	flightSite = 1
	chunkSite  = 2
)

// ringSite is the number of the StageWait's site at the place at hand.
func (t *Trace) ringSite() (site int) {
	first := len(t.Sites)
	if site = t.site(TraceWait, StageWait); site == first {
		t.site(TraceWait, FlightWait)
		place := t.k.Place()
		place.Role = TraceRoles()[0]
		t.Sites = append(t.Sites, TraceSite{Kind: TraceWait, What: ChunkWait, Place: place})
		t.k.Require(len(t.Sites) <= MaxTraceSites, "trace: over %d places to note", MaxTraceSites)
	}
	return site
}

// draining are the clocks around a consumer warp's wait for a chunk.
type draining struct {
	t          *Trace
	begin, end dsl.Val[dsl.U32]
}

func (t *Trace) draining() *draining {
	if t == nil {
		return nil
	}
	return &draining{t: t, begin: t.clock().Named("began")}
}

// landed is behind the wait.
func (d *draining) landed() {
	if d != nil {
		d.end = d.t.clock()
	}
}

// drained is behind the chunk's use, since who needs a clock at once waits for it, and before
// the release of its stage, with which the producer learns of it.
func (d *draining) drained(stage dsl.Val[dsl.U32]) {
	if d != nil {
		d.t.k.If(d.t.notes, func() { d.leave(stage) })
	}
}

// leave leaves the wait at the stage.
func (d *draining) leave(stage dsl.Val[dsl.U32]) {
	d.t.ring.drained.StoreN(stage.MulC(SpanWords), []dsl.Val[dsl.U32]{d.begin, d.end})
}

// taken is drained where a warp may come to a chunk more than once: its first wait counts.
func (d *draining) taken(stage dsl.Val[dsl.U32]) {
	if d != nil {
		k, left := d.t.k, d.t.ring.drained
		k.If(d.t.notes, func() {
			k.If(left.Load(stage.MulC(SpanWords).AddC(1)).EqC(0), func() { d.leave(stage) })
		})
	}
}

// filling are the clocks of the producer between its waits for a chunk. They are made use of
// when the copy has been issued, which they are not to delay. Once in 32 chunks the fence before
// the next copy comes behind stores of spans: what that costs was too little to be measured.
type filling struct {
	t           *Trace
	begin, free dsl.Val[dsl.U32]    // before and behind the wait for a stage
	landed      *dsl.Var[dsl.U32]   // when the last wait for copies ended
	where       dsl.Val[dsl.U32]    // of the wait for a stage
	found       []*dsl.Var[dsl.U32] // the span that was left at the stage
}

func (t *Trace) filling() *filling {
	if t == nil {
		return nil
	}
	return &filling{t: t, begin: t.clock()}
}

// freed is behind the wait for a stage.
func (f *filling) freed() {
	if f != nil {
		f.free = f.t.clock()
		f.landed = dsl.NewVar(f.free, "landed")
	}
}

// waited is behind a wait for copies in flight, of which not every chunk has each.
func (f *filling) waited() {
	if f != nil {
		f.landed.Set(f.t.clock())
	}
}

// take takes the span that was left at the stage, before the stage is filled.
func (f *filling) take(stage dsl.Val[dsl.U32]) {
	if f == nil {
		return
	}
	t, k, w := f.t, f.t.k, &f.t.ring
	f.where = t.where(t.ringSite())
	for range SpanWords {
		f.found = append(f.found, dsl.NewVar(k.U32(0), "found"))
	}
	k.If(t.notes, func() {
		for i, v := range w.drained.LoadN(stage.MulC(SpanWords), SpanWords) {
			f.found[i].Set(v)
		}
		w.leave(k, stage, f.where.AddC(chunkSite), w.chunks.Get())
	})
}

// issued is behind the issue of the copy: the chunk's waits are kept with the span that was
// found, and what is kept is noted where there is no room for more.
func (f *filling) issued() {
	if f == nil {
		return
	}
	t, k, w := f.t, f.t.k, &f.t.ring
	in := w.chunks.Get().AndC(keptChunks - 1)
	k.If(t.notes, func() {
		var found []dsl.Val[dsl.U32]
		for _, v := range f.found {
			found = append(found, v.Get())
		}
		w.kept.StoreN(in.MulC(2*SpanWords), []dsl.Val[dsl.U32]{f.begin, f.free, f.landed.Get(), f.where})
		w.kept.StoreN(in.MulC(2*SpanWords).AddC(SpanWords), found)
	})
	w.chunks.Set(w.chunks.Get().AddC(1))
	k.If(in.EqC(keptChunks-1), func() { t.noteKept(k.U32(keptChunks)) })
}

// noteKept notes n chunks' waits that are kept, the last ones, in the producer warp.
func (t *Trace) noteKept(kept dsl.Val[dsl.U32]) {
	w, k := &t.ring, t.k
	own := k.Lane()
	k.SyncWarp() // behind what one lane has stored
	at := t.state.Load(t.word(stateNext))
	k.If(own.Lt(kept), func() {
		waits := w.kept.LoadN(own.MulC(2*SpanWords), SpanWords)
		found := w.kept.LoadN(own.MulC(2*SpanWords).AddC(SpanWords), SpanWords)
		begin, free, landed, where := waits[0], waits[1], waits[2], waits[3]
		number, to := w.chunks.Get().Sub(kept).Add(own), at.Add(own)
		t.put(to, begin, free, where, number)
		t.put(to.Add(kept), found[0], found[1], found[2], found[3])
		if w.limits {
			t.put(to.Add(kept.MulC(2)), free, landed, where.AddC(flightSite), number)
		}
	})
	k.SyncWarp() // before it stores more
	spans := 2
	if w.limits {
		spans = 3
	}
	k.If(t.notes, func() { t.state.Store(t.word(stateNext), at.Add(kept.MulC(spans))) })
}

// rest notes what is kept when the last chunk has been filled, and the consumers' waits for the
// chunks that are in the ring, when these have been drained.
func (t *Trace) rest(p *Producer) {
	if t == nil {
		return
	}
	r, k, w := p.r, t.k, &t.ring
	t.noteKept(w.chunks.Get().AndC(keptChunks - 1))
	k.For(k.U32(0), k.U32(r.stages), func(dsl.Val[dsl.U32]) {
		stage := p.next.stage.Get()
		r.watch.MBar(k, r.empty, stage, p.next.parity.Get(), stage, "waits for stage %d of the ring to be drained")
		p.next.advance()
	}, dsl.Unroll(1))
	k.SyncWarp() // behind what one lane has stored
	filled := w.chunks.Get().MinC(r.stages)
	at := t.state.Load(t.word(stateNext))
	k.If(k.Lane().Lt(filled), func() {
		found := w.drained.LoadN(k.Lane().MulC(SpanWords), SpanWords)
		t.put(at.Add(k.Lane()), found[0], found[1], found[2], found[3])
	})
	k.SyncWarp()
	k.If(t.notes, func() { t.state.Store(t.word(stateNext), at.Add(filled)) })
}
