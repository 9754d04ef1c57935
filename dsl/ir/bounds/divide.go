package bounds

import "github.com/mkgen/mkgen/dsl/ir"

func (a *analysis) divided(x, y val, t ir.Type) val {
	if x.iv.lo < 0 {
		return a.unknownOf(t, x, y)
	}
	if !y.f.isConst() {
		lo := a.lo(y.f)
		s := a.shared(ratio, x.f, y.f, 0, func() *symbol {
			return a.fresh(ratio, interval{0, floorDiv(x.iv.hi, max(1, lo))})
		})
		s.deps = []form{x.f, y.f}
		return a.value(s)
	}
	n := y.f.k
	if n <= 0 {
		return a.unknownOf(t, x, y)
	}
	q, r, ok := a.parts(x.f, n)
	if !ok {
		q, r = form{}, x.f
	}
	if iv := a.both(r); iv.hi < n && iv.lo >= 0 {
		return val{f: q, iv: a.both(q).meet(rangeOf(t)), known: true}
	}
	// (b·⌊z/b⌋)/n and ⌊z/b⌋/c are quotients of z where that is simple.
	if s, single := r.single(); single && s.kind == quotient && mul(s.n, n) < inf {
		n, r = mul(s.n, n), s.x
	}
	s := a.shared(quotient, r, form{}, n, func() *symbol {
		iv := a.span(r).meet(interval{0, inf})
		s := a.fresh(quotient, interval{floorDiv(iv.lo, n), floorDiv(iv.hi, n)})
		if mod, rem := congruence(r); mod%n == 0 && rem%n == 0 && mod > n {
			s.mod, s.rem = mod/n, rem/n
		}
		return s
	})
	f, ok := sum(1, q, 1, of(s))
	if !ok {
		return a.unknownOf(t, x, y)
	}
	if !q.isConst() { // a sum of two numbers, neither of whose bounds tells what both are at most
		whole := a.span(x.f).meet(x.iv)
		a.assumeAtMost(f.plus(-floorDiv(whole.hi, n)))
		a.assumeAtMost(f.negated().plus(floorDiv(whole.lo, n)))
	}
	return val{f: f, iv: a.both(f).meet(interval{floorDiv(x.iv.lo, n), inf}).meet(rangeOf(t)), known: true}
}

func (a *analysis) modulo(x, y val, t ir.Type) val {
	if x.iv.lo < 0 {
		return a.unknownOf(t, x, y)
	}
	if !y.f.isConst() {
		hi := a.hi(y.f)
		s := a.shared(residue, x.f, y.f, 0, func() *symbol {
			return a.fresh(residue, interval{0, min(x.iv.hi, add(hi, -1))})
		})
		s.deps = []form{x.f, y.f}
		return a.value(s)
	}
	n := y.f.k
	if n <= 0 {
		return a.unknownOf(t, x, y)
	}
	r := x.f
	if _, rest, ok := a.parts(x.f, n); ok {
		r = rest
	}
	iv := a.both(r)
	if iv.hi < n && iv.lo >= 0 {
		return val{f: r, iv: iv, known: true}
	}
	s := a.shared(remainder, r, form{}, n, func() *symbol {
		s := a.fresh(remainder, interval{0, min(n-1, iv.hi)})
		mod, rem := congruence(r)
		if g := gcd(mod, n); g > 1 {
			s.mod, s.rem = g, rem%g
			s.hi = min(s.hi, floorDiv(s.hi-s.rem, g)*g+s.rem)
		}
		if w, ok := r.single(); ok && w.kind == wrapped && n&(n-1) == 0 {
			s.kind = opaque // low bits are the same with and without a bound
		}
		return s
	})
	return a.value(s)
}

// unknownOf is unknown, made of other values.
func (a *analysis) unknownOf(t ir.Type, from ...val) val {
	v := a.unknown(t)
	for _, x := range from { // a type has more than one value
		v.f.terms[0].s.deps = append(v.f.terms[0].s.deps, x.f)
	}
	return v
}

