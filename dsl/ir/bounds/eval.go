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
	if in.Op == ir.OpBits && (t == ir.F32 && in.Args[0].Type == ir.U32 || t == ir.U32 && in.Args[0].Type == ir.F32 &&
		args[0].known) {
		return args[0] // an integer that is kept as a float's bits, and taken back
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
		if w, ok := args[0].f.single(); ok && w.word != nil && w.word.Digits > 0 &&
			multiple(args[1].f, int64(w.word.Digits)) {
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
		if w, ok := args[0].f.single(); ok && w.word != nil && w.word.Digits > 0 && args[1].f.isConst() &&
			args[1].f.k == 1<<w.word.Digits-1 {
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
	case ir.OpUniform, ir.OpOpaque:
		return args[0]
	case ir.OpShflIdx, ir.OpShflXor, ir.OpShflUp, ir.OpShflDown:
		s := a.fresh(opaque, args[0].iv.meet(rangeOf(t)))
		s.deps, s.ups = []form{args[0].f}, a.lastingBounds(args[0].f) // of every lane: all of them are here
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
