package trace

import (
	"slices"
	"sort"
)

// Parts is where an SM's time went. Time = Work + Chunks + Others + Syncs. The
// producer's waits are those of the same SM in the same time, beside the
// consumers'.
type Parts struct {
	Time   float64
	Work   float64 // what is none of the waits below: arithmetic, staging, reductions, CTA barriers
	Chunks float64 // consumers waited for a chunk: the ring was empty
	Others float64 // consumers waited for something else, but no sync: for words that other SMs write
	Syncs  float64 // from arrival at a grid barrier, or at a count, to release

	RingFull float64 // the producer waited for a free stage: memory may idle
	InFlight float64 // the producer waited for copies under way: memory is busy
}

func (p *Parts) add(q Parts) {
	p.Time, p.Work, p.Chunks, p.Others, p.Syncs = p.Time+q.Time, p.Work+q.Work, p.Chunks+q.Chunks, p.Others+q.Others,
		p.Syncs+q.Syncs
	p.RingFull, p.InFlight = p.RingFull+q.RingFull, p.InFlight+q.InFlight
}

// over are the parts divided by n.
func (p Parts) over(n int) Parts {
	if n == 0 {
		return Parts{}
	}
	f := float64(n)
	return Parts{p.Time / f, p.Work / f, p.Chunks / f, p.Others / f, p.Syncs / f, p.RingFull / f, p.InFlight / f}
}

// Share is x, one of the parts, as a share of Time; 0 of no time.
func (p Parts) Share(x float64) float64 {
	if p.Time == 0 {
		return 0
	}
	return x / p.Time
}

// run is one phase in one layer of one step on one SM: Spans[first:last] of the
// consumers' track, of which Spans[phase] is the phase's own and those behind it up
// to the next phase's are syncs, or else count for nothing.
type run struct {
	first, phase, last int
	begin, end         float64 // of the phase, and of the sync behind it if there is one
	handed             bool    // whether there is
}

// runs are the phases of a consumers' track in order.
func (t *Trace) runs(tr *Track) (all []run) {
	from := 0 // behind the phase before
	for i := range tr.Spans {
		s := &tr.Spans[i]
		if t.kind(s) != Phase {
			continue
		}
		first := i
		for first > from && tr.Spans[first-1].Begin >= s.Begin {
			first--
		}
		t.closeRun(tr, all, first)
		all = append(all, run{first: first, phase: i, begin: s.Begin, end: s.End})
		from = i + 1
	}
	t.closeRun(tr, all, len(tr.Spans))
	return all
}

// closeRun gives the last run the spans up to the next one's.
func (t *Trace) closeRun(tr *Track, all []run, last int) {
	if len(all) == 0 {
		return
	}
	r := &all[len(all)-1]
	r.last = last
	for i := r.phase + 1; i < last; i++ {
		if s := &tr.Spans[i]; t.kind(s) == Sync {
			r.end, r.handed = max(r.end, s.End), true
		}
	}
}

// parts is where the time of a run went.
func (t *Trace) parts(tr *Track, r run, p *producer) Parts {
	sum := Parts{Time: r.end - r.begin}
	for i := r.first; i < r.last; i++ {
		if s := &tr.Spans[i]; i < r.phase || t.kind(s) == Sync {
			sum.wait(t, s)
		}
	}
	sum.close(p, r.begin, r.end)
	return sum
}

// wait adds a consumers' span if it is a wait or a sync.
func (p *Parts) wait(t *Trace, s *Span) {
	d := s.End - s.Begin
	switch site := &t.Sites[s.Site]; {
	case site.Kind == Sync:
		p.Syncs += d
	case site.Kind == Wait && site.Name == ChunkWait:
		p.Chunks += d
	case site.Kind == Wait:
		p.Others += d
	}
}

// close sets what follows from Time and the waits, and the producer's part.
func (p *Parts) close(of *producer, begin, end float64) {
	p.Work = p.Time - p.Chunks - p.Others - p.Syncs
	p.RingFull, p.InFlight = of.full.within(begin, end), of.flight.within(begin, end)
}

// producer are the waits of an SM's producer.
type producer struct{ full, flight waits }

// waits are intervals that do not overlap, in order, with their lengths summed.
type waits struct{ begin, end, sum []float64 } // sum[i]: of those before i

// producerOf collects the waits of a producer's track; of nil there are none.
func (t *Trace) producerOf(tr *Track) *producer {
	p := &producer{}
	if tr == nil {
		return p
	}
	for i := range tr.Spans {
		s := &tr.Spans[i]
		switch name := t.Sites[s.Site].Name; {
		case t.kind(s) == Wait && name == StageWait:
			p.full.append(s)
		case t.kind(s) == Wait && name == FlightWait:
			p.flight.append(s)
		}
	}
	return p
}

func (w *waits) append(s *Span) {
	before := 0.0
	if n := len(w.sum); n > 0 {
		before = w.sum[n-1] + w.end[n-1] - w.begin[n-1]
	}
	w.begin, w.end, w.sum = append(w.begin, s.Begin), append(w.end, s.End), append(w.sum, before)
}

// before is the length of the waits up to a time.
func (w *waits) before(at float64) float64 {
	i := sort.SearchFloat64s(w.begin, at) - 1 // the last that begins before
	if i < 0 {
		return 0
	}
	return w.sum[i] + min(at, w.end[i]) - w.begin[i]
}

// within is the length of the waits between two times.
func (w *waits) within(begin, end float64) float64 { return w.before(end) - w.before(begin) }

// median is the middle of v, which it sorts, the mean of the two middle ones of an
// even number; 0 of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func mean(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}