func (a *analysis) extreme(k kind, x, y val) val {
	if a.hi(x.f.minus(y.f)) <= 0 {
		if k == smaller {
			return x
		}
		return y
	}
	if a.hi(y.f.minus(x.f)) <= 0 {
		if k == smaller {
			return y
		}
		return x
	}
	s := a.shared(k, x.f, y.f, 0, func() *symbol {
		x.iv, y.iv = x.iv.meet(a.span(x.f)), y.iv.meet(a.span(y.f))
		iv := interval{min(x.iv.lo, y.iv.lo), min(x.iv.hi, y.iv.hi)}
		if k == larger {
			iv = interval{max(x.iv.lo, y.iv.lo), max(x.iv.hi, y.iv.hi)}
		}
		s := a.fresh(k, iv)
		s.common(x.f, y.f)
		return s
	})
	return a.value(s)
}

// common sets the congruence of one of two forms.
func (s *symbol) common(x, y form) {
	xm, xr := congruence(x)
	ym, yr := congruence(y)
	if g := gcd(gcd(xm, ym), xr-yr); g > 1 {
		s.mod, s.rem = g, ((xr%g)+g)%g
	}
}

// selected is c ? x : y. What x and y can be is asked where c says which it is.
func (a *analysis) selected(c *cond, x, y val, t ir.Type) val {
	if x.f.equal(y.f) {
		return x
	}
	var ivs []interval
	var last val
	vs := []*val{&x, &y}
	for i, v := range vs {
		mark, dead := a.enter()
		a.assume(c, i == 0)
		if !a.dead {
			*v = a.unwrapped(*v)
			ivs, last = append(ivs, c.bounds(i == 0, v.f, a.both(v.f).meet(v.iv))), *v
		}
		a.leave(mark, dead)
	}
	switch len(ivs) {
	case 0:
		return a.unknown(t)
	case 1:
		return last
	}
	s := a.fresh(chosen, ivs[0].hull(ivs[1]))
	s.x, s.y, s.cond = x.f, y.f, c
	s.common(x.f, y.f)
	if c == nil {
		s.cond = &cond{}
	}
	return a.value(s)
}

// bounds is iv, the range of f, where c is truth and compares f itself: of a sum, which an assumption narrows as a
// whole, its symbols' ranges do not show that.
func (c *cond) bounds(truth bool, f form, iv interval) interval {
	for ; c != nil && c.op == negation; c = c.l {
		truth = !truth
	}
	if c == nil || c.op != isZero && c.op != atMostZero || c.f.k >= inf || f.k >= inf {
		return iv
	}
	d := f.minus(c.f) // f = c.f + d
	if !d.isConst() {
		return iv
	}
	switch {
	case c.op == isZero && truth:
		return iv.meet(interval{d.k, d.k})
	case c.op == isZero && iv.hi == d.k:
		iv.hi--
	case c.op == isZero && iv.lo == d.k:
		iv.lo++
	case c.op == atMostZero && truth:
		return iv.meet(interval{-inf, d.k})
	case c.op == atMostZero:
		return iv.meet(interval{d.k + 1, inf})
	}
	return iv
}

// shifted is x << y by an amount that is not fixed.
func (a *analysis) shifted(in *ir.Instr, t ir.Type, x, y val) val {
	if y.iv.lo < 0 || y.iv.hi > 31 || x.iv.lo < 0 || x.iv.hi >= inf {
		return a.unknownOf(t, x, y)
	}
	if x.f.isConst() {
		return a.result(in, t, of(a.powered(power, x.f.k, y)), true)
	}
	s := a.fresh(opaque, x.iv.times(interval{1 << y.iv.lo, 1 << y.iv.hi}))
	s.deps = []form{x.f, y.f}
	return a.result(in, t, of(s), true)
}

// powered is n·2^x or ⌊n/2^x⌋.
func (a *analysis) powered(k kind, n int64, x val) *symbol {
	f := a.aliased(x.f)
	s := a.shared(k, f, form{}, n, func() *symbol { return a.fresh(k, interval{0, inf}) })
	iv := a.both(f).meet(x.iv)
	lo, hi := shift(k, n, iv.lo), shift(k, n, iv.hi)
	a.restrict(s, interval{min(lo, hi), max(lo, hi)}, 1)
	return s
}

// shift is n·2^x or ⌊n/2^x⌋.
func shift(k kind, n, x int64) int64 {
	if k == power {
		return mul(n, 1<<min(x, 61))
	}
	return n >> min(x, 63)
}
