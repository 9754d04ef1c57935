package grammar

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
)

// Grammar is what answers are kept to. Any number of goroutines may use it.
type Grammar struct {
	v    *Vocab
	net  net
	root *place // where texts begin

	mu     sync.Mutex
	frames map[frameKey]*frame
	places map[string]*place
	items  int // of the places
	bytes  int // of their tokens
	found  []uint32
	serial uint64
}

// Bytes returns about how many bytes of memory the grammar takes. What it remembers of answers is part of that, so it
// grows with them, by up to 150 MB.
func (g *Grammar) Bytes() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	const ofItem, ofState, ofEdge, ofFrame, ofPlace = 16, 80, 8, 96, 256 // with the maps' entries
	all := g.bytes + g.items*ofItem + len(g.frames)*ofFrame + len(g.places)*ofPlace + len(g.net.states)*ofState
	for i := range g.net.states {
		s := &g.net.states[i]
		all += ofEdge * (cap(s.edges) + cap(s.empty)/2 + cap(s.calls))
	}
	return all
}

// Bounds of what is remembered; beyond them it is forgotten.
const (
	mostPlaces = 20_000
	mostBytes  = 16 << 20 // of what tokens lead on from places
	mostItems  = 4 << 20  // of places
	mostFrames = 200_000
)

// mostWays bounds the states that a text may have come to at once, beyond those of the network itself: texts that can
// be read in many ways are in calls of many others. The rest of the ways is left out: every answer still fits.
const mostWays = 4096

// frame is a call that is under way, and those around it.
type frame struct {
	to    int32 // where it goes on
	below *frame
	id    uint64
}

type frameKey struct {
	to    int32
	below uint64
}

// item is a state that a text may have come to, with edges of its own.
type item struct {
	state int32
	in    *frame
}

func (f *frame) key() uint64 {
	if f == nil {
		return 0
	}
	return f.id
}

// place is all that a text may have come to.
type place struct {
	items []item
	whole bool // the text may end here
	next  [256]*place
	known [256]bool
	leads *tokens // those that lead on; nil: not known yet
	ways  []way   // of those in next

	asked bool   // after and alike are known
	after *place // see afterPlain
	alike bool
}

// way is where some bytes lead: to the place of these states.
type way struct {
	items []item
	to    *place
}

// Schema is the grammar of the JSON values that fit a schema; an *Error says what of it is not supported.
func (v *Vocab) Schema(raw json.RawMessage) (*Grammar, error) {
	c, root, err := compile(raw)
	if err != nil {
		return nil, err
	}
	g := &Grammar{v: v, net: c.net, frames: map[frameKey]*frame{}, places: map[string]*place{}}
	g.root = g.close([]item{{root, nil}})
	return g, nil
}

// Object is the grammar of any JSON object.
func (v *Vocab) Object() *Grammar {
	g, err := v.Schema(json.RawMessage(`{"type":"object"}`))
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return g
}

// frame is the one of a call.
func (g *Grammar) frame(to int32, below *frame) *frame {
	key := frameKey{to, below.key()}
	if f := g.frames[key]; f != nil {
		return f
	}
	g.serial++
	f := &frame{to, below, g.serial}
	g.frames[key] = f
	return f
}

// close is the place of some states and of all that they also are.
func (g *Grammar) close(work []item) *place {
	seen := map[item]bool{}
	p := &place{}
	for len(work) > 0 && len(seen) < len(g.net.states)+mostWays {
		at := work[len(work)-1]
		work = work[:len(work)-1]
		if seen[at] {
			continue
		}
		seen[at] = true
		s := &g.net.states[at.state]
		if len(s.edges) > 0 {
			p.items = append(p.items, at)
		}
		for _, to := range s.empty {
			work = append(work, item{to, at.in})
		}
		for _, c := range s.calls {
			in := at.in // where nothing is behind the call: its own end is the caller's
			if !g.net.states[c.to].last {
				in = g.frame(c.to, at.in)
			}
			work = append(work, item{c.rule, in})
		}
		switch {
		case s.end && at.in == nil:
			p.whole = true
		case s.end:
			work = append(work, item{at.in.to, at.in.below})
		}
	}
	slices.SortFunc(p.items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(a.in.key(), b.in.key()))
	})
	return g.known(p)
}

// known is a place that is there already, or this one.
func (g *Grammar) known(p *place) *place {
	key := make([]byte, 0, 12*len(p.items)+1)
	for _, at := range p.items {
		id := at.in.key()
		for shift := 0; shift < 64; shift += 8 {
			key = append(key, byte(id>>shift))
		}
		key = append(key, byte(at.state), byte(at.state>>8), byte(at.state>>16))
	}
	if p.whole {
		key = append(key, 1)
	}
	if old := g.places[string(key)]; old != nil {
		return old
	}
	if len(g.places) >= mostPlaces || len(g.frames) >= mostFrames || g.items+len(p.items) > mostItems {
		clear(g.places)
		clear(g.frames)
		g.items, g.bytes = 0, 0
		if g.root != nil { // places know those behind them, and all are behind this one
			r := g.root
			r.next, r.known, r.leads, r.ways, r.asked, r.after = [256]*place{}, [256]bool{}, nil, nil, false, nil
		}
	}
	g.items += len(p.items)
	g.places[string(key)] = p
	return p
}

// step is where a byte leads; nil for nowhere.
func (g *Grammar) step(p *place, b byte) *place {
	if p.known[b] {
		return p.next[b]
	}
	var to []item
	for _, at := range p.items {
		for _, e := range g.net.states[at.state].edges {
			if b >= e.lo && b <= e.hi {
				to = append(to, item{e.to, at.in})
			}
		}
	}
	p.known[b] = true
	if len(to) == 0 {
		return nil
	}
	for _, w := range p.ways { // mostly few
		if slices.Equal(w.items, to) {
			p.next[b] = w.to
			return w.to
		}
	}
	p.ways = append(p.ways, way{slices.Clone(to), g.close(to)})
	p.next[b] = p.ways[len(p.ways)-1].to
	return p.next[b]
}
