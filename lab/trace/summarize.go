package trace

import (
	"cmp"
	"slices"
)

// Summarize aggregates a trace that passes Check; see Summary for what counts.
func (t *Trace) Summarize() *Summary { return t.tally().summary() }

// whole are the steps all SMs have all of, in order.
func (y *tally) whole() (steps []int) {
	for step, g := range y.steps {
		if g.end <= y.until && len(g.times) == len(y.tracks) {
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	return steps
}

// cold is the step to leave out, -1 for none.
func (y *tally) cold() int {
	if whole := y.whole(); len(whole) > 2 {
		return whole[0]
	}
	return -1
}

func (y *tally) summary() *Summary {
	t := y.t
	s := &Summary{Model: t.Model, Device: t.Device, Unit: t.Unit, SMs: len(y.tracks), Layers: t.Layers,
		Seen: len(y.steps), Cold: y.cold(), Dropped: t.Dropped(), Until: y.until, Apart: t.Apart}
	for _, tr := range y.tracks {
		if t.of(tr.SM, Producer) != nil {
			s.Producers++
		}
	}
	var total Parts
	for _, step := range y.whole() {
		if step != s.Cold {
			s.Steps++
			total.add(y.steps[step].sum)
		}
	}
	s.Step = total.over(s.Steps * s.SMs)
	s.Layer, s.LayerRuns = y.layer(s.Cold)
	s.Phases = y.phaseSummaries(s.Cold)
	s.Syncs = y.syncSummaries(s.Cold)
	s.Tasks = y.taskSummaries(s.Cold)
	return s
}

// counts says whether a phase's run does.
func (y *tally) counts(k runKey, g *group, cold int) bool { return k.step != cold && g.end <= y.until }

// layer is the mean over the layers that count, and their number.
func (y *tally) layer(cold int) (Parts, int) {
	var total Parts
	n, runs := 0, 0
	for _, k := range sorted(y.layers) {
		if g := y.layers[k]; k.step != cold && g.end <= y.until && len(g.times) == len(y.tracks) {
			total.add(g.sum)
			n, runs = n+len(g.times), runs+1
		}
	}
	return total.over(n), runs
}

// sorted are the keys of runs, in order of step, layer and name: sums of floating
// point come out the same every time.
func sorted[G any](groups map[runKey]G) []runKey {
	keys := make([]runKey, 0, len(groups))
	for k := range groups {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b runKey) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.layer, b.layer), cmp.Compare(a.name, b.name))
	})
	return keys
}

// phaseSummaries are the phases in order of their first begin.
func (y *tally) phaseSummaries(cold int) []PhaseSummary {
	type sums struct {
		first float64
		PhaseSummary
		n           int
		median, max float64
	}
	var all []*sums
	byName := map[string]*sums{}
	for _, k := range sorted(y.phases) {
		g := y.phases[k]
		if !y.counts(k, g, cold) {
			continue
		}
		p := byName[k.name]
		if p == nil {
			p = &sums{first: g.begin, PhaseSummary: PhaseSummary{Name: k.name, InLayer: y.t.inLayer(k.layer)}}
			byName[k.name], all = p, append(all, p)
		}
		p.first = min(p.first, g.begin)
		p.Parts.add(g.sum)
		p.n += len(g.times)
		p.Runs++
		p.median += median(g.times)
		p.max += slices.Max(g.times)
	}
	slices.SortStableFunc(all, func(a, b *sums) int { return cmp.Compare(a.first, b.first) })
	var out []PhaseSummary
	for _, p := range all {
		p.Parts = p.Parts.over(p.n)
		p.Median, p.Max = p.median/float64(p.Runs), p.max/float64(p.Runs)
		out = append(out, p.PhaseSummary)
	}
	return out
}
