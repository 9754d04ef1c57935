package trace

import (
	"fmt"

	"github.com/mkgen/mkgen/internal/picture"
)

// What a producer does.
const (
	copying = iota
	inFlight
	ringFull
	elsewhere
)

// producerStates are its colours and their meaning, by state.
var producerStates = []picture.Entry{
	{Colours: []picture.RGB{copyingColour}, Label: "issues copies"},
	{Colours: []picture.RGB{inFlightColour}, Label: "waits for copies in flight (memory is busy)"},
	{Colours: []picture.RGB{ringFullColour}, Label: "waits for a free stage (the ring is full)"},
	{Colours: []picture.RGB{elseColour}, Label: "other waits"},
}

// producerState is what a producer does during a span, copying unless it waits.
func (t *Trace) producerState(s *Span) int {
	switch site := &t.Sites[s.Site]; {
	case site.Kind == Sync:
		return elsewhere
	case site.Kind != Wait:
		return copying
	case site.Name == StageWait:
		return ringFull
	case site.Name == FlightWait:
		return inFlight
	}
	return elsewhere
}

// producerRow draws one SM's producer in the window: copying where it does not wait,
// from its first span to its last.
func (p *plot) producerRow(tr *Track) {
	if len(tr.Spans) == 0 {
		return
	}
	begin := tr.Spans[0].Begin
	lines, times := make([]strokes, len(producerStates)), make([]float64, len(producerStates))
	for i := range lines {
		lines[i].x = p.x
	}
	for i := range tr.Spans {
		s := &tr.Spans[i]
		begin = min(begin, s.Begin)
		state := p.t.producerState(s)
		if state == copying {
			continue
		}
		lines[state].add(s.Begin, s.End, p.w)
		times[state] += max(0, min(s.End, p.w.end)-max(s.Begin, p.w.begin))
	}
	lines[copying].add(begin, tr.end(), p.w)
	times[copying] = max(0, min(tr.end(), p.w.end)-max(begin,
		p.w.begin)) - times[inFlight] - times[ringFull] - times[elsewhere]
	n := func(state int) string { return number(p.t.Unit, times[state]) }
	tip := fmt.Sprintf("SM %d, producer: issues copies %s, waits for copies in flight %s, ring full %s", tr.SM, n(copying),
		n(inFlight), n(ringFull))
	if times[elsewhere] > 0 {
		tip += ", other waits " + n(elsewhere)
	}
	p.c.Tipped(tip + " (" + unitName(p.t.Unit) + ")")
	for state := range lines {
		lines[state].draw(p.c, producerStates[state].Colours[0])
	}
	p.c.Gend()
}

// unitName is what a reader's times are in.
func unitName(unit string) string {
	_, name := scale(unit)
	return name
}

// producerLegend leaves out other waits where there are none in the window.
func (p *plot) producerLegend(tracks []*Track) []picture.Entry {
	for _, tr := range tracks {
		for i := range tr.Spans {
			if s := &tr.Spans[i]; s.End > p.w.begin && s.Begin < p.w.end && p.t.producerState(s) == elsewhere {
				return producerStates
			}
		}
	}
	return producerStates[:elsewhere]
}
