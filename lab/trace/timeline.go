package trace

import (
	"fmt"
	"io"

	"github.com/mkgen/mkgen/internal/picture"
)

// Measures of pictures, in pixels.
const (
	width     = 1180.0
	leftSide  = 62.0
	rightSide = 14.0
)

// plot maps times of a window to pixels.
type plot struct {
	*tally
	w      window
	s      *Summary
	hues   map[string]picture.RGB // of phases
	c      *picture.Picture
	bottom float64 // what is drawn so far
	inPage bool    // which says itself what a reader must know
}

func (y *tally) plot(s *Summary) *plot {
	p := &plot{tally: y, s: s, w: y.representative(), c: picture.New(), hues: map[string]picture.RGB{}}
	for i, ph := range y.phasesOf(s) {
		p.hues[ph] = picture.Hue(i)
	}
	return p
}

// phasesOf are the names of all phases, those with figures first.
func (y *tally) phasesOf(s *Summary) (names []string) {
	seen := map[string]bool{}
	for _, p := range s.Phases {
		names, seen[p.Name] = append(names, p.Name), true
	}
	for _, k := range sorted(y.phases) {
		if !seen[k.name] {
			names, seen[k.name] = append(names, k.name), true
		}
	}
	return names
}

func (p *plot) x(t float64) float64 {
	return leftSide + (t-p.w.begin)/(p.w.end-p.w.begin)*(width-leftSide-rightSide)
}

// WriteSVG draws the timeline of one representative layer: a row an SM with what its
// consumers do, and below it a row an SM with what its producer does.
func (t *Trace) WriteSVG(w io.Writer) error {
	if err := t.Check(); err != nil {
		return err
	}
	y := t.tally()
	_, err := w.Write(y.plot(y.summary()).timeline())
	return err
}

// timeline is that picture.
func (p *plot) timeline() []byte {
	p.bottom = 18
	title := fmt.Sprintf("%s on %s: %s", p.t.Model, p.t.Device, p.w.title)
	if !p.w.empty() {
		title += ", " + amount(p.t.Unit, p.w.end-p.w.begin)
	}
	p.c.Heading(leftSide, p.bottom, title)
	for _, line := range p.s.notices() {
		if !p.inPage {
			p.bottom += 16
			p.c.Label(leftSide, p.bottom, 11, picture.Left, picture.Ink, line)
		}
	}
	if p.w.empty() {
		p.c.Label(leftSide, p.bottom+20, 11, picture.Left, picture.Faint, "Nothing to draw.")
		return p.c.Finish(generator, width, p.bottom+30, "timeline")
	}
	p.bottom = p.c.Legend(leftSide, p.bottom+22, width-leftSide-rightSide, p.consumerLegend())
	p.phaseBand()
	p.rows(p.tracks, "consumers", rowHeight(len(p.tracks), 620), p.consumerRow)
	p.axis()
	if producers := p.t.role(Producer); len(producers) > 0 {
		p.bottom = p.c.Legend(leftSide, p.bottom+30, width-leftSide-rightSide, p.producerLegend(producers))
		p.bottom += 8
		p.rows(producers, "producers", rowHeight(len(producers), 330), p.producerRow)
		p.axis()
	}
	return p.c.Finish(generator, width, p.bottom+10, "timeline of "+p.w.title)
}

// rowHeight shares a height among rows, within reason.
func rowHeight(rows int, height float64) float64 {
	return min(24, max(2.5, height/float64(max(1, rows))))
}

// rows draws a row a track with its SM on the left.
func (p *plot) rows(tracks []*Track, role string, h float64, row func(*Track)) {
	top, every := p.bottom, 1
	for _, n := range []int{1, 2, 4, 8, 16, 32, 64} {
		if every = n; h*float64(n) >= 11 {
			break
		}
	}
	for i, tr := range tracks {
		at := top + (float64(i)+0.5)*h
		if i%every == 0 {
			p.c.Label(leftSide-6, at+3.5, 10, picture.Right, picture.Faint, fmt.Sprint(tr.SM))
		}
		stroke := h
		if h > 8 {
			stroke = h - 2
		}
		p.c.Group(fmt.Sprintf(`transform="translate(0 %.1f)" stroke-width="%.1f" fill="none"`, at, stroke))
		row(tr)
		p.c.Gend()
	}
	p.bottom = top + float64(len(tracks))*h
	p.c.Upwards(14, (top+p.bottom)/2, 11, role+", SM")
}

// axis draws the time from the window's begin below the rows.
func (p *plot) axis() {
	by, unit := scale(p.t.Unit)
	at, decimals := picture.Ticks((p.w.end-p.w.begin)*by, 14)
	y := p.bottom + 3
	p.c.Rule(leftSide, y, width-rightSide, y, picture.Faint, 1)
	for _, v := range at {
		x := p.x(p.w.begin + v/by)
		p.c.Rule(x, y, x, y+4, picture.Faint, 1)
		label, anchor := fmt.Sprintf("%.*f", decimals, v), picture.Middle
		if v == 0 {
			label, anchor = "0 "+unit, picture.Left
		}
		if x > width-30 {
			anchor = picture.Right
		}
		p.c.Label(x, y+15, 10, anchor, picture.Faint, label)
	}
	p.bottom = y + 16
}
