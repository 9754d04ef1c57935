package trace

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/internal/picture"
)

// bins is how many bars a histogram has; the last holds all that is further, too.
const bins = 36

// histograms draws, for each sync, how long before the last SM the SMs arrived.
func (p *plot) histograms() []byte {
	p.c = picture.New()
	var all []float64
	for _, h := range p.s.Syncs {
		all = append(all, h.early...)
	}
	if why := p.noHistograms(); why != "" {
		p.c.Label(12, 18, 11, picture.Left, picture.Faint, why)
		return p.c.Finish(generator, width, 30, "arrivals at syncs")
	}
	slices.Sort(all)
	top := all[min(len(all)-1, len(all)*995/1000)] // outliers do not squeeze the rest
	if top == 0 {
		top = max(1, all[len(all)-1])
	}
	const columns, w, h = 3, 376.0, 150.0
	for i, hand := range p.s.Syncs {
		p.histogram(&hand, float64(i%columns)*(w+26), float64(i/columns)*(h+24), w, h, top)
	}
	rows := (len(p.s.Syncs) + columns - 1) / columns
	return p.c.Finish(generator, width, float64(rows)*(h+24), "arrivals at syncs")
}

// noHistograms is why there are none, "" if there are some.
func (p *plot) noHistograms() string {
	switch {
	case len(p.s.Syncs) == 0:
		return "No sync is whole."
	case p.s.SMs == 1:
		return "One SM waits for no other."
	}
	return ""
}

// histogram is one sync's, the last arrival at the right.
func (p *plot) histogram(hand *SyncSummary, x0, y0, w, h, top float64) {
	p.c.Group(fmt.Sprintf(`transform="translate(%.1f %.1f)"`, x0, y0))
	defer p.c.Gend()
	p.c.Heading(4, 14, hand.Name)
	p.c.Label(4, 29, 11, picture.Left, picture.Faint, fmt.Sprintf("last − mean %s, release %s, late: %s",
		amount(p.t.Unit, hand.Skew), release(p.t.Unit, hand.Latency, amount), hand.lateWords()))
	counts, most := [bins]int{}, 0
	for _, v := range hand.early {
		bin := min(bins-1, int(v/top*bins))
		counts[bin]++
		most = max(most, counts[bin])
	}
	const plotTop = 36.0
	base, each := h-22, (w-8)/bins
	for bin, n := range counts {
		if n == 0 {
			continue
		}
		tall := max(1, (base-plotTop)*float64(n)/float64(most))
		from, to := float64(bin)*top/bins, amount(p.t.Unit, float64(bin+1)*top/bins)
		if bin == bins-1 {
			to = "more"
		}
		p.c.Box(w-4-float64(bin+1)*each, base-tall, each-1, tall, p.hueOf(hand),
			fmt.Sprintf("%d arrivals %s to %s before the last SM's", n, number(p.t.Unit, from), to))
	}
	p.c.Rule(4, base, w-4, base, picture.Faint, 1)
	unit, name := scale(p.t.Unit)
	at, decimals := picture.Ticks(top*unit, 5)
	for _, v := range at {
		x, anchor, label := w-4-v/(top*unit)*(w-8), picture.Middle, fmt.Sprintf("−%.*f", decimals, v)
		if v == 0 {
			label, anchor = "last", picture.Right
		}
		if x < 16 {
			anchor = picture.Left
		}
		p.c.Rule(x, base, x, base+4, picture.Faint, 1)
		p.c.Label(x, base+16, 10, anchor, picture.Faint, label)
	}
	p.c.Label((w)/2, h+8, 10, picture.Middle, picture.Faint, name+" before the last arrival")
}

// hueOf is the colour of the phase before a sync.
func (p *plot) hueOf(hand *SyncSummary) picture.RGB {
	if c, ok := p.hues[hand.After]; ok {
		return c
	}
	return syncColour
}
