package trace

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// window is the part of a trace that is drawn.
type window struct {
	begin, end float64
	title      string // "layer 15 of step 2"
}

// representative is the layer of median duration, from the first SM's begin to the
// last SM's end, of those that count and are neither first nor last. Without one it
// is the layer of median duration of all whole ones, else all of the trace that is
// whole.
func (y *tally) representative() window {
	cold := y.cold()
	type layer struct {
		k runKey
		g *group
	}
	var all, inner []layer
	for _, k := range sorted(y.layers) {
		g := y.layers[k]
		if g.end > y.until || len(g.times) < len(y.tracks) || k.step == cold {
			continue
		}
		all = append(all, layer{k, g})
		if k.layer > 0 && k.layer < y.t.Layers-1 {
			inner = append(inner, layer{k, g})
		}
	}
	if len(inner) > 0 {
		all = inner
	}
	if len(all) == 0 {
		return y.everything()
	}
	slices.SortStableFunc(all, func(a, b layer) int { return cmp.Compare(a.g.end-a.g.begin, b.g.end-b.g.begin) })
	m := all[(len(all)-1)/2]
	title := fmt.Sprintf("layer %d of step %d", m.k.layer, m.k.step)
	if len(all) > 1 {
		title += fmt.Sprintf(", of median duration among %d", len(all))
	}
	return window{m.g.begin, m.g.end, title}
}

// everything is the whole trace, or as much as all tracks have of it; it is empty
// without spans.
func (y *tally) everything() window {
	w := window{begin: math.Inf(1), title: "the whole trace"}
	for i := range y.t.Tracks {
		for n := range y.t.Tracks[i].Spans {
			w.begin = min(w.begin, y.t.Tracks[i].Spans[n].Begin)
		}
		w.end = max(w.end, y.t.Tracks[i].end())
	}
	if w.end = min(w.end, y.until); !(w.end > w.begin) {
		return window{title: "no spans"}
	}
	return w
}

// empty says whether there is nothing to draw.
func (w window) empty() bool { return !(w.end > w.begin) }
