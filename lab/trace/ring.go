package trace

// fillEvent is a change of how many chunks are in an SM's ring.
type fillEvent struct {
	at     float64
	chunks int // from at on
}

// ringFill is how many chunks are in an SM's ring over time: a chunk is from the
// issue of its copy (the end of the producer's waits for it) until its draining begins
// (the end of the consumers' ChunkWait), be it filled or in flight. Chunks that are left to
// other warps are taken to go by evenly until the next that is told. It ends where
// the first of the two tracks that dropped spans does. It is nil where it cannot be
// told: without a track or without waits of a kind, or when a chunk is drained
// before it was issued, since then not every chunk has its spans.
func (t *Trace) ringFill(consumers, producer *Track) []fillEvent {
	if consumers == nil || producer == nil {
		return nil
	}
	issued, drained := t.passings(producer, StageWait), t.passings(consumers, ChunkWait)
	if len(issued) == 0 || len(drained) == 0 {
		return nil
	}
	for _, tr := range []*Track{consumers, producer} {
		if tr.Dropped > 0 {
			issued, drained = until(issued, tr.end()), until(drained, tr.end())
		}
	}
	events := make([]fillEvent, 0, len(issued)+len(drained))
	for i, d := 0, 0; i < len(issued) || d < len(drained); {
		var at float64
		if d == len(drained) || i < len(issued) && issued[i].at <= drained[d].at {
			at, i = issued[i].at, i+1
		} else {
			if d >= len(issued) || issued[d].early > drained[d].late {
				return nil
			}
			at, d = drained[d].at, d+1
		}
		chunks := max(0, i-d)
		if n := len(events); n > 0 && events[n-1].at == at {
			events[n-1].chunks = chunks
		} else {
			events = append(events, fillEvent{at, chunks})
		}
	}
	return events
}

// passing is when a chunk went by: at some time from early to late, which are the same
// where a span tells, as of all but those that other warps take.
type passing struct{ at, early, late float64 }

// passings are the chunks of a track's waits of a name, in order. A wait's Detail is the
// number of its chunk, and counts where it is more than the waits so far. A wait for copies
// in flight that follows that for a stage at once is of the same chunk.
func (t *Trace) passings(tr *Track, wait string) (all []passing) {
	floors, since := t.phaseBegins(tr), 0.0
	for i := range tr.Spans {
		s := &tr.Spans[i]
		switch name := t.Sites[s.Site].Name; {
		case t.kind(s) != Wait:
		case name == wait:
			n := max(1, int(s.Detail)+1-len(all))
			begin := min(s.End, max(since, floors[i]))
			for c := range n {
				all = append(all, passing{begin + (s.End-begin)*float64(c+1)/float64(n), begin, s.End})
			}
			all[len(all)-1] = passing{s.End, s.End, s.End}
		case name == FlightWait && len(all) > 0 && all[len(all)-1].at == s.Begin:
			all[len(all)-1] = passing{s.End, s.End, s.End}
		}
		since = max(since, s.End)
	}
	return all
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

// until are those of ascending passings that are at end at the latest.
func until(all []passing, end float64) []passing {
	n := 0
	for n < len(all) && all[n].at <= end {
		n++
	}
	return all[:n]
}
