package bounds

// cond is what a predicate says.
type cond struct {
	op   condOp
	f    form
	l, r *cond
}

type condOp uint8

const (
	perhaps condOp = iota
	never
	always
	atMostZero // f ≤ 0
	isZero     // f = 0
	bothOf
	eitherOf
	negation
)

// assume adds that c is truth to what is known in the scope.
func (a *analysis) assume(c *cond, truth bool) {
	a.take(c, truth)
	for i := 0; i < len(a.choices) && !a.choosing && !a.dead; i++ {
		a.choosing = true
		a.take(a.choices[i], true)
		a.choosing = false
	}
}

// take is assume without what earlier choices come to.
func (a *analysis) take(c *cond, truth bool) {
	if c == nil {
		return
	}
	switch c.op {
	case never, always:
		if (c.op == always) != truth {
			a.dead = true
		}
	case atMostZero:
		if truth {
			a.assumeAtMost(c.f)
		} else {
			a.assumeAtMost(c.f.negated().plus(1))
		}
	case isZero:
		if truth {
			a.assumeAtMost(c.f)
			a.assumeAtMost(c.f.negated())
		} else {
			a.assumeNot(c.f)
		}
	case negation:
		a.take(c.l, !truth)
	case bothOf, eitherOf:
		if (c.op == bothOf) == truth {
			a.take(c.l, truth)
			a.take(c.r, truth)
		} else if a.excluded(c.l, truth) {
			a.take(c.r, truth)
		} else if a.excluded(c.r, truth) {
			a.take(c.l, truth)
		} else if !a.choosing && truth {
			a.choices = append(a.choices, c)
			a.note(scoped{choice: true})
		}
	}
}

// excluded reports whether c cannot be truth here.
func (a *analysis) excluded(c *cond, truth bool) bool {
	mark, dead := a.enter()
	was := a.choosing
	a.choosing = true
	a.take(c, truth)
	a.choosing = was
	out := a.dead
	a.leave(mark, dead)
	return out
}

// assumeNot is f ≠ 0: it moves a bound that is 0.
func (a *analysis) assumeNot(f form) {
	iv := a.both(f)
	switch {
	case iv.lo == 0 && iv.hi == 0:
		a.dead = true
	case iv.lo == 0:
		a.assumeAtMost(f.negated().plus(1))
	case iv.hi == 0:
		a.assumeAtMost(f.plus(1))
	case iv.lo < 0 && iv.hi > 0 && iv.hi < inf:
		if a.tight(f) <= 0 { // only a relation says so
			a.assumeAtMost(f.plus(1))
		} else if a.tight(f.negated()) <= 0 {
			a.assumeAtMost(f.negated().plus(1))
		}
	}
}

// assumeAtMost is f ≤ 0.
func (a *analysis) assumeAtMost(f form) { a.learn(f, 8) }

func (a *analysis) learn(f form, depth int) {
	if depth == 0 {
		return
	}
	switch {
	case a.dead || f.k >= inf || f.k <= -inf || a.hi(f) <= 0:
		return
	case a.lo(f) > 0 || a.known(f.negated().plus(1)):
		a.dead = true
		return
	}
	ft := &fact{f}
	for _, t := range f.terms {
		t.s.facts = append(t.s.facts, ft)
		a.note(scoped{s: t.s, fact: true})
	}
	a.narrow(f, depth)
}

// narrow narrows the bounds of a form's symbols by f ≤ 0.
func (a *analysis) narrow(f form, depth int) {
	if depth == 0 || a.dead {
		return
	}
	a.narrowFactor(f, depth)
	for i, t := range f.terms {
		rest := form{k: f.k, terms: make([]term, 0, len(f.terms))}
		rest.terms = append(append(rest.terms, f.terms[:i]...), f.terms[i+1:]...)
		least := a.lo(rest)
		if least <= -inf {
			continue
		}
		if t.c > 0 {
			a.restrict(t.s, interval{-inf, floorDiv(-least, t.c)}, depth)
		} else {
			a.restrict(t.s, interval{ceilDiv(least, -t.c), inf}, depth)
		}
	}
}

// narrowFactor narrows z by z·c + k ≤ 0, where all of a form is a multiple of z.
func (a *analysis) narrowFactor(f form, depth int) {
	if f.k <= 0 || len(f.terms) < 2 {
		return
	}
	for _, t := range f.terms {
		z := t.s
		if z.kind == product || z.lo < 0 {
			continue
		}
		c := form{}
		for _, u := range f.terms {
			switch {
			case u.s == z:
				c.k += u.c
			case u.s.kind == product && u.s.x.terms[0].s == z:
				c.terms = append(c.terms, term{u.s.y.terms[0].s, u.c})
			case u.s.kind == product && u.s.y.terms[0].s == z:
				c.terms = append(c.terms, term{u.s.x.terms[0].s, u.c})
			default:
				return
			}
		}
		if least := a.lo(c); least < 0 && least > -inf {
			a.restrict(z, interval{ceilDiv(f.k, -least), inf}, depth)
		}
		return
	}
}

// restrict narrows a symbol's bounds and those of what it is made of.
func (a *analysis) restrict(s *symbol, iv interval, depth int) {
	next := s.interval.meet(iv)
	if next == s.interval || a.dead {
		return
	}
	a.note(scoped{s: s, was: s.interval})
	s.interval = next
	if next.empty() {
		a.dead = true
		return
	}
	below := func(f form, most int64) { // f ≤ most
		if most < inf {
			a.learn(f.plus(-most), depth-1)
		}
	}
	above := func(f form, least int64) { // f ≥ least
		if least > -inf {
			a.learn(f.negated().plus(least), depth-1)
		}
	}
	switch s.kind {
	case quotient:
		above(s.x, mul(s.n, s.lo))
		below(s.x, addHi(mul(s.n, s.hi), s.n-1))
	case remainder, masked:
		above(s.x, s.lo)
	case alias:
		above(s.x, s.lo)
		below(s.x, s.hi)
	case ratio:
		if lo := a.lo(s.y); lo >= 1 {
			above(s.x, mul(lo, s.lo))
		}
	case smaller:
		above(s.x, s.lo)
		above(s.y, s.lo)
	case larger:
		below(s.x, s.hi)
		below(s.y, s.hi)
	case product:
		a.factors(s, above, below)
	case index:
		above(s.y, add(s.lo, 1))
		below(s.x, s.hi)
	case chosen:
		if a.both(s.y).meet(s.interval).empty() {
			a.assume(s.cond, true)
		} else if a.both(s.x).meet(s.interval).empty() {
			a.assume(s.cond, false)
		}
	}
}

// factors narrows the factors of a product that is at least 1.
func (a *analysis) factors(s *symbol, above, below func(form, int64)) {
	x, y := s.x.terms[0].s, s.y.terms[0].s
	if x.lo < 0 || y.lo < 0 || s.lo < 1 {
		return
	}
	above(s.x, max(1, ceilDiv(s.lo, max(1, y.hi))))
	above(s.y, max(1, ceilDiv(s.lo, max(1, x.hi))))
}
