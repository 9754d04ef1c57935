package bounds

import (
	"math/bits"

	"github.com/mkgen/mkgen/dsl/ir"
)

// anded is x & y of integers. Of a value that may have wrapped the bits are right,
// whatever the value would be without a bound: what is masked with a number has not
// wrapped.
func (a *analysis) anded(x, y val, t ir.Type) val {
	if x.f.isConst() {
		x, y = y, x
	}
	if x.iv.lo < 0 || y.iv.lo < 0 {
		return a.unknownOf(t, x, y)
	}
	if !y.f.isConst() {
		s := a.fresh(opaque, interval{0, min(x.iv.hi, y.iv.hi)})
		s.ups, s.deps = []form{x.f, y.f}, []form{x.f, y.f}
		return a.value(s)
	}
	m := y.f.k
	low := int64(1) << bits.TrailingZeros64(uint64(m)|1<<62)
	switch {
	case m == 0:
		return val{f: constant(0), known: true}
	case m&(m+1) == 0:
		return a.modulo(x, val{f: constant(m + 1)}, t)
	case x.iv.hi < inf && m+low >= 1<<bits.Len64(uint64(x.iv.hi)): // only low bits are cleared
		q := a.divided(x, val{f: constant(low)}, t)
		f, ok := sum(low, q.f, 0, form{})
		if ok {
			return val{f: f, iv: a.both(f).meet(x.iv.hull(interval{0, 0})), known: true}
		}
	}
	s := a.fresh(masked, interval{0, min(m, x.iv.hi)})
	s.x, s.mod = x.f, low
	if w, ok := x.f.single(); ok && w.kind == wrapped {
		s.kind = opaque
	}
	return a.value(s)
}

// bitwise is x | y or x ^ y of integers: their sum, where they have no bit in common.
func (a *analysis) bitwise(op ir.Op, x, y val, t ir.Type) val {
	if x.iv.lo < 0 || y.iv.lo < 0 {
		return a.unknownOf(t, x, y)
	}
	if disjoint(x, y) || disjoint(y, x) {
		if f, ok := sum(1, x.f, 1, y.f); ok {
			return val{f: f, iv: a.both(f).meet(rangeOf(t)), known: true}
		}
	}
	// y changes the bits below 2^n at most, where it is less than that, and x likewise.
	ofX, ofY := ones(x.iv.hi), ones(y.iv.hi)
	top := interval{max(x.iv.lo&^ofY, y.iv.lo&^ofX), min(rangeOf(t).hi, x.iv.hi|ofY, y.iv.hi|ofX)}
	if op == ir.OpOr {
		top.lo = max(x.iv.lo, y.iv.lo)
	}
	s := a.fresh(bitwise, top)
	s.x, s.y = x.f, y.f
	if op == ir.OpOr {
		s.downs = []form{x.f, y.f}
	}
	xm, xr := congruence(x.f)
	ym, yr := congruence(y.f)
	if g := gcd(xm, ym); g > 0 {
		if p := g & -g; xr%p == 0 && yr%p == 0 {
			s.mod = p
			s.hi -= s.hi % p
		}
	}
	return a.value(s)
}

// disjoint reports whether x is a multiple of a power of two above y.
func disjoint(x, y val) bool {
	return y.iv.hi < inf && multiple(x.f, ones(y.iv.hi)+1)
}

// ones is the least 2^n − 1 from x on.
func ones(x int64) int64 {
	if x <= 0 {
		return 0
	}
	return 1<<min(62, bits.Len64(uint64(x))) - 1
}

// condition is what a predicate says.
func (a *analysis) condition(in *ir.Instr, args []val) *cond {
	switch in.Op {
	case ir.OpNot:
		return &cond{op: negation, l: args[0].c}
	case ir.OpAnd:
		return &cond{op: bothOf, l: args[0].c, r: args[1].c}
	case ir.OpOr:
		return &cond{op: eitherOf, l: args[0].c, r: args[1].c}
	case ir.OpUniform:
		return args[0].c
	case ir.OpEq, ir.OpNe, ir.OpLt, ir.OpLe, ir.OpGt, ir.OpGe:
		if !in.Args[0].Type.IsInt() {
			return nil
		}
	default:
		return nil
	}
	d, ok := sum(1, args[0].f, -1, args[1].f)
	if !ok {
		return nil
	}
	switch in.Op {
	case ir.OpEq:
		return &cond{op: isZero, f: d}
	case ir.OpNe:
		return &cond{op: negation, l: &cond{op: isZero, f: d}}
	case ir.OpLt:
		return &cond{op: atMostZero, f: d.plus(1)}
	case ir.OpLe:
		return &cond{op: atMostZero, f: d}
	case ir.OpGt:
		return &cond{op: atMostZero, f: d.negated().plus(1)}
	}
	return &cond{op: atMostZero, f: d.negated()}
}
