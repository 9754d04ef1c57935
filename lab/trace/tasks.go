package trace

import (
	"cmp"
	"slices"
)

// taskSum is a task of one name in one run of a phase, over all SMs.
type taskSum struct {
	first       float64
	n           int
	time, waits float64
}

// addTasks adds the tasks of one SM's run of a phase. What a task within a task
// waits counts for both.
func (y *tally) addTasks(tr *Track, r run) {
	k := y.t.key(&tr.Spans[r.phase])
	for i := r.first; i < r.phase; i++ {
		s := &tr.Spans[i]
		if !y.t.task(s) {
			continue
		}
		if y.tasks[k] == nil {
			y.tasks[k] = map[string]*taskSum{}
		}
		name := y.t.Sites[s.Site].Name
		sum := y.tasks[k][name]
		if sum == nil {
			sum = &taskSum{first: s.Begin}
			y.tasks[k][name] = sum
		}
		sum.first, sum.n, sum.time = min(sum.first, s.Begin), sum.n+1, sum.time+s.End-s.Begin
		if y.t.kind(s) == Wait {
			sum.waits += s.End - s.Begin
			continue
		}
		sum.waits += y.waitsIn(tr, r.first, i)
	}
}

// task says whether a span is a part of a phase: a task, or a wait that is not the ring's.
func (t *Trace) task(s *Span) bool {
	name := t.Sites[s.Site].Name
	return t.kind(s) == Task || t.kind(s) == Wait && !ringWait(name)
}

// waitsIn is the time of the waits and syncs within span i, from span first on.
func (y *tally) waitsIn(tr *Track, first, i int) (sum float64) {
	for j := i - 1; j >= first && tr.Spans[j].Begin >= tr.Spans[i].Begin; j-- {
		if k := y.t.kind(&tr.Spans[j]); k == Wait || k == Sync {
			sum += tr.Spans[j].End - tr.Spans[j].Begin
		}
	}
	return sum
}

// taskSummaries are the tasks in the runs that count, in order of their first begin.
func (y *tally) taskSummaries(cold int) []TaskSummary {
	type key struct{ phase, name string }
	sums, runs := map[key]*taskSum{}, map[string]int{}
	for _, k := range sorted(y.phases) {
		g := y.phases[k]
		if !y.counts(k, g, cold) {
			continue
		}
		runs[k.name] += len(g.times)
		for name, in := range y.tasks[k] {
			to := sums[key{k.name, name}]
			if to == nil {
				to = &taskSum{first: in.first}
				sums[key{k.name, name}] = to
			}
			to.first, to.n, to.time, to.waits = min(to.first, in.first), to.n+in.n, to.time+in.time, to.waits+in.waits
		}
	}
	keys := make([]key, 0, len(sums))
	for k := range sums {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(sums[a].first, sums[b].first), cmp.Compare(a.phase, b.phase), cmp.Compare(a.name, b.name))
	})
	var out []TaskSummary
	for _, k := range keys {
		n := float64(sums[k].n)
		out = append(out, TaskSummary{k.phase, k.name, n / float64(runs[k.phase]), sums[k].time / n, sums[k].waits / n})
	}
	return out
}
