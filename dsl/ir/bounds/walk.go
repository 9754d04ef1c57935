package bounds

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

// state is what the variables hold that addresses depend on.
type state []val

func (a *analysis) block(b *ir.Block) {
	for _, s := range b.Stmts {
		if a.dead {
			return
		}
		switch s := s.(type) {
		case *ir.Instr:
			a.instr(s)
		case *ir.Note:
		case *ir.Region:
			a.block(s.Body)
		case *ir.If:
			a.branch(s)
		case *ir.For:
			a.loop(s)
		case *ir.Roles:
			a.roles(s)
		default:
			panic(fmt.Sprintf("BUG: unknown statement %T", s))
		}
	}
}

// path runs a body in a scope of its own and returns what the variables hold behind it, of
// symbols that were there before; nil where the body cannot be reached or left.
func (a *analysis) path(before state, assume func(), body func()) state {
	mark, dead := a.enter()
	a.vars = slices.Clone(before)
	assume()
	first := a.next
	if !a.dead && body != nil {
		body()
	}
	var out state
	if !a.dead {
		out = a.exported(before, first)
	}
	a.leave(mark, dead)
	a.vars = before
	return a.restored(out)
}

// exported is what the variables hold, as a sum of symbols from before first and one that
// stands for the rest. It is finished by restored, outside of the scope.
func (a *analysis) exported(before state, first int) state {
	out := slices.Clone(a.vars)
	for i := range out {
		v := &out[i]
		if !v.known || v.c != nil || len(v.f.terms) == 0 && v.f.equal(before[i].f) {
			continue
		}
		v.iv = a.both(v.f).meet(v.iv)
		if v.iv.lo == v.iv.hi && !slices.ContainsFunc(v.f.terms, func(t term) bool { return t.s.guess }) {
			v.f = constant(v.iv.lo)
			continue
		}
		if before[i].known && v.f.equal(before[i].f) {
			continue
		}
		kept, rest := v.f.split(func(s *symbol) bool { return s.id < first })
		if len(rest.terms) == 0 {
			continue
		}
		s := &symbol{interval: a.both(rest), kind: opaque, mod: 1, deps: []form{}}
		if len(kept.terms) == 0 {
			s.interval = s.interval.meet(v.iv)
		}
		if mod, rem := congruence(rest); mod > 1 {
			s.mod, s.rem = mod, rem
		}
		for _, w := range a.origins(rest) {
			s.deps = append(s.deps, a.origin(w))
		}
		a.exportBounds(s, rest, first)
		a.exports = append(a.exports, s)
		v.f = kept
		v.f.terms = append(slices.Clip(v.f.terms), term{s, 1})
	}
	return out
}

// origin is a form that has wrapped as w says.
func (a *analysis) origin(w *wrap) form {
	s := a.fresh(wrapped, rangeOf(w.t))
	s.wrap = w
	return of(s)
}

// exportBounds keeps bounds of the rest that are made of symbols from before first.
func (a *analysis) exportBounds(s *symbol, rest form, first int) {
	r, ok := rest.single()
	if !ok {
		return
	}
	old := func(g form) bool {
		return !slices.ContainsFunc(g.terms, func(t term) bool { return t.s.id >= first })
	}
	ups, downs := slices.Clone(r.ups), slices.Clone(r.downs)
	if r.kind == smaller {
		ups = append(ups, r.x, r.y)
	}
	for _, g := range ups {
		if old(g) {
			s.ups = append(s.ups, g)
		}
	}
	for _, g := range downs {
		if old(g) {
			s.downs = append(s.downs, g)
		}
	}
}

// restored gives the symbols of exported their numbers, now that the scope is left.
func (a *analysis) restored(out state) state {
	for _, s := range a.exports {
		s.id = a.next
		a.next++
	}
	a.exports = a.exports[:0]
	return out
}

func (a *analysis) branch(s *ir.If) {
	c, before := a.get(s.Cond).c, a.vars
	then := a.path(before, func() { a.assume(c, true) }, func() { a.block(s.Then) })
	var body func()
	if s.Else != nil {
		body = func() { a.block(s.Else) }
	}
	other := a.path(before, func() { a.assume(c, false) }, body)
	a.vars = a.merged(c, then, other)
}

// merged is what variables hold behind either path.
func (a *analysis) merged(c *cond, x, y state) state {
	switch {
	case x == nil && y == nil:
		a.dead = true
		return a.vars
	case x == nil:
		return y
	case y == nil:
		return x
	}
	out := slices.Clone(x)
	for i := range out {
		if y[i].known || x[i].known {
			out[i] = a.either(c, x[i], y[i])
		}
	}
	return out
}

// either is x where c holds, which may be unknown, and else y; both are there.
func (a *analysis) either(c *cond, x, y val) val {
	if !x.known || !y.known || x.c != nil || y.c != nil {
		return val{}
	}
	if x.f.equal(y.f) {
		return val{f: x.f, iv: x.iv.hull(y.iv), known: true}
	}
	common := form{}
	for _, t := range x.f.terms {
		if y.f.coef(t.s) == t.c {
			common.terms = append(common.terms, t)
		}
	}
	rx, ry := x.f.minus(common), y.f.minus(common)
	iv := a.both(rx).hull(a.both(ry))
	if len(common.terms) == 0 {
		iv = a.both(rx).meet(x.iv).hull(a.both(ry).meet(y.iv))
	}
	s := a.fresh(opaque, iv)
	s.common(rx, ry)
	if c != nil {
		s.kind, s.x, s.y, s.cond = chosen, rx, ry, c
	}
	for _, w := range append(a.origins(rx), a.origins(ry)...) {
		s.deps = append(s.deps, a.origin(w))
	}
	for _, above := range []bool{true, false} {
		for _, g := range append(a.direct(rx, above), a.direct(ry, above)...) {
			if above && a.atMost(rx.minus(g)) && a.atMost(ry.minus(g)) {
				s.ups = append(s.ups, g)
			} else if !above && a.atMost(g.minus(rx)) && a.atMost(g.minus(ry)) {
				s.downs = append(s.downs, g)
			}
		}
	}
	f, _ := sum(1, common, 1, of(s))
	return val{f: f, iv: x.iv.hull(y.iv), known: true}
}

// direct are the bounds of a form that is one symbol.
func (a *analysis) direct(f form, above bool) []form {
	s, ok := f.single()
	switch {
	case !ok:
		return nil
	case above:
		return s.ups
	}
	return s.downs
}

func (a *analysis) roles(s *ir.Roles) {
	before := a.vars
	var out state
	for i, r := range s.Roles {
		after := a.path(before, func() {
			a.restrict(a.tid, interval{32 * int64(r.First), 32*int64(r.End) - 1}, 2)
			a.restrict(a.warp, interval{int64(r.First), int64(r.End) - 1}, 2)
		}, func() { a.block(r.Body) })
		if i == 0 {
			out = after
		} else {
			out = a.merged(nil, out, after)
		}
	}
	a.vars, a.dead = before, false
	if out != nil {
		a.vars = out
	}
}
