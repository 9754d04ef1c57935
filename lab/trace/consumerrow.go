package trace

import (
	"fmt"
	"math"

	"github.com/mkgen/mkgen/internal/picture"
)

// consumerRow draws one SM's phases in the window: work in the phase's colour, waits
// for chunks in it lightened, syncs in grey, waits for words in dark.
func (p *plot) consumerRow(tr *Track) {
	for _, r := range p.t.runs(tr) {
		if r.end <= p.w.begin || r.begin >= p.w.end {
			continue
		}
		s := &tr.Spans[r.phase]
		name := p.t.Sites[s.Site].Name
		work, chunks, others, syncs := strokes{x: p.x}, strokes{x: p.x}, strokes{x: p.x}, strokes{x: p.x}
		work.add(s.Begin, s.End, p.w)
		for i := r.first; i < r.last; i++ {
			in := &tr.Spans[i]
			switch site := &p.t.Sites[in.Site]; {
			case site.Kind == Sync:
				syncs.add(in.Begin, in.End, p.w)
			case site.Kind != Wait || i > r.phase:
			case site.Name == ChunkWait:
				chunks.add(in.Begin, in.End, p.w)
			default:
				others.add(in.Begin, in.End, p.w)
			}
		}
		p.c.Tipped(p.tip(tr, r, name))
		work.draw(p.c, p.hues[name])
		chunks.draw(p.c, p.hues[name].Light())
		others.draw(p.c, othersColour)
		syncs.draw(p.c, syncColour)
		p.c.Gend()
	}
}

// tip is what the reader is told who points at a run.
func (p *plot) tip(tr *Track, r run, name string) string {
	d := p.t.parts(tr, r, &producer{})
	n := func(x float64) string { return number(p.t.Unit, x) }
	tip := fmt.Sprintf("SM %d, %s: %s = %s work + %s waiting for chunks + %s sync", tr.SM, name,
		amount(p.t.Unit, d.Time), n(d.Work), n(d.Chunks), n(d.Syncs))
	if d.Others > 0 {
		tip += " + " + n(d.Others) + " waiting for words"
	}
	return tip
}

// consumerLegend has the phases of the window, then the waits.
func (p *plot) consumerLegend() (entries []picture.Entry) {
	others := false
	seen := map[string]bool{}
	for _, b := range p.windowPhases() {
		if !seen[b.name] {
			entries = append(entries, picture.Entry{Colours: []picture.RGB{p.hues[b.name], p.hues[b.name].Light()},
				Label: b.name})
		}
		seen[b.name] = true
	}
	for _, s := range p.s.Phases {
		others = others || s.Others > 0
	}
	entries = append(entries, picture.Entry{Colours: nil, Label: "(full: works, light: waits for a chunk, white: between phases)"},
		picture.Entry{Colours: []picture.RGB{syncColour}, Label: "sync"})
	if others {
		entries = append(entries, picture.Entry{Colours: []picture.RGB{othersColour}, Label: "waits for words"})
	}
	return entries
}

// bandPhase is a phase in the window: its mean begin, and mean end, over the SMs.
type bandPhase struct {
	name       string
	begin, end float64
	n          float64
}

// windowPhases are the phases of which something lies in the window, in order of
// begin. Runs that only touch the window do not count.
func (p *plot) windowPhases() (all []bandPhase) {
	index := map[runKey]int{}
	for _, tr := range p.tracks {
		for _, r := range p.t.runs(tr) {
			s := &tr.Spans[r.phase]
			if r.end <= p.w.begin || r.begin >= p.w.end || s.Begin >= p.w.end || s.End <= p.w.begin {
				continue
			}
			k := p.t.key(s)
			i, ok := index[k]
			if !ok {
				i = len(all)
				index[k], all = i, append(all, bandPhase{name: k.name})
			}
			all[i].begin, all[i].end, all[i].n = all[i].begin+s.Begin, all[i].end+s.End, all[i].n+1
		}
	}
	for i := range all {
		all[i].begin, all[i].end = max(p.w.begin, all[i].begin/all[i].n), min(p.w.end, all[i].end/all[i].n)
	}
	return all
}

// phaseBand names the phases above the rows, from mean begin to mean end; a name that
// would run into the one before moves up a line, and if there is no room there, out.
func (p *plot) phaseBand() {
	band := p.windowPhases()
	y := p.bottom + 40
	free := [2]float64{math.Inf(-1), math.Inf(-1)}
	for _, b := range band {
		x1, x2 := p.x(b.begin), p.x(b.end)
		if x2-x1 < 3 && (b.begin == p.w.begin || b.end == p.w.end) {
			continue // the layer before or behind, of which hardly anything is seen
		}
		p.c.Box(x1, y, max(1, x2-x1), 4, p.hues[b.name], b.name+": "+amount(p.t.Unit,
			b.end-b.begin)+" on average, without the sync")
		w := picture.TextWidth(b.name, 11)
		from := min(max(leftSide, (x1+x2-w)/2), width-w)
		for tier, last := range free {
			if from >= last {
				p.c.Label(from, y-4-13*float64(tier), 11, picture.Left, picture.Ink, b.name)
				free[tier] = from + w + 6
				break
			}
		}
	}
	p.bottom = y + 8
}
