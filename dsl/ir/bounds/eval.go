package bounds

import "github.com/mkgen/mkgen/dsl/ir"

// val is what is known of a value: of an integer its form and what it can be, of a
// predicate what it says, of anything that was copied from memory from where.
type val struct {
	f     form
	iv    interval
	known bool
	c     *cond
	src   *source
}

// source is where a value was loaded from: byte at of a buffer of known content.
type source struct {
	buf *ir.Buf
	at  form
}

func (a *analysis) get(v *ir.Value) val {
	switch {
	case v.Const && v.Type == ir.Pred:
		op := never
		if v.Bits != 0 {
			op = always
		}
		return val{known: true, c: &cond{op: op}}
	case v.Const && v.Type.IsInt():
		k := int64(v.Bits)
		if v.Type == ir.U64 && v.Bits >= uint64(inf) {
			return a.unknown(v.Type)
		}
		return val{f: constant(k), iv: interval{k, k}, known: true}
	case v.ID < 0:
		return val{}
	}
	if x := a.vals[v.ID]; x.known || !v.Type.IsInt() {
		return a.unwrapped(x)
	}
	a.vals[v.ID] = a.unknown(v.Type)
	return a.vals[v.ID]
}

// unwrapped is x without what may have wrapped, where it is known by now that it has not.
func (a *analysis) unwrapped(x val) val {
	for _, t := range x.f.terms {
		if t.s.kind != wrapped || !a.inRange(t.s.x, rangeOf(t.s.wrap.t)) {
			continue
		}
		f, ok := sum(1, x.f, -t.c, of(t.s))
		if ok {
			f, ok = sum(1, f, t.c, t.s.x)
		}
		if ok {
			return a.unwrapped(val{f: f, iv: x.iv.meet(a.both(f)), known: true})
		}
	}
	return x
}

// inRange proves that a form is in a range.
func (a *analysis) inRange(f form, r interval) bool {
	if f.k >= inf || f.k <= -inf {
		return false
	}
	iv := a.both(f)
	low, high := iv.lo >= r.lo, iv.hi <= r.hi && iv.hi < inf
	if !low {
		low = a.settle(constant(r.lo).minus(f))
	}
	if low && !high {
		high = a.settle(f.plus(-min(r.hi, inf/2)))
	}
	return low && high
}

// bare is the exact form of what was computed modulo the width of t: sums and products of
// such values are right modulo that width, too, so that only what comes out must be in range.
func bare(x val, t ir.Type) (f form, from *wrap) {
	if s, ok := x.f.single(); ok && s.kind == wrapped && s.wrap.t == t && s.x.k < inf {
		return s.x, s.wrap
	}
	return x.f, nil
}

// ring evaluates a sum or product.
func (a *analysis) ring(in *ir.Instr, t ir.Type, x, y val, op func(f, g form) (form, bool)) val {
	f, from := bare(x, t)
	g, fromY := bare(y, t)
	out, ok := op(f, g)
	if from == nil {
		from = fromY
	}
	v := a.result(in, t, out, ok)
	if s, single := v.f.single(); single && s.kind == wrapped && s.wrap.in == in && from != nil {
		s.wrap = from
	}
	return v
}

// result makes the value of an instruction out of its exact form: itself, where that is
// proved to be in the type's range, and else that modulo the type's width.
func (a *analysis) result(in *ir.Instr, t ir.Type, f form, ok bool) val {
	r := rangeOf(t)
	if ok && a.inRange(f, r) {
		a.fine[in] = true
		return val{f: f, iv: a.both(f).meet(r), known: true}
	}
	s := a.fresh(wrapped, r)
	s.x, s.wrap = f, &wrap{in: in, exact: a.span(f), t: t}
	if !ok {
		s.x, s.wrap.exact = constant(inf), interval{-inf, inf}
	}
	return a.value(s)
}

// settle proves f ≤ 0 and keeps it as a fact.
func (a *analysis) settle(f form) bool {
	if !a.atMost(f) {
		return false
	}
	a.assumeAtMost(f)
	return true
}

