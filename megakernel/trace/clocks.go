package trace

import "math"

// minAligned is how many hand-offs all SMs must have before their clocks are put together.
const minAligned = 8

// Align puts the clocks of the SMs together. What Decode makes of two readings of a timer
// with coarse steps may be off by one, for all of an SM's spans alike. A hand-off releases
// all SMs at nearly the same time, so an SM's clock is taken to be off by the median, over
// the hand-offs that all SMs have, of its release less the median release. Differences
// between releases that an SM always has, of some tenths of a microsecond, go with it.
// Apart says how far clocks stood apart. With fewer hand-offs than minAligned nothing is
// done. It is not for traces of the executor, whose SMs have one clock.
func (t *Trace) Align() {
	off := t.clocksOff()
	if off == nil {
		return
	}
	least, most := math.Inf(1), math.Inf(-1)
	for _, d := range off {
		least, most = min(least, d), max(most, d)
	}
	t.Apart = most - least
	for i := range t.Tracks {
		tr := &t.Tracks[i]
		// Not before the launch's begin: the SM whose clock was most ahead stays.
		by := most - off[tr.SM]
		for n := range tr.Spans {
			tr.Spans[n].Begin += by
			tr.Spans[n].End += by
		}
	}
}

// clocksOff is how far each SM's clock is ahead, nil where that is not known.
func (t *Trace) clocksOff() map[int]float64 {
	type run struct{ site, step, layer int }
	released := map[run]map[int]float64{}
	tracks := t.role(Consumers)
	for _, tr := range tracks {
		for i := range tr.Spans {
			s := &tr.Spans[i]
			if t.kind(s) != Handoff {
				continue
			}
			r := run{s.Site, s.Step, s.Layer}
			if released[r] == nil {
				released[r] = map[int]float64{}
			}
			released[r][tr.SM] = s.End
		}
	}
	off, whole := map[int][]float64{}, 0
	for _, ends := range released {
		if len(ends) < len(tracks) {
			continue
		}
		whole++
		var all []float64
		for _, end := range ends {
			all = append(all, end)
		}
		middle := median(all)
		for sm, end := range ends {
			off[sm] = append(off[sm], end-middle)
		}
	}
	if whole < minAligned {
		return nil
	}
	clocks := map[int]float64{}
	for sm, d := range off {
		clocks[sm] = median(d)
	}
	for _, tr := range t.role(Producer) {
		if _, ok := clocks[tr.SM]; !ok {
			return nil
		}
	}
	return clocks
}

// certain is by how many nanoseconds a release may come before the last arrival without a
// word: the SMs' warps that note do not read their clocks at one instant.
const certain = 200

// contradiction is how much earlier than the last arrival the first release from the
// hand-off that is worst in it comes, as a mean, and which that is: 0 where none does.
func (s *Summary) contradiction() (by float64, handoff string) {
	for i := range s.Handoffs {
		if h := &s.Handoffs[i]; -h.Latency > by {
			by, handoff = -h.Latency, h.Name
		}
	}
	return by, handoff
}
