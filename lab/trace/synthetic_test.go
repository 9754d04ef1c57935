package trace

// synthetic is a launch whose figures follow from these numbers (in ns): SM i runs
// the phases of a layer one behind the other; phase j stages its input vector
// (staging), then for each chunk waits (wait; four times that in step 0) and drains
// it (drain + 10·j), is late by late·i (late·(SMs−1−i) in attention), arrives, and is
// released barrier + release·i behind the last arrival.
type synthetic struct {
	sms, layers, steps, chunks          int
	staging, wait, drain, late, barrier float64
	release                             float64
	ahead                               int // chunks the producer issues before it waits for stages
	noProducer                          bool
}

func small() synthetic {
	return synthetic{sms: 4, layers: 3, steps: 3, chunks: 3, staging: 100, wait: 50, drain: 200, late: 20, barrier: 900,
		release: 2, ahead: 4}
}

var layerPhases = []string{"qkv", "attention", "merge", "o", "gate_up", "down"}

// The synthetic trace's sites: for phase j of layerPhases and lm_head behind them,
// 3j, 3j+1, 3j+2; then these.
const (
	chunkSite  = 3 * 7
	stageSite  = chunkSite + 1
	flightSite = chunkSite + 2
)

func syntheticSites() (sites []Site) {
	for _, p := range append(layerPhases[:6:6], "lm_head") {
		sites = append(sites, Site{Phase, p, Consumers, p}, Site{Sync, "sync after " + p, Consumers, ""},
			Site{Task, "input vector", Consumers, p})
	}
	return append(sites, Site{Wait, ChunkWait, Consumers, ""}, Site{Wait, StageWait, Producer, ""},
		Site{Wait, FlightWait, Producer, ""})
}

// own is the time from a phase's begin to its SM's arrival.
func (y synthetic) own(step, j, sm int) float64 {
	wait := y.wait
	if step == 0 {
		wait *= 4
	}
	late := sm
	if j == 1 {
		late = y.sms - 1 - sm
	}
	return y.staging + float64(y.chunks)*(wait+y.drain+10*float64(j)) + y.late*float64(late)
}

// trace makes it.
func (y synthetic) trace() *Trace {
	t := &Trace{Model: "tiny", Device: "none", Unit: Nanoseconds, Sites: syntheticSites(), Layers: y.layers}
	consumers, at := make([]Track, y.sms), make([]float64, y.sms)
	for sm := range consumers {
		consumers[sm] = Track{SM: sm, Role: Consumers}
	}
	phase := func(step, layer, j int) {
		last := 0.0
		for sm := range at {
			last = max(last, at[sm]+y.own(step, j, sm))
		}
		for sm := range at {
			y.phase(&consumers[sm], step, layer, j, at[sm])
			arrival := at[sm] + y.own(step, j, sm)
			at[sm] = last + y.barrier + y.release*float64(sm)
			consumers[sm].Spans = append(consumers[sm].Spans, Span{arrival, at[sm], 3*j + 1, step, layer, 0})
		}
	}
	for step := range y.steps {
		for layer := range y.layers {
			for j := range layerPhases {
				phase(step, layer, j)
			}
		}
		phase(step, y.layers, 6)
	}
	for sm := range consumers {
		t.Tracks = append(t.Tracks, consumers[sm])
		if !y.noProducer {
			t.Tracks = append(t.Tracks, y.producer(&consumers[sm]))
		}
	}
	return t
}

// phase appends one phase's spans, without the sync behind it.
func (y synthetic) phase(tr *Track, step, layer, j int, begin float64) {
	at := begin + y.staging
	tr.Spans = append(tr.Spans, Span{begin, at, 3*j + 2, step, layer, 0})
	wait := y.wait
	if step == 0 {
		wait *= 4
	}
	for c := range y.chunks {
		tr.Spans = append(tr.Spans, Span{at, at + wait, chunkSite, step, layer, uint32(c)})
		at += wait + y.drain + 10*float64(j)
	}
	tr.Spans = append(tr.Spans, Span{begin, begin + y.own(step, j, tr.SM), 3 * j, step, layer, 0})
}

// producer issues the first chunks every 10 ns, each of the others 40 ns behind the
// begin of draining of that as many before it. From 5 to 20 ns behind an issue it
// waits for copies in flight if there is time, then for a free stage.
func (y synthetic) producer(consumers *Track) Track {
	tr := Track{SM: consumers.SM, Role: Producer}
	var drained []Span
	for _, s := range consumers.Spans {
		if s.Site == chunkSite {
			drained = append(drained, s)
		}
	}
	at := 0.0
	for n, s := range drained {
		issue := at + 10
		if n >= y.ahead {
			issue = max(issue, drained[n-y.ahead].End+40)
		}
		stage := max(at+5, min(at+20, issue-5))
		if stage > at+5 {
			tr.Spans = append(tr.Spans, Span{at + 5, stage, flightSite, s.Step, s.Layer, 0})
		}
		tr.Spans = append(tr.Spans, Span{stage, issue, stageSite, s.Step, s.Layer, 0})
		at = issue
	}
	return tr
}
