package trace

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"
)

// minAligned is how many syncs all SMs must have before their clocks are put together,
// and alignedAtOnce of how many at least a median is taken, where there are as many.
const (
	minAligned    = 8
	alignedAtOnce = 32
)

// Align puts the clocks of the SMs together. What Decode makes of two readings of a timer
// with coarse steps may be off by one, and between them clocks of SMs need not go equally
// fast. A sync releases all SMs at nearly the same time, so an SM's clock is taken to be
// ahead by the median, over alignedAtOnce syncs or somewhat more that all SMs have, of
// its release less the median release: in their middle, before the first of such groups and
// behind the last one, and between two of them by what lies between. Differences between releases that an SM
// always has, of some tenths of a microsecond, go with it.
// Apart says how far clocks stood apart at most. With fewer syncs than minAligned nothing
// is done. It is not for traces of the executor, whose SMs have one clock.
func (t *Trace) Align() {
	clocks := t.clocksAhead()
	if clocks == nil {
		return
	}
	most := math.Inf(-1)
	for _, c := range clocks {
		most = max(most, slices.Max(c.ahead))
	}
	for g := range clocks[t.Tracks[0].SM].ahead {
		first, last := math.Inf(1), math.Inf(-1)
		for _, c := range clocks {
			first, last = min(first, c.ahead[g]), max(last, c.ahead[g])
		}
		t.Apart = max(t.Apart, last-first)
	}
	for i := range t.Tracks {
		tr := &t.Tracks[i]
		c := clocks[tr.SM]
		for n := range tr.Spans {
			s := &tr.Spans[n]
			// Nothing moves to an earlier time, which might lie before the launch's begin.
			s.Begin, s.End = s.Begin+most-c.at(s.Begin), s.End+most-c.at(s.End)
		}
	}
}

// clock is how far an SM's is ahead, at some of its times.
type clock struct{ times, ahead []float64 }

// at is how far it is ahead at a time of its own.
func (c *clock) at(time float64) float64 {
	n := sort.SearchFloat64s(c.times, time)
	if n == 0 || n == len(c.times) {
		return c.ahead[min(n, len(c.ahead)-1)]
	}
	share := (time - c.times[n-1]) / (c.times[n] - c.times[n-1])
	return c.ahead[n-1] + share*(c.ahead[n]-c.ahead[n-1])
}

// released is when SMs were released from a sync, by their clocks.
type released struct {
	ends   map[int]float64 // by SM
	middle float64
}

// clocksAhead are the SMs' clocks, nil where they are not known.
func (t *Trace) clocksAhead() map[int]*clock {
	all, clocks := t.releases(), map[int]*clock{}
	if len(all) < minAligned {
		return nil
	}
	groups := max(1, len(all)/alignedAtOnce)
	for g := range groups {
		of := all[g*len(all)/groups : (g+1)*len(all)/groups]
		times, ahead := map[int][]float64{}, map[int][]float64{}
		for _, r := range of {
			for sm, end := range r.ends {
				times[sm], ahead[sm] = append(times[sm], end), append(ahead[sm], end-r.middle)
			}
		}
		for sm := range ahead {
			if clocks[sm] == nil {
				clocks[sm] = &clock{}
			}
			clocks[sm].times = append(clocks[sm].times, median(times[sm]))
			clocks[sm].ahead = append(clocks[sm].ahead, median(ahead[sm]))
		}
	}
	for _, tr := range t.role(Producer) {
		if clocks[tr.SM] == nil {
			return nil
		}
	}
	return clocks
}

// releases are those from the syncs that all SMs have, in order.
func (t *Trace) releases() (all []released) {
	type run struct{ site, step, layer int }
	runs, tracks := map[run]map[int]float64{}, t.role(Consumers)
	for _, tr := range tracks {
		for i := range tr.Spans {
			s := &tr.Spans[i]
			if t.kind(s) != Sync {
				continue
			}
			r := run{s.Site, s.Step, s.Layer}
			if runs[r] == nil {
				runs[r] = map[int]float64{}
			}
			runs[r][tr.SM] = s.End
		}
	}
	for _, ends := range runs {
		if len(ends) == len(tracks) {
			all = append(all, released{ends, median(slices.Collect(maps.Values(ends)))})
		}
	}
	slices.SortFunc(all, func(a, b released) int { return cmp.Compare(a.middle, b.middle) })
	return all
}

// certain is by how many nanoseconds a release may come before the last arrival without a
// word: the SMs' warps that note do not read their clocks at one instant.
const certain = 200

// contradiction is how much earlier than the last arrival the first release from the
// sync that is worst in it comes, as a mean, and which that is: 0 where none does.
func (s *Summary) contradiction() (by float64, syncWay string) {
	for i := range s.Syncs {
		if h := &s.Syncs[i]; -h.Latency > by {
			by, syncWay = -h.Latency, h.Name
		}
	}
	return by, syncWay
}
