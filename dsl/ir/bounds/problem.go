package bounds

import "slices"

// problem is a form, and forms that are known to be at most 0 and that may bound it.
type problem struct {
	a       *analysis
	f       form
	symbols []*symbol
	place   map[*symbol]int
	rows    []form
	facts   map[*fact]bool
}

// problem collects what is known of the form's symbols, of those that this speaks of, and
// so on.
func (a *analysis) problem(f form) *problem {
	p := &problem{a: a, f: f, place: map[*symbol]int{}, facts: map[*fact]bool{}}
	p.speakOf(f)
	for i := 0; i < len(p.symbols); i++ {
		p.collect(p.symbols[i])
	}
	p.rows = slices.DeleteFunc(p.rows, func(g form) bool {
		return slices.ContainsFunc(g.terms, func(t term) bool { _, ok := p.place[t.s]; return !ok })
	})
	return p
}

func (p *problem) speakOf(f form) {
	for _, t := range f.terms {
		if _, ok := p.place[t.s]; !ok && len(p.symbols) < maxSymbols {
			p.place[t.s] = len(p.symbols)
			p.symbols = append(p.symbols, t.s)
		}
	}
}

// row adds a·f + b·g + k ≤ 0, where its bounds do not say that already.
func (p *problem) row(a int64, f form, b int64, g form, k int64) {
	if len(p.rows) >= maxRows {
		return
	}
	h, ok := p.a.passing(a, f, b, g)
	if !ok {
		return
	}
	h.k = clamp(h.k + k)
	if h.k >= inf || h.k <= -inf || p.a.hi(h) <= 0 {
		return
	}
	h = h.kept()
	p.rows = append(p.rows, h)
	p.speakOf(h)
}

// collect adds what is known of a symbol.
func (p *problem) collect(s *symbol) {
	self := of(s)
	for _, g := range s.ups {
		p.row(1, self, -1, g, 0)
	}
	for _, g := range s.downs {
		p.row(-1, self, 1, g, 0)
	}
	switch s.kind {
	case quotient:
		if r, ok := p.a.cons[consKey(remainder, s.x, form{}, s.n)]; ok {
			p.speakOf(of(r))
		}
		p.row(s.n, self, -1, s.x, 0)
		p.row(-s.n, self, 1, s.x, 1-s.n)
	case remainder:
		p.row(1, self, -1, s.x, 0)
		if w, ok := s.x.single(); ok && w.word != nil && w.word.Low > 0 && s.n == 1<<w.word.Low {
			if q, ok := p.a.cons[consKey(quotient, s.x, form{}, s.n)]; ok {
				p.row(1, self, 1, of(q), -w.word.Sum)
			}
		}
		if q, ok := p.a.cons[consKey(quotient, s.x, form{}, s.n)]; ok {
			if g, ok := sum(1, s.x, -s.n, of(q)); ok {
				p.row(1, self, -1, g, 0)
				p.row(-1, self, 1, g, 0)
			}
		}
	case masked:
		p.row(1, self, -1, s.x, 0)
	case residue:
		p.row(1, self, -1, s.x, 0)
		p.row(1, self, -1, s.y, 1)
	case ratio:
		p.ratio(s)
	case smaller:
		p.row(1, self, -1, s.x, 0)
		p.row(1, self, -1, s.y, 0)
	case larger:
		p.row(-1, self, 1, s.x, 0)
		p.row(-1, self, 1, s.y, 0)
	case product:
		p.product(s)
	case bitwise:
		if g, ok := sum(1, s.x, 1, s.y); ok {
			p.row(1, self, -1, g, 0)
		}
	case index:
		p.row(-1, self, 1, s.x, 0)
		p.row(1, self, -1, s.y, 1)
	case alias:
		p.row(1, self, -1, s.x, 0)
		p.row(-1, self, 1, s.x, 0)
	case wrapped:
		if x := p.a.settled(s); x != nil && x != s {
			p.row(1, self, -1, of(x), 0)
			p.row(-1, self, 1, of(x), 0)
		} else if p.a.sure(s) {
			p.row(1, self, -1, s.x, 0)
			p.row(-1, self, 1, s.x, 0)
		}
	}
	for _, ft := range s.facts {
		if !p.facts[ft] {
			p.facts[ft] = true
			p.row(1, ft.f, 0, form{}, 0)
		}
	}
}

// ratio adds that y·s ≤ x < y·(s + 1), by the bounds of y; and where x is u·v and u ≤ y
// that s ≤ v.
func (p *problem) ratio(s *symbol) {
	self, y := of(s), p.a.both(s.y)
	if y.lo >= 1 {
		p.row(y.lo, self, -1, s.x, 0)
	}
	if y.hi < inf {
		p.row(-y.hi, self, 1, s.x, 1-y.hi)
	}
	x, ok := s.x.single()
	if ok && x.kind == index { // x < u·y
		if h, ok := x.y.single(); ok && h.kind == product {
			if h.x.named(s.y) {
				p.row(1, self, -1, h.y, 1)
			} else if h.y.named(s.y) {
				p.row(1, self, -1, h.x, 1)
			}
		} else if len(x.y.terms) > 0 && len(s.y.terms) > 0 {
			if c := x.y.terms[0].c / s.y.terms[0].c; scaled(s.y, c).equal(x.y) {
				p.row(1, self, 0, form{}, 1-c)
			}
		}
	}
	if len(s.x.terms) == 1 && len(s.y.terms) == 1 {
		c := s.x.terms[0].c / s.y.terms[0].c
		if f, ok := sum(1, s.x, -c, s.y); ok && c > 0 && p.a.known(f.reduced()) {
			p.row(1, self, 0, form{}, -c)
		}
	}
	if x = p.a.settled(x); x != nil && x.kind == product {
		if p.a.below(x.x, s.y) {
			p.row(1, self, -1, x.y, 0)
		}
		if p.a.below(x.y, s.y) {
			p.row(1, self, -1, x.x, 0)
		}
		p.ordered(s, x)
	}
}

// ordered adds that u·v/y is at most w·v/y where u is at most w.
func (p *problem) ordered(s, x *symbol) {
	for _, t := range p.symbols {
		if t == s || t.kind != ratio || !t.y.equal(s.y) {
			continue
		}
		o, ok := t.x.single()
		if o = p.a.settled(o); !ok || o == nil || o.kind != product {
			continue
		}
		for _, w := range [][4]form{{x.x, x.y, o.x, o.y}, {x.x, x.y, o.y, o.x}, {x.y, x.x, o.x, o.y}, {x.y, x.x, o.y, o.x}} {
			if !w[1].equal(w[3]) {
				continue
			}
			if p.a.below(w[0], w[2]) {
				p.row(1, of(s), -1, of(t), 0)
			}
			if p.a.below(w[2], w[0]) {
				p.row(1, of(t), -1, of(s), 0)
			}
		}
	}
}
