package bounds

// maxCuts bounds the rows that cuts adds.
const maxCuts = 48

// cuts adds what follows for integers (Chvátal 1973): of n·⌊x/n⌋ ≤ x and what bounds x from
// above, and that in turn, all that is a multiple of n is divided by n and the rest rounded.
func (p *problem) cuts() bool {
	before := len(p.rows)
	known := p.rows[:before:before]
	for _, s := range p.symbols {
		if s.kind != quotient {
			continue
		}
		first, ok := sum(s.n, of(s), -1, s.x)
		if !ok {
			continue
		}
		p.cut(first, s.n, before)
		level := []form{first}
		for range 3 {
			var next []form
			for _, h := range level {
				next = append(next, p.eliminated(known, h, s)...)
			}
			for _, h := range next {
				p.cut(h, s.n, before)
			}
			level = next
		}
	}
	return len(p.rows) > before
}

// eliminated are h and a known row together, without one of h's symbols.
func (p *problem) eliminated(known []form, h form, but *symbol) (out []form) {
	for _, t := range h.terms {
		if t.c >= 0 || t.s == but {
			continue
		}
		for _, r := range known {
			if c := r.coef(t.s); c > 0 && r.coef(but) == 0 && len(r.terms) <= 5 && len(out) < 6 {
				d := gcd(c, -t.c)
				if g, ok := p.a.passing(c/d, h, -t.c/d, r); ok && len(g.terms) <= 6 {
					out = append(out, g.kept())
				}
			}
		}
	}
	return out
}

// cut adds h ≤ 0, divided by n.
func (p *problem) cut(h form, n int64, before int) {
	whole, rest := form{}, form{k: h.k}
	for _, t := range h.terms {
		if t.c%n == 0 {
			whole.terms = append(whole.terms, term{t.s, t.c / n})
		} else {
			rest.terms = append(rest.terms, t)
		}
	}
	least := p.a.lo(rest)
	if least <= -inf || len(whole.terms) == 0 || len(p.rows)-before >= maxCuts {
		return
	}
	whole.k = -floorDiv(-least, n)
	if p.a.hi(whole) > 0 {
		p.rows = append(p.rows, whole)
	}
}
