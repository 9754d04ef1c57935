package bounds

import "slices"

// Limits of a proof.
const (
	maxSymbols = 56 // symbols that it speaks of
	maxRows    = 160
	maxSplits  = 4 // symbols that are one of two values, one after another
)

// atMost reports whether f ≤ 0 could be proved.
func (a *analysis) atMost(f form) bool {
	if a.dead || a.hi(f) <= 0 {
		return true
	}
	if f.k >= inf || len(f.terms) == 0 {
		return false
	}
	f = f.reduced()
	key := f.key()
	if p, ok := a.proofs[key]; ok && p.known == a.knowledge() {
		return p.holds
	}
	holds := a.proves(f, maxSplits)
	a.proofs[key] = proof{a.knowledge(), holds} // of what is known behind it: it may have made products
	return holds
}

// proof is how the last proof of a form came out, and what was known then. Without another thing known it comes out
// the same.
type proof struct {
	known int
	holds bool
}

// proves looks for non-negative multiples of what is known, forms that are at most 0, whose
// sum with f is at most 0 whatever its symbols are. Where that fails it tries both values
// of a symbol that is one of two.
func (a *analysis) proves(f form, splits int) bool {
	p := a.problem(f)
	most, left := p.bound(0)
	if most > 0 && p.cuts() {
		most, left = p.bound(0)
	}
	if most <= 0 {
		return true
	}
	if splits == 0 {
		return false
	}
	for _, s := range p.candidates(left) {
		if a.bothWays(f, s, splits-1) {
			return true
		}
	}
	return a.eachPower(p, f, splits-1)
}

// maxPowers is how many amounts of a shift are told apart.
const maxPowers = 8

// eachPower proves f for each amount that something is shifted by.
func (a *analysis) eachPower(p *problem, f form, splits int) bool {
	i := slices.IndexFunc(p.symbols, func(s *symbol) bool { return s.powers() > 0 })
	if i < 0 {
		return false
	}
	x := p.symbols[i].x
	for v := a.lo(x); v <= a.hi(x); v++ {
		mark, dead := a.enter()
		a.assumeAtMost(x.plus(-v))
		a.assumeAtMost(x.negated().plus(v))
		for _, s := range p.symbols {
			if (s.kind == power || s.kind == root) && s.x.equal(x) {
				w := shift(s.kind, s.n, v)
				a.restrict(s, interval{w, w}, 2)
			}
		}
		ok := a.dead || a.hi(f) <= 0 || a.proves(f, splits)
		a.leave(mark, dead)
		if !ok {
			return false
		}
	}
	return true
}

// powers is how many amounts a symbol is shifted by, where they are several and few.
func (s *symbol) powers() int64 {
	x, ok := s.x.single()
	if s.kind != power && s.kind != root || !ok || x.hi == x.lo || x.hi-x.lo >= maxPowers {
		return 0
	}
	return x.hi - x.lo + 1
}

// maxTried is how many symbols are tried to split a proof by.
const maxTried = 2

// candidates are symbols that are one of two forms: first those of the form itself and of
// what a bound has left of it.
func (p *problem) candidates(left form) (out []*symbol) {
	near := func(s *symbol) bool { return p.f.coef(s) != 0 || left.coef(s) != 0 }
	for _, fits := range []func(*symbol) bool{near, func(s *symbol) bool { return !near(s) && s.kind == chosen }} {
		for _, s := range p.symbols {
			if s.twofold() && fits(s) && len(out) < maxTried && !s.decided() {
				out = append(out, s)
			}
		}
	}
	return out
}

// decided reports whether it is a fact which of its forms a symbol is.
func (s *symbol) decided() bool {
	for _, v := range []form{s.x, s.y} {
		d := of(s).minus(v)
		if slices.ContainsFunc(s.facts, func(ft *fact) bool { return ft.f.equal(d) }) &&
			slices.ContainsFunc(s.facts, func(ft *fact) bool { return ft.f.equal(d.negated()) }) {
			return true
		}
	}
	return false
}

// twofold reports whether a symbol is one of two forms.
func (s *symbol) twofold() bool { return s.kind == chosen || s.kind == smaller || s.kind == larger }

// bothWays proves f for both values that a symbol can have.
func (a *analysis) bothWays(f form, s *symbol, splits int) bool {
	for i, v := range []form{s.x, s.y} {
		mark, dead := a.enter()
		switch s.kind {
		case chosen:
			a.assume(s.cond, i == 0)
		case smaller:
			a.assumeAtMost(s.x.minus(s.y).signed(i == 0))
		case larger:
			a.assumeAtMost(s.y.minus(s.x).signed(i == 0))
		}
		d := of(s).minus(v)
		a.assumeAtMost(d)
		a.assumeAtMost(d.negated())
		ok := a.dead
		if !ok {
			g, fits := sum(1, f, -f.coef(s), d)
			ok = fits && (a.hi(g) <= 0 || a.proves(g.reduced(), splits))
		}
		a.leave(mark, dead)
		if !ok {
			return false
		}
	}
	return true
}

// signed is f, or −f.
func (f form) signed(positive bool) form {
	if positive {
		return f
	}
	return f.negated()
}

