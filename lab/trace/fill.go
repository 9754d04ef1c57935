package trace

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/internal/picture"
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
	p.c = picture.New()
	average, least, most, n := p.fills()
	if p.w.empty() || n == 0 {
		p.c.Label(leftSide, 18, 11, picture.Left, picture.Faint,
			"The trace does not tell: not every chunk has a wait of the producer and one of the consumers.")
		return p.c.Finish(generator, width, 30, "chunks in the ring")
	}
	top := max(1.0, float64(p.t.Stages))
	for _, v := range most {
		top = max(top, v)
	}
	const y0, y1 = 30.0, 190.0
	y := func(v float64) float64 { return y1 - v/top*(y1-y0) }
	at, decimals := picture.Ticks(top, 6)
	for _, v := range at {
		if decimals > 0 && v != float64(int(v)) {
			continue
		}
		h := y(v)
		p.c.Rule(leftSide, h, width-rightSide, h, picture.Grid, 1)
		p.c.Label(leftSide-6, h+3.5, 10, picture.Right, picture.Faint, fmt.Sprint(int(v)))
	}
	var xs, means, low, high []float64
	for i := range samples {
		xs = append(xs, leftSide+float64(i)/(samples-1)*(width-leftSide-rightSide))
		means, low, high = append(means, y(average[i])), append(low, y(least[i])), append(high, y(most[i]))
	}
	back := slices.Clone(xs)
	slices.Reverse(back)
	slices.Reverse(low)
	p.c.Polygon(slices.Concat(xs, back), slices.Concat(high, low), picture.Fill(inFlightColour.Light()))
	p.c.Polyline(xs, means, picture.Stroke(copyingColour, 1.6))
	p.c.Legend(leftSide, 16, width-leftSide-rightSide, []picture.Entry{
		{Colours: []picture.RGB{copyingColour}, Label: fmt.Sprintf("mean over %d SMs", n)},
		{Colours: []picture.RGB{inFlightColour.Light()}, Label: "least to most"}})
	p.stages(y(float64(p.t.Stages)))
	p.bottom = y1
	p.axis()
	return p.c.Finish(generator, width, p.bottom+6, "chunks in the ring")
}

// stages draws the ring's stages as a line at height y, if they are known.
func (p *plot) stages(y float64) {
	if p.t.Stages == 0 {
		return
	}
	p.c.Dashed(leftSide, y, width-rightSide, y, picture.Ink, 1)
	p.c.Label(width-rightSide, y-4, 10, picture.Right, picture.Ink, "ring: "+plural.Of(p.t.Stages, "stage"))
}
