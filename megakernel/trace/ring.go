package trace

import "slices"

// fillEvent is a change of how many chunks are in an SM's ring.
type fillEvent struct {
	at     float64
	chunks int // from at on
}

// ringFill is how many chunks are in an SM's ring over time: a chunk is from the
// issue of its copy (the end of the producer's StageWait) until its draining begins
// (the end of the consumers' ChunkWait), be it filled or in flight. The warp that notes may leave chunks to others: a ChunkWait's Detail is the
// chunk's number in the launch, and counts where it is more than the waits so far. It ends where
// the first of the two tracks that dropped spans does. It is nil where it cannot be
// told: without a track or without waits of a kind, or when more chunks are drained
// than were issued, since then not every chunk has its spans.
func (t *Trace) ringFill(consumers, producer *Track) []fillEvent {
	if consumers == nil || producer == nil {
		return nil
	}
	issued, _ := t.ends(producer, StageWait)
	drained, numbers := t.ends(consumers, ChunkWait)
	if len(issued) == 0 || len(drained) == 0 {
		return nil
	}
	for _, tr := range []*Track{consumers, producer} {
		if tr.Dropped > 0 {
			issued, drained = until(issued, tr.end()), until(drained, tr.end())
		}
	}
	events := make([]fillEvent, 0, len(issued)+len(drained))
	gone := 0 // chunks whose draining has begun
	for i, d := 0, 0; i < len(issued) || d < len(drained); {
		var at float64
		if d == len(drained) || i < len(issued) && issued[i] <= drained[d] {
			at, i = issued[i], i+1
		} else {
			at, gone, d = drained[d], max(d, numbers[d])+1, d+1
		}
		if gone > i {
			return nil
		}
		if n := len(events); n > 0 && events[n-1].at == at {
			events[n-1].chunks = i - gone
		} else {
			events = append(events, fillEvent{at, i - gone})
		}
	}
	return events
}

// ends are the ends of a track's waits of a name, ascending, and their details.
func (t *Trace) ends(tr *Track, name string) (all []float64, details []int) {
	for i := range tr.Spans {
		if s := &tr.Spans[i]; t.Sites[s.Site].Name == name && t.kind(s) == Wait {
			all, details = append(all, s.End), append(details, int(s.Detail))
		}
	}
	return all, details
}

// until are the values of ascending v that are at most end.
func until(v []float64, end float64) []float64 {
	n, found := slices.BinarySearch(v, end)
	for found && n < len(v) && v[n] == end {
		n++
	}
	return v[:n]
}