// reduced is f without a factor that all its symbols have: it is at most 0 where f is.
func (f form) reduced() form {
	g := int64(0)
	for _, t := range f.terms {
		g = gcd(g, t.c)
	}
	if g < 2 {
		return f
	}
	out := form{k: ceilDiv(f.k, g)}
	for _, t := range f.terms {
		out.terms = append(out.terms, term{t.s, t.c / g})
	}
	return out
}

// tight bounds a form from above, better than hi where relations of its symbols matter.
func (a *analysis) tight(f form) int64 {
	best := a.hi(f)
	if a.dead || len(f.terms) == 0 || f.k >= inf {
		return best
	}
	a.nested++
	defer func() { a.nested-- }()
	most, _ := a.problem(f).bound(-inf)
	return min(best, most)
}

// span is what a form can be.
func (a *analysis) span(f form) interval { return interval{-a.tight(f.negated()), a.tight(f)} }

// settled is what a symbol that may have wrapped is, where it has not and is a symbol; others
// are themselves.
func (a *analysis) settled(s *symbol) *symbol {
	if s == nil || s.kind != wrapped {
		return s
	}
	x, ok := s.x.single()
	r := rangeOf(s.wrap.t)
	if !ok || x.lo < r.lo || x.hi > r.hi && (x.kind != product || a.most(x) > r.hi) {
		return nil
	}
	return x
}

// most bounds a product by what its factors can be.
func (a *analysis) most(x *symbol) int64 {
	return x.x.terms[0].s.interval.times(x.y.terms[0].s.interval).hi
}

// below reports whether f ≤ g is a fact, or g is the larger of numbers of which it is one.
func (a *analysis) below(f, g form) bool {
	if a.hi(f.minus(g)) <= 0 || a.known(f.minus(g)) {
		return true
	}
	m, ok := g.single()
	return ok && m.kind == larger && (a.below(f, m.x) || a.below(f, m.y))
}

// named reports whether f is g, or a symbol for it.
func (f form) named(g form) bool {
	s, ok := f.single()
	return f.equal(g) || ok && s.kind == alias && s.x.equal(g)
}

// known reports whether f ≤ 0 is a fact.
func (a *analysis) known(f form) bool {
	for _, t := range f.terms {
		for _, ft := range t.s.facts {
			if d, ok := a.passing(1, f, -1, ft.f); ok && a.hi(d) <= 0 {
				return true
			}
		}
	}
	return false
}

// product adds the bounds of x·y over the rectangle that x and y lie in (McCormick 1976),
// and, for y of at least 0, y times the bounds of x.
func (p *problem) product(s *symbol) {
	self, x, y := of(s), s.x.terms[0].s, s.y.terms[0].s
	corner := func(sign, cx, cy int64) { // sign·(s − cx·y − cy·x + cx·cy) ≤ 0
		if cx <= -inf || cx >= inf || cy <= -inf || cy >= inf {
			return
		}
		if g, ok := sum(cx, s.y, cy, s.x); ok {
			p.row(sign, self, -sign, g, mul(sign, mul(cx, cy)))
		}
	}
	corner(1, x.hi, y.lo)
	corner(1, x.lo, y.hi)
	corner(-1, x.lo, y.lo)
	corner(-1, x.hi, y.hi)
	p.times(x, y)
	if x != y {
		p.times(y, x)
	}
}

// times adds y times what bounds x by few other symbols.
func (p *problem) times(x, y *symbol) {
	// A sum that is a factor is bounded by a problem of its own (tight), which is not to make more sums.
	if y.lo < 0 || p.a.nested > 1 {
		return
	}
	bounds := slices.Clone(x.ups)
	if x.kind == index {
		bounds = append(bounds, x.y.plus(-1))
	}
	for _, ft := range x.facts {
		if c := ft.f.coef(x); c == 1 {
			bounds = append(bounds, of(x).minus(ft.f))
		}
	}
	for _, g := range bounds {
		if len(g.terms) > 2 {
			continue
		}
		if h, ok := p.a.multiplied(g, of(y)); ok {
			xy, ok := p.a.multiplied(of(x), of(y))
			if ok {
				p.row(1, xy, -1, h, 0)
			}
		}
	}
}

// scaled is c·f.
func scaled(f form, c int64) form {
	g, ok := sum(c, f, 0, form{})
	if !ok {
		return form{k: inf}
	}
	return g
}

// sure reports whether a wrapped symbol is what it would be without a bound.
func (a *analysis) sure(s *symbol) bool {
	if s.x.k >= inf {
		return false
	}
	iv, r := a.both(s.x), rangeOf(s.wrap.t)
	return s.resolved() || iv.in(r) && iv.hi < inf
}

// resolved reports whether a wrapped symbol's bounds tell that it has not wrapped.
func (s *symbol) resolved() bool {
	w := s.wrap
	if rangeOf(w.t).hi >= inf {
		return w.exact.lo > -inf && s.hi < inf
	}
	r := rangeOf(w.t)
	size := r.hi - r.lo + 1
	return addHi(w.exact.hi, -size) < s.lo && add(w.exact.lo, size) > s.hi
}
