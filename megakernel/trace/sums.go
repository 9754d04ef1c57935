package trace

// interval is a piece of time.
type interval struct{ begin, end float64 }

// sum is what a span that is a sum of waits is of.
type sum struct {
	chunks int     // whose waits they are
	within float64 // since when; they lie between this and end
	end    float64
	behind float64 // of the sums of the same chunks, how much comes behind this one
}

// summed says whether a span is a sum of waits.
func (t *Trace) summed(s *Span) bool {
	name := t.Sites[s.Site].Name
	return t.kind(s) == Wait && (name == ChunkWaits || name == StageWaits || name == FlightWait)
}

// sums are a track's sums of waits, by the index of their span. A sum's waits lie behind
// everything that ended before, and within its phase.
func (t *Trace) sums(tr *Track) map[int]sum {
	all := map[int]sum{}
	floors, since, next := t.phaseBegins(tr), 0.0, 0 // next: the number of the next chunk
	for i := range tr.Spans {
		s := &tr.Spans[i]
		switch name := t.Sites[s.Site].Name; {
		case t.kind(s) != Wait:
		case name == FlightWait: // noted together with the sum behind it, if that follows
			all[i] = sum{chunks: 1, within: s.Begin, end: s.End}
			continue
		case name == ChunkWaits || name == StageWaits:
			all[i] = sum{chunks: int(s.Detail) + 1 - next, within: min(s.Begin, max(since, floors[i])), end: s.End}
			next = max(next, int(s.Detail)+1)
			t.together(tr, i, all)
		case chunkWait(name) || stageWait(name):
			next = max(next+1, int(s.Detail)+1)
		}
		since = max(since, s.End)
	}
	return all
}

// together makes a sum of waits for copies of the same chunks as the sum behind it.
func (t *Trace) together(tr *Track, i int, all map[int]sum) {
	if i == 0 {
		return
	}
	s, before := &tr.Spans[i], &tr.Spans[i-1]
	if t.kind(before) == Wait && t.Sites[before.Site].Name == FlightWait && before.Detail == s.Detail {
		of := all[i]
		of.within, of.behind = min(of.within, before.Begin), s.End-s.Begin
		all[i-1] = of
		of.behind = 0
		all[i] = of
	}
}

// phaseBegins are, for every span of a track, when the phase began that it lies in, 0
// outside of phases.
func (t *Trace) phaseBegins(tr *Track) []float64 {
	begins := make([]float64, len(tr.Spans))
	for _, r := range t.runs(tr) {
		for i := r.first; i < r.phase; i++ {
			begins[i] = r.begin
		}
	}
	return begins
}

// places returns where in time the waits of span i of a track lie. It is the span, or, of
// a sum, even shares: one for each of its chunks, evenly over the time that they took.
func (t *Trace) places(tr *Track) func(i int) []interval {
	all := t.sums(tr)
	return func(i int) []interval {
		s := &tr.Spans[i]
		of := all[i]
		if of.chunks < 2 {
			return []interval{{s.Begin, s.End}}
		}
		var list []interval
		n := float64(of.chunks)
		each, wait := (of.end-of.within)/n, (s.End-s.Begin)/n
		for c := range of.chunks {
			end := of.within + each*float64(c+1) - of.behind/n
			list = append(list, interval{end - wait, end})
		}
		return list
	}
}
