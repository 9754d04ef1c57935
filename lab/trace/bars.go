package trace

import (
	"fmt"

	"github.com/mkgen/mkgen/internal/picture"
)

// bars draws a bar a phase: work, waits for chunks, waits for words, sync. Phases of
// a layer have one scale and those of the step itself another.
func (p *plot) bars() []byte {
	p.c, p.bottom = picture.New(), 0
	var inLayer, inStep []PhaseSummary
	for _, ph := range p.s.Phases {
		if ph.InLayer {
			inLayer = append(inLayer, ph)
		} else {
			inStep = append(inStep, ph)
		}
	}
	if len(p.s.Phases) == 0 {
		p.c.Label(12, 18, 11, picture.Left, picture.Faint, "No phase is whole.")
		p.bottom = 24
	}
	p.barGroup("In each layer", inLayer)
	p.barGroup("Once a step", inStep)
	return p.c.Finish(generator, width, p.bottom+6, "where the time of each phase goes")
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
	p.c.Label(12, p.bottom+16, 11, picture.Left, picture.Faint, title)
	p.bottom += 22
	for _, ph := range phases {
		p.bar(&ph, x0, by, p.bottom+4)
		p.bottom += row
	}
	unit, unitText := scale(p.t.Unit)
	at, decimals := picture.Ticks(longest*unit, 10)
	p.c.Rule(x0, p.bottom, x0+longest*by, p.bottom, picture.Faint, 1)
	for _, v := range at {
		label := fmt.Sprintf("%.*f", decimals, v)
		if v == 0 {
			label += " " + unitText
		}
		x := x0 + v/unit*by
		p.c.Rule(x, p.bottom, x, p.bottom+4, picture.Faint, 1)
		p.c.Label(x, p.bottom+16, 10, picture.Middle, picture.Faint, label)
	}
	p.bottom += 22
}

// bar is one phase's, with its parts in words behind it.
func (p *plot) bar(ph *PhaseSummary, x0, by, y float64) {
	hue, x := p.hues[ph.Name], x0
	p.c.Label(x0-8, y+13, 12, picture.Right, picture.Ink, ph.Name)
	for _, part := range []struct {
		time   float64
		colour picture.RGB
		what   string
	}{{ph.Work, hue, "work"}, {ph.Chunks, hue.Light(), "waits for chunks"},
		{ph.Others, othersColour, "waits for words"}, {ph.Syncs, syncColour, "sync"}} {
		if w := part.time * by; w > 0 {
			p.c.Box(x, y, w, 18, part.colour, ph.Name+", "+part.what+": "+amount(p.t.Unit, part.time))
			x += w
		}
	}
	share := func(x float64) string { return fmt.Sprintf("%.0f %%", 100*ph.Share(x)) }
	words := fmt.Sprintf("%s: %s work, %s chunks, %s sync", amount(p.t.Unit, ph.Time), share(ph.Work),
		share(ph.Chunks), share(ph.Syncs))
	if ph.Others > 0 {
		words += ", " + share(ph.Others) + " words"
	}
	p.c.Label(x+8, y+13, 11, picture.Left, picture.Ink, words)
}
