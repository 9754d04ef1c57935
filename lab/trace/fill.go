package trace

import (
	"fmt"

	"github.com/mkgen/mkgen/internal/plural"
)

// samples is at how many times of the window the rings are looked at.
const samples = 440

// fills are the mean, the least and the most of the chunks in the SMs' rings at each
// sample's time; n is of how many SMs they can be told.
func (p *plot) fills() (mean, least, most [samples]float64, n int) {
	for _, tr := range p.tracks {
		events := p.t.ringFill(tr, p.t.of(tr.SM, Producer))
		if events == nil {
			continue
		}
		at, chunks := 0, 0
		for i := range samples {
			t := p.w.begin + (p.w.end-p.w.begin)*float64(i)/(samples-1)
			for at < len(events) && events[at].at <= t {
				chunks = events[at].chunks
				at++
			}
			v := float64(chunks)
			mean[i] += v
			if n == 0 {
				least[i] = v
			}
			least[i], most[i] = min(least[i], v), max(most[i], v)
		}
		n++
	}
	for i := range mean {
		mean[i] /= float64(max(1, n))
	}
	return mean, least, most, n
}

// ringPlot draws the chunks in the ring over the window: the mean over the SMs, in a
// band from the least to the most, and a dashed line at the stages that the ring has, where
// they are known.
func (p *plot) ringPlot() []byte {
	p.c = canvas{}
	average, least, most, n := p.fills()
	if p.w.empty() || n == 0 {
		p.c.text(leftSide, 18, 11, left, faint,
			"The trace does not tell: not every chunk has a wait of the producer and one of the consumers.")
		return p.c.finish(width, 30, "chunks in the ring")
	}
	top := max(1.0, float64(p.t.Stages))
	for _, v := range most {
		top = max(top, v)
	}
	const y0, y1 = 30.0, 190.0
	y := func(v float64) string { return px(y1 - v/top*(y1-y0)) }
	x := func(i int) string { return px(leftSide + float64(i)/(samples-1)*(width-leftSide-rightSide)) }
	at, decimals := ticks(top, 6)
	for _, v := range at {
		if decimals > 0 && v != float64(int(v)) {
			continue
		}
		h := y1 - v/top*(y1-y0)
		p.c.line(leftSide, h, width-rightSide, h, gridline, 1)
		p.c.text(leftSide-6, h+3.5, 10, end, faint, fmt.Sprint(int(v)))
	}
	band, line := "", ""
	for i := range samples {
		band += " " + x(i) + "," + y(most[i])
		line += " " + x(i) + "," + y(average[i])
	}
	for i := samples - 1; i >= 0; i-- {
		band += " " + x(i) + "," + y(least[i])
	}
	p.c.printf("<polygon points=\"%s\" fill=\"%s\"/>\n", band[1:], inFlightColour.light())
	p.c.printf("<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\"/>\n", line[1:], copyingColour)
	p.c.legend(leftSide, 16, width-leftSide-rightSide, []entry{{[]rgb{copyingColour}, fmt.Sprintf("mean over %d SMs", n)},
		{[]rgb{inFlightColour.light()}, "least to most"}})
	p.stages(y1 - float64(p.t.Stages)/top*(y1-y0))
	p.bottom = y1
	p.axis()
	return p.c.finish(width, p.bottom+6, "chunks in the ring")
}

// stages draws the ring's stages as a line at height y, if they are known.
func (p *plot) stages(y float64) {
	if p.t.Stages == 0 {
		return
	}
	p.c.dashed(leftSide, y, width-rightSide, y, ink, 1)
	p.c.text(width-rightSide, y-4, 10, end, ink, "ring: "+plural.Of(p.t.Stages, "stage"))
}
