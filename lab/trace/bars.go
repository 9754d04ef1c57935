package trace

import "fmt"

// bars draws a bar a phase: work, waits for chunks, waits for words, sync. Phases of
// a layer have one scale and those of the step itself another.
func (p *plot) bars() []byte {
	p.c, p.bottom = canvas{}, 0
	var inLayer, inStep []PhaseSummary
	for _, ph := range p.s.Phases {
		if ph.InLayer {
			inLayer = append(inLayer, ph)
		} else {
			inStep = append(inStep, ph)
		}
	}
	if len(p.s.Phases) == 0 {
		p.c.text(12, 18, 11, left, faint, "No phase is whole.")
		p.bottom = 24
	}
	p.barGroup("In each layer", inLayer)
	p.barGroup("Once a step", inStep)
	return p.c.finish(width, p.bottom+6, "where the time of each phase goes")
}

// barGroup draws phases on one scale, with its axis.
func (p *plot) barGroup(title string, phases []PhaseSummary) {
	const x0, room, row = 150.0, 330.0, 26.0 // where bars begin; right of the longest; from bar to bar
	longest := 0.0
	for _, ph := range phases {
		longest = max(longest, ph.Time)
	}
	if longest == 0 {
		return
	}
	by := (width - x0 - room) / longest
	p.c.text(12, p.bottom+16, 11, left, faint, title)
	p.bottom += 22
	for _, ph := range phases {
		p.bar(&ph, x0, by, p.bottom+4)
		p.bottom += row
	}
	unit, unitText := scale(p.t.Unit)
	at, decimals := ticks(longest*unit, 10)
	p.c.line(x0, p.bottom, x0+longest*by, p.bottom, faint, 1)
	for _, v := range at {
		label := fmt.Sprintf("%.*f", decimals, v)
		if v == 0 {
			label += " " + unitText
		}
		x := x0 + v/unit*by
		p.c.line(x, p.bottom, x, p.bottom+4, faint, 1)
		p.c.text(x, p.bottom+16, 10, middle, faint, label)
	}
	p.bottom += 22
}

// bar is one phase's, with its parts in words behind it.
func (p *plot) bar(ph *PhaseSummary, x0, by, y float64) {
	hue, x := p.hues[ph.Name], x0
	p.c.text(x0-8, y+13, 12, end, ink, ph.Name)
	for _, part := range []struct {
		time   float64
		colour rgb
		what   string
	}{{ph.Work, hue, "work"}, {ph.Chunks, hue.light(), "waits for chunks"},
		{ph.Others, othersColour, "waits for words"}, {ph.Syncs, syncColour, "sync"}} {
		if w := part.time * by; w > 0 {
			p.c.box(x, y, w, 18, part.colour, ph.Name+", "+part.what+": "+amount(p.t.Unit, part.time))
			x += w
		}
	}
	share := func(x float64) string { return fmt.Sprintf("%.0f %%", 100*ph.Share(x)) }
	words := fmt.Sprintf("%s: %s work, %s chunks, %s sync", amount(p.t.Unit, ph.Time), share(ph.Work),
		share(ph.Chunks), share(ph.Syncs))
	if ph.Others > 0 {
		words += ", " + share(ph.Others) + " words"
	}
	p.c.text(x+8, y+13, 11, left, ink, words)
}
