package kv

import (
	"fmt"
	"math/bits"
	"slices"
)

// unit is a run of page entries that some query rows attend to.
type unit struct {
	entries  int // first page entry
	cached   int // tokens before the launch's first step
	grow     int
	position int    // of the first token
	rows     uint32 // bit t
	head     int    // first KV head, and
	heads    int    // how many
	parent   int    // the unit of the prefix before it, or −1
	seq      int    // the sequence, or −1 for a shared prefix
	before   int    // partial states of a row before this unit's, and
	parts    int    // this unit's; both set for the class that is being planned
}

// layout fills p.units, the page entries and the rows.
func (p *Planner) layout(r *Request) error {
	p.units, p.plan.Entries, p.plan.Positions = p.units[:0], p.plan.Entries[:0], p.plan.Positions[:0]
	p.plan.Prefixes = 0
	clear(p.plan.Rows)
	p.tree.reset()
	row := 0
	for i := range r.Sequences {
		s, place := &r.Sequences[i], &p.places[i]
		*place = placed{first: row, full: -1, selected: -1}
		row += s.New
		if s.New == 0 {
			continue
		}
		if p.needs(r, s, formSelected) {
			place.selected = len(p.units)
			p.layoutSelected(r, i)
		}
		if p.needs(r, s, formFull) {
			place.full = len(p.units)
			p.layoutFull(r, i)
		}
		if p.needs(r, s, formTree) {
			p.tree.insert(r.Sequences, i, s.Cached/p.limits.PageSize, place.rows(s))
		}
	}
	p.plan.RowCount = row
	p.firstTree = len(p.units)
	p.tree.decide(p, r)
	for c := p.tree.nodes[0].child; c != 0; c = p.tree.nodes[c].next {
		p.emit(r, c, 0, -1)
	}
	if n := len(p.plan.Entries); p.limits.Entries > 0 && n > p.limits.Entries {
		return LimitError(fmt.Sprintf(
			"kv: page table of %d entries, the kernel has room for %d; Limits.Entries of %d would do, or larger pages",
			n, p.limits.Entries, n))
	}
	return p.checkPages(r)
}

func (p *Planner) checkPages(r *Request) error {
	if p.limits.Pages == 0 {
		return nil
	}
	if page := greatest(p.plan.Entries); uint64(page) >= uint64(p.limits.Pages) {
		return p.refusePage(r, page)
	}
	return nil
}

// greatest is the greatest of some words, 0 of none. It takes four at a time: with pages
// of one token they are ten thousands.
func greatest(words []uint32) uint32 {
	var a, b, c, d uint32
	for ; len(words) >= 4; words = words[4:] {
		a, b, c, d = max(a, words[0]), max(b, words[1]), max(c, words[2]), max(d, words[3])
	}
	for _, w := range words {
		a = max(a, w)
	}
	return max(a, b, c, d)
}

// form is how a class reads a sequence's pages.
type form int

const (
	formFull     form = iota // all of them, one unit
	formTree                 // shared prefixes, and the rest
	formSelected             // a unit a KV head
)

func (p *Planner) form(r *Request, c *Class, s *Sequence) form {
	switch {
	case c.Select && s.Select != nil:
		return formSelected
	case p.share && c.Window == 0 && r.PinTokens == 0 && s.Select == nil:
		return formTree
	}
	return formFull
}

// needs reports whether some class reads s in form f.
func (p *Planner) needs(r *Request, s *Sequence, f form) bool {
	for i := range r.Classes {
		if p.form(r, &r.Classes[i], s) == f {
			return true
		}
	}
	return false
}

// placed is where a sequence's rows and units are; −1 stands for no unit.
type placed struct {
	first          int // its first query row
	full, selected int // its unit of all tokens, the first of its units a KV head
}

func (a *placed) rows(s *Sequence) uint32 { return (1<<s.New - 1) << a.first }

