package trace

import "math"

// tally is all of a trace that the figures are made of.
type tally struct {
	t      *Trace
	tracks []*Track // the consumers'
	until  float64
	steps  map[int]*group
	phases map[runKey]*group
	layers map[runKey]*group // name is ""
	syncs  map[runKey]*syncRun
	tasks  map[runKey]map[string]*taskSum // of a phase's run, by name
}

// group is one run over SMs.
type group struct {
	begin, end float64 // the earliest and the latest
	times      []float64
	sum        Parts
	layer      int
}

func (t *Trace) tally() *tally {
	y := &tally{t: t, tracks: t.role(Consumers), until: t.Whole(), steps: map[int]*group{}, phases: map[runKey]*group{},
		layers: map[runKey]*group{}, syncs: map[runKey]*syncRun{}, tasks: map[runKey]map[string]*taskSum{}}
	for _, tr := range y.tracks {
		p := t.producerOf(t.of(tr.SM, Producer))
		y.addSteps(tr, p)
		y.addRuns(tr, p)
	}
	return y
}

// into adds one SM's parts to a run.
func into[K comparable](groups map[K]*group, k K, layer int, begin, end float64, p Parts) {
	g := groups[k]
	if g == nil {
		g = &group{begin: begin, end: end, layer: layer}
		groups[k] = g
	}
	g.begin, g.end = min(g.begin, begin), max(g.end, end)
	g.times = append(g.times, p.Time)
	g.sum.add(p)
}

// ownStep is a step or a layer on one SM.
type ownStep struct {
	begin, end float64
	whole      float64 // end, or +Inf if more may have followed that did not fit
	parts      Parts
}

// addSteps adds a track's steps.
func (y *tally) addSteps(tr *Track, p *producer) {
	steps, meanwhile := map[int]*ownStep{}, y.t.meanwhile(tr)
	for i := range tr.Spans {
		s := &tr.Spans[i]
		o := steps[s.Step]
		if o == nil {
			o = &ownStep{begin: s.Begin}
			steps[s.Step] = o
		}
		o.begin, o.end = min(o.begin, s.Begin), s.End
		if !meanwhile[i] {
			o.parts.wait(y.t, s)
		}
	}
	for step, o := range steps {
		o.whole = o.end
		if tr.Dropped > 0 && o.end == tr.end() {
			o.whole = math.Inf(1)
		}
		o.parts.Time = o.end - o.begin
		o.parts.close(p, o.begin, o.end)
		into(y.steps, step, 0, o.begin, o.whole, o.parts)
	}
}

// addRuns adds a track's phases, and what is in them, and its layers. The sync
// behind the last run of a track that dropped spans may be among those.
func (y *tally) addRuns(tr *Track, p *producer) {
	t := y.t
	layers := map[runKey]*ownStep{}
	for _, r := range t.runs(tr) {
		s := &tr.Spans[r.phase]
		parts, end := t.parts(tr, r, p), r.end
		if tr.Dropped > 0 && r.last == len(tr.Spans) && !r.handed {
			end = math.Inf(1)
		}
		into(y.phases, t.key(s), s.Layer, r.begin, end, parts)
		y.addTasks(tr, r)
		y.addSyncs(tr, r)
		if !t.inLayer(s.Layer) {
			continue
		}
		k := runKey{"", s.Step, s.Layer}
		if layers[k] == nil {
			layers[k] = &ownStep{begin: r.begin}
		}
		o := layers[k]
		o.end, o.whole = r.end, end
		o.parts.add(parts)
	}
	for k, o := range layers {
		o.parts.Time = o.end - o.begin
		o.parts.close(p, o.begin, o.end)
		into(y.layers, k, k.layer, o.begin, o.whole, o.parts)
	}
}

// inLayer says whether a span's layer is one, not before or behind the layers.
func (t *Trace) inLayer(layer int) bool { return layer >= 0 && layer < t.Layers }
