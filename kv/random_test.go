package kv

import (
	"math/rand/v2"
)

// draw is a source of choices, 0 to n−1: random numbers, or a fuzzer's bytes.
type draw func(n int) int

func fromSeed(seed uint64) draw {
	r := rand.New(rand.NewPCG(seed, 4))
	return r.IntN
}

// fromBytes takes two bytes a choice, zeros behind the last.
func fromBytes(data []byte) draw {
	return func(n int) int {
		if len(data) < 2 {
			return 0
		}
		v := int(data[0]) | int(data[1])<<8
		data = data[2:]
		return v % n
	}
}

func pick[T any](d draw, of ...T) T { return of[d(len(of))] }

// randomLimits are a kernel's, tight ones in one of three cases.
func randomLimits(d draw) Limits {
	l := Limits{
		CTAs: 1 + d(132), KVHeads: pick(d, 1, 2, 8), Group: pick(d, 1, 4, 8, 24, 200), Rows: 1 + d(MaxRows),
		PageSize: pick(d, 1, 8, 16, 32, 64, 128, 1024), ChunkTokens: pick(d, 16, 32, 64, 48),
		ItemsPerCTA: 160, Partials: 1 << StateBits, Selection: d(3) == 0,
	}
	if d(3) == 0 {
		l.ItemsPerCTA, l.Partials = 1+d(20), d(400)
	}
	if d(4) == 0 {
		l.MaxTile = 1 + d(MaxRows)
	}
	if d(4) == 0 {
		l.Costs = Costs{Item: d(100), Row: d(10), Token: 1 + d(3), State: d(50)}
	}
	return l
}

// randomRequest fits l but for its numbers of items and states.
func randomRequest(d draw, l *Limits) Request {
	r := Request{Single: d(4) == 0, FillRows: d(2) == 0}
	for range d(4) {
		c := Class{Select: l.Selection && d(2) == 0}
		if !c.Select && d(2) == 0 {
			c.Window = 1 + d(500)
			c.Sinks = d(2) * d(100)
		}
		r.Classes = append(r.Classes, c)
	}
	if d(4) == 0 {
		r.PinTokens = l.ChunkTokens * (1 + d(20)) * pick(d, 1, 16)
	}
	if d(2) == 0 {
		r.Steps = 1 + d(70)
	}
	left, page := l.Rows, uint32(0)
	for n := d(MaxRows + 1); n > 0; n-- {
		s := randomSequence(d, l, max(1, r.Steps), left)
		fork(d, l, r.Sequences, &s)
		for len(s.Pages) < s.pages(l.PageSize, max(1, r.Steps)) {
			s.Pages = append(s.Pages, page)
			page++
		}
		randomSelection(d, l, &s)
		left -= s.New
		r.Sequences = append(r.Sequences, s)
	}
	return r
}

func randomSequence(d draw, l *Limits, steps, left int) Sequence {
	p := l.PageSize
	s := Sequence{Cached: pick(d, 0, 1, p-1, p, p+1, d(300), d(300), d(6000))}
	s.New = min(left, pick(d, 1, 1, 1, 0, d(MaxRows+1)))
	if steps > 1 {
		s.New, s.Grow = min(s.New, 1), true
	}
	if s.New == 1 && d(4) == 0 {
		s.Grow = true
	}
	if s.New > 1 && d(2) == 0 {
		for i := range s.New {
			s.Parents = append(s.Parents, d(i+1)-1)
		}
	}
	return s
}

// fork lets s begin with full pages of an earlier sequence.
func fork(d draw, l *Limits, seqs []Sequence, s *Sequence) {
	if len(seqs) == 0 || d(3) == 0 {
		return
	}
	from := &seqs[d(len(seqs))]
	n := min(from.Cached, s.Cached) / l.PageSize
	if n > 0 && d(2) == 0 {
		n = 1 + d(n)
	}
	s.Pages = append(s.Pages, from.Pages[:n]...)
}

func randomSelection(d draw, l *Limits, s *Sequence) {
	if !l.Selection || d(2) == 0 {
		return
	}
	s.Select = make([][]int, l.KVHeads)
	for h := range s.Select {
		keep := 1 + d(4)
		for p := range s.Cached / l.PageSize {
			if (p*7+h)%4 < keep-1 {
				s.Select[h] = append(s.Select[h], p)
			}
		}
	}
}

// uncut is how many items the single format has when nothing is cut.
func uncut(l *Limits, r *Request) int {
	tiles, rows := 0, 0
	for _, s := range r.Sequences {
		tiles += ceilDiv(s.New, l.tile())
		rows += s.New
	}
	if r.FillRows {
		tiles += ceilDiv(l.Rows-rows, l.tile())
	}
	return tiles * l.KVHeads
}

// pinnedNeeds is how many items and states the class with most of them has, cut where
// PinTokens says.
func pinnedNeeds(l *Limits, r *Request) (items, states int) {
	for _, c := range r.Classes {
		i, s := pinnedParts(l, r, &c)
		items, states = max(items, i), max(states, s)
	}
	if len(r.Classes) == 0 {
		return pinnedParts(l, r, &Class{})
	}
	return items, states
}

// pinnedParts is how many items and states a class has.
func pinnedParts(l *Limits, r *Request, c *Class) (items, states int) {
	rows, grown := 0, max(1, r.Steps)-1
	for i := range r.Sequences {
		s := &r.Sequences[i]
		rows += s.New
		for first := 0; first < s.New; first += l.tile() {
			n := min(l.tile(), s.New-first)
			least := s.New
			for j := range n {
				_, depth := s.ancestors(first + j)
				least = min(least, depth)
			}
			for h := range l.KVHeads {
				cached := s.Cached
				if c.Select && s.Select != nil {
					cached = len(s.Select[h])*l.PageSize + s.Cached%l.PageSize
				}
				parts := pinnedCut(l, r, c, cached+grown, s.Cached+least+grown, grown > 0)
				items += parts
				states += n * parts
			}
		}
	}
	if r.FillRows {
		items += ceilDiv(l.Rows-rows, l.tile()) * l.KVHeads
	}
	return items, states
}

// pinnedCut is how many parts some cached tokens have for a query at a position; in a
// launch of several steps an earlier one may see a chunk more of a window.
func pinnedCut(l *Limits, r *Request, c *Class, cached, query int, grows bool) int {
	seen, all := 0, ceilDiv(cached, l.ChunkTokens)
	for chunk := range all {
		first, last := chunk*l.ChunkTokens, (chunk+1)*l.ChunkTokens-1
		if c.Window == 0 || first < c.Sinks || last > query-c.Window {
			seen++
		}
	}
	if grows && seen < all {
		seen++
	}
	return max(1, ceilDiv(seen*l.ChunkTokens, r.PinTokens))
}
