package trace

// fillEvent is a change of how many chunks are in an SM's ring.
type fillEvent struct {
	at     float64
	chunks int // from at on
}

// ringFill is how many chunks are in an SM's ring over time: a chunk is from the
// issue of its copy (the end of the producer's StageWait) until its draining begins
// (the end of the consumers' ChunkWait), be it filled or in flight. Where waits are noted
// as a sum, or chunks are left to other warps, it is known how many have gone by at the
// end of a span; in between they are taken to go by evenly. It ends where
// the first of the two tracks that dropped spans does. It is nil where it cannot be
// told: without a track or without waits of a kind, or when a chunk is drained
// before it was issued, since then not every chunk has its spans.
func (t *Trace) ringFill(consumers, producer *Track) []fillEvent {
	if consumers == nil || producer == nil {
		return nil
	}
	issued, drained := t.passings(producer, stageWait), t.passings(consumers, chunkWait)
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
// where a span tells.
type passing struct{ at, early, late float64 }

// passings are the chunks of a track's waits of which's names, in order. A wait's
// Detail is the number of the last chunk that has gone by, and counts where it is more
// than the waits so far; of a sum it always does.
func (t *Trace) passings(tr *Track, which func(name string) bool) (all []passing) {
	floors, since := t.phaseBegins(tr), 0.0
	for i := range tr.Spans {
		s := &tr.Spans[i]
		name := t.Sites[s.Site].Name
		if t.kind(s) == Wait && which(name) {
			n := int(s.Detail) + 1 - len(all)
			if !t.summed(s) {
				n = max(n, 1)
			}
			begin := min(s.End, max(since, floors[i]))
			for c := range n {
				all = append(all, passing{begin + (s.End-begin)*float64(c+1)/float64(n), begin, s.End})
			}
			if n > 0 {
				all[len(all)-1] = passing{s.End, s.End, s.End}
			}
		}
		if name != FlightWait {
			since = max(since, s.End)
		}
	}
	return all
}

// until are those of ascending passings that are at end at the latest.
func until(all []passing, end float64) []passing {
	n := 0
	for n < len(all) && all[n].at <= end {
		n++
	}
	return all[:n]
}