// pick appends pages of a sequence to the page table, of a kernel with selection.
func (p *Planner) pick(s *Sequence, list []int) {
	from := len(p.plan.Entries)
	p.plan.Entries = slices.Grow(p.plan.Entries, len(list))[:from+len(list)]
	p.plan.Positions = slices.Grow(p.plan.Positions, len(list))[:from+len(list)]
	entries, positions := p.plan.Entries[from:], p.plan.Positions[from:]
	for i, k := range list {
		entries[i], positions[i] = s.Pages[k], uint32(k*p.limits.PageSize)
	}
}

// run appends pages from to to−1 of a sequence and returns the first entry.
func (p *Planner) run(s *Sequence, from, to int) int {
	start := len(p.plan.Entries)
	p.plan.Entries = append(p.plan.Entries, s.Pages[from:to]...)
	if p.limits.Selection {
		for i := from; i < to; i++ {
			p.plan.Positions = append(p.plan.Positions, uint32(i*p.limits.PageSize))
		}
	}
	return start
}

func (p *Planner) layoutFull(r *Request, i int) {
	s, place := &r.Sequences[i], &p.places[i]
	u := unit{cached: s.Cached, rows: place.rows(s), heads: p.limits.KVHeads, parent: -1, seq: i}
	if s.Grow {
		u.grow = 1
	}
	u.entries = p.run(s, 0, s.pages(p.limits.PageSize, r.Steps))
	p.units = append(p.units, u)
	s.encodeRows(p.plan.Rows, place.first, u.entries, s.Cached)
}

// layoutSelected makes a unit a KV head: the pages it selects, then those from the
// page that is being filled on.
func (p *Planner) layoutSelected(r *Request, i int) {
	s, place, page := &r.Sequences[i], &p.places[i], p.limits.PageSize
	for h, list := range s.Select {
		u := unit{rows: place.rows(s), head: h, heads: 1, parent: -1, seq: i, entries: len(p.plan.Entries)}
		p.pick(s, list)
		p.run(s, s.Cached/page, s.pages(page, r.Steps))
		u.cached = len(list)*page + s.Cached%page
		if s.Grow {
			u.grow = 1
		}
		p.units = append(p.units, u)
		if h == 0 {
			s.encodeRows(p.plan.Rows, place.first, u.entries, u.cached)
		}
	}
}

// emit makes the units of node v's subtree. Above is the last node above it that is
// a unit, parent that unit, or −1.
func (p *Planner) emit(r *Request, v, above, parent int) {
	n, page := &p.tree.nodes[v], p.limits.PageSize
	start := p.tree.nodes[above].to
	s, place := &r.Sequences[n.seq], &p.places[n.seq]
	if !n.leaf && p.tree.memo[v][above].split {
		u := unit{cached: (n.to - start) * page, position: start * page, rows: n.rows, heads: p.limits.KVHeads,
			parent: parent, seq: -1}
		u.entries = p.span(s, place, start, n.to)
		above, parent = v, len(p.units)
		p.units = append(p.units, u)
		p.plan.Prefixes++
	}
	for c := n.child; c != 0; c = p.tree.nodes[c].next {
		p.emit(r, c, above, parent)
	}
	if !n.leaf {
		return
	}
	u := unit{cached: s.Cached - start*page, position: start * page, rows: n.rows, heads: p.limits.KVHeads, parent: parent,
		seq: n.seq}
	if s.Grow {
		u.grow = 1
	}
	u.entries = p.span(s, place, start, s.pages(page, r.Steps))
	p.units = append(p.units, u)
	s.encodeRows(p.plan.Rows, place.first, u.entries, u.cached)
}

// span is the first entry of pages from to to−1 of a sequence: inside its whole list
// where that is stored.
func (p *Planner) span(s *Sequence, place *placed, from, to int) int {
	if place.full >= 0 {
		return p.units[place.full].entries + from
	}
	return p.run(s, from, to)
}

func count(rows uint32) int { return bits.OnesCount32(rows) }
