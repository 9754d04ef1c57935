package trace

import (
	"cmp"
	"math"
	"slices"
)

// syncRun is one run of a sync: every SM's arrival and release.
type syncRun struct {
	after             string
	sms               []int
	arrived, released []float64
}

// addSyncs adds the syncs in and behind a phase.
func (y *tally) addSyncs(tr *Track, r run) {
	for i := r.first; i < r.last; i++ {
		s := &tr.Spans[i]
		if y.t.kind(s) != Sync {
			continue
		}
		k := y.t.key(s)
		m := y.syncs[k]
		if m == nil {
			m = &syncRun{after: y.t.Sites[tr.Spans[r.phase].Site].Name}
			y.syncs[k] = m
		}
		m.sms, m.arrived, m.released = append(m.sms, tr.SM), append(m.arrived, s.Begin), append(m.released, s.End)
	}
}

// syncSummaries are the syncs that all SMs have, in order of their first
// arrival.
func (y *tally) syncSummaries(cold int) []SyncSummary {
	type sums struct {
		first float64
		late  map[int]int
		SyncSummary
	}
	var all []*sums
	byName := map[string]*sums{}
	for _, k := range sorted(y.syncs) {
		m := y.syncs[k]
		if k.step == cold || len(m.sms) < len(y.tracks) || slices.Max(m.released) > y.until {
			continue
		}
		h := byName[k.name]
		if h == nil {
			h = &sums{first: math.Inf(1), late: map[int]int{}, SyncSummary: SyncSummary{Name: k.name, After: m.after}}
			byName[k.name], all = h, append(all, h)
		}
		h.first = min(h.first, slices.Min(m.arrived))
		h.add(m, h.late)
	}
	slices.SortStableFunc(all, func(a, b *sums) int { return cmp.Compare(a.first, b.first) })
	var out []SyncSummary
	for _, h := range all {
		h.close(h.late)
		out = append(out, h.SyncSummary)
	}
	return out
}

// add adds a run to the sums, and counts who was late.
func (h *SyncSummary) add(m *syncRun, late map[int]int) {
	first, last := slices.Min(m.arrived), slices.Max(m.arrived)
	release := slices.Min(m.released)
	h.Runs++
	h.Wait += mean(m.released) - mean(m.arrived)
	h.Skew += last - mean(m.arrived)
	h.Range += last - first
	h.Latency += release - last
	h.Spread += slices.Max(m.released) - release
	for i, at := range m.arrived {
		h.early = append(h.early, last-at)
		if at == last && first < last {
			late[m.sms[i]]++
		}
	}
}

// close turns sums into means and finds the SM that was late most often.
func (h *SyncSummary) close(late map[int]int) {
	n := float64(h.Runs)
	h.Wait, h.Skew, h.Range, h.Latency, h.Spread = h.Wait/n, h.Skew/n, h.Range/n, h.Latency/n, h.Spread/n
	h.LateSM = -1
	for sm, times := range late {
		if times > h.Late || times == h.Late && sm < h.LateSM {
			h.LateSM, h.Late = sm, times
		}
	}
}