// instr evaluates a pure instruction.
func (a *analysis) pure(in *ir.Instr) val {
	args := make([]val, len(in.Args))
	for i, x := range in.Args {
		args[i] = a.get(x)
	}
	t := in.T
	if len(in.Res) > 0 {
		t = in.Res[0].Type
	}
	if t == ir.Pred {
		return val{known: true, c: a.condition(in, args)}
	}
	if !t.IsInt() && t != ir.U16 {
		return val{}
	}
	if len(args) > 0 && !in.Args[0].Type.IsInt() && in.Op != ir.OpSelect && in.Args[0].Type != ir.U16 {
		return a.unknown(t)
	}
	switch in.Op {
	case ir.OpAdd:
		return a.ring(in, t, args[0], args[1], func(f, g form) (form, bool) {
			out, ok := sum(1, f, 1, g)
			return a.joined(out), ok
		})
	case ir.OpSub:
		return a.ring(in, t, args[0], args[1], func(f, g form) (form, bool) { return sum(1, f, -1, g) })
	case ir.OpNeg:
		return a.ring(in, t, args[0], val{}, func(f, _ form) (form, bool) { return sum(-1, f, 0, form{}) })
	case ir.OpMul:
		return a.ring(in, t, args[0], args[1], a.multiplied)
	case ir.OpShl:
		if k := args[1].f; k.isConst() && k.k < 8*int64(t.Size()) && k.k < 62 {
			return a.ring(in, t, args[0], val{}, func(f, _ form) (form, bool) { return sum(1<<k.k, f, 0, form{}) })
		}
		return a.shifted(in, t, args[0], args[1])
	case ir.OpDiv:
		return a.divided(args[0], args[1], t)
	case ir.OpRem:
		return a.modulo(args[0], args[1], t)
	case ir.OpShr:
		if w, ok := args[0].f.single(); ok && w.word != nil && w.word.Digits > 0 && multiple(args[1].f, int64(w.word.Digits)) {
			s := a.fresh(opaque, interval{0, w.hi})
			s.word, s.deps = &Word{Digits: w.word.Digits, Below: w.word.Below}, []form{args[0].f}
			return a.value(s)
		}
		if k := args[1].f; k.isConst() && k.k < 62 {
			return a.divided(args[0], val{f: constant(1 << k.k)}, t)
		}
		if args[0].iv.lo >= 0 {
			if k := args[1].iv; args[0].f.isConst() && k.hi < 62 && k.lo >= 0 {
				return a.value(a.powered(root, args[0].f.k, args[1]))
			}
			s := a.fresh(opaque, interval{0, args[0].iv.hi})
			s.ups, s.deps = []form{args[0].f}, []form{args[0].f}
			return a.value(s)
		}
	case ir.OpMin:
		return a.extreme(smaller, args[0], args[1])
	case ir.OpMax:
		return a.extreme(larger, args[0], args[1])
	case ir.OpAnd:
		if w, ok := args[0].f.single(); ok && w.word != nil && w.word.Digits > 0 && args[1].f.isConst() && args[1].f.k == 1<<w.word.Digits-1 {
			s := a.fresh(opaque, interval{0, w.word.Below - 1})
			s.deps = []form{args[0].f}
			return a.value(s)
		}
		return a.anded(args[0], args[1], t)
	case ir.OpOr, ir.OpXor:
		return a.bitwise(in.Op, args[0], args[1], t)
	case ir.OpSelect:
		return a.selected(args[0].c, args[1], args[2], t)
	case ir.OpCvt:
		return a.result(in, t, args[0].f, true)
	case ir.OpBits:
		if in.Args[0].Type == t {
			return args[0]
		}
	case ir.OpUniform:
		return args[0]
	case ir.OpShflIdx, ir.OpShflXor, ir.OpShflUp, ir.OpShflDown:
		s := a.fresh(opaque, args[0].iv.meet(rangeOf(t)))
		s.deps = []form{args[0].f}
		return a.value(s)
	}
	return a.unknown(t)
}

// multiplied is the product of two forms.
func (a *analysis) multiplied(f, g form) (form, bool) {
	if g.isConst() {
		return sum(g.k, f, 0, form{})
	}
	if f.isConst() {
		return sum(f.k, g, 0, form{})
	}
	f, g = a.aliased(f), a.aliased(g)
	out, ok := sum(g.k, form{terms: f.terms}, f.k, form{terms: g.terms})
	out.k = mul(f.k, g.k)
	for _, t := range f.terms {
		for _, u := range g.terms {
			x, y := t.s, u.s
			if x.id > y.id {
				x, y = y, x
			}
			p := a.shared(product, of(x), of(y), 0, func() *symbol {
				return a.fresh(product, x.interval.times(y.interval))
			})
			var fits bool
			out, fits = sum(1, out, mul(t.c, u.c), of(p))
			ok = ok && fits
		}
	}
	return out, ok
}

// aliased is a symbol for a sum of several.
func (a *analysis) aliased(f form) form {
	if len(f.terms) < 2 {
		return f
	}
	return of(a.shared(alias, f, form{}, 0, func() *symbol {
		s := a.fresh(alias, a.span(f))
		if mod, rem := congruence(f); mod > 1 {
			s.mod, s.rem = mod, rem
		}
		return s
	}))
}

// joined puts x for n·⌊x/n⌋ + x mod n.
func (a *analysis) joined(f form) form {
	for _, t := range f.terms {
		if t.s.kind != remainder {
			continue
		}
		for _, u := range f.terms {
			if u.s.kind == quotient && u.s.n == t.s.n && u.s.x.equal(t.s.x) && u.c == mul(t.c, t.s.n) {
				g, ok := sum(1, f, -t.c, of(t.s))
				if ok {
					g, ok = sum(1, g, -u.c, of(u.s))
				}
				if ok {
					g, ok = sum(1, g, t.c, t.s.x)
				}
				if ok {
					return g
				}
			}
		}
	}
	return f
}

// parts writes f as n·q + r, r being all that is no multiple of n; not ok where r may be
// negative.
func (a *analysis) parts(f form, n int64) (q, r form, ok bool) {
	for _, t := range f.terms {
		if t.c%n == 0 {
			q.terms = append(q.terms, term{t.s, t.c / n})
		} else {
			r.terms = append(r.terms, t)
		}
	}
	r.k = ((f.k % n) + n) % n
	q.k = (f.k - r.k) / n
	if a.lo(r) < 0 {
		r.k, q.k = f.k, 0
	}
	return q, r, a.lo(r) >= 0 || a.atMost(r.negated())
}

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
			ivs, last = append(ivs, a.both(v.f).meet(v.iv)), *v
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
