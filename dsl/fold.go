package dsl

import (
	"math/bits"

	"github.com/mkgen/mkgen/dsl/ir"
)

// fold is foldOf; the operands of a folded op count as used.
func (k *Kernel) fold(op ir.Op, a, b *ir.Value) *ir.Value {
	v := foldOf(op, a, b)
	if v != nil {
		k.absorb(a, b)
	}
	return v
}

// foldOf computes op on constants and drops operations that change nothing; nil
// when the op has to be emitted. Only integers and predicates are folded:
// floating point is left to the device.
func foldOf(op ir.Op, a, b *ir.Value) *ir.Value {
	if a == nil || b == nil || a.Type != b.Type && op != ir.OpShl && op != ir.OpShr {
		return nil
	}
	if !a.Type.IsInt() && a.Type != ir.Pred {
		return nil
	}
	if a.Const && b.Const {
		return foldBoth(op, a, b)
	}
	if v := foldNeutral(op, a, b); v != nil {
		return v
	}
	return foldSpans(op, a, b)
}

// regroup returns the operands of a op b. Those of (x+c)+d and (x·c)·d with constants c and d are x and c+d or c·d,
// unless that wraps: a proof of addresses must see where a sum wraps.
func (k *Kernel) regroup(op ir.Op, a, b *ir.Value) (*ir.Value, *ir.Value) {
	if a == nil || b == nil || a.Def == nil || a.Def.Op != op || !b.Const || !b.Type.IsInt() {
		return a, b
	}
	var high, low uint64
	x, c := a.Def.Args[0], a.Def.Args[len(a.Def.Args)-1]
	switch {
	case !c.Const:
		return a, b
	case op == ir.OpAdd:
		low, high = bits.Add64(c.Bits, b.Bits, 0)
	case op == ir.OpMul:
		high, low = bits.Mul64(c.Bits, b.Bits)
	default:
		return a, b
	}
	d := ir.ConstInt(a.Type, int64(low))
	if high != 0 || d.Bits != low {
		return a, b
	}
	k.absorb(a)
	return x, d
}

// foldNeutral drops x+0, 0+x, x−0, x−x, x·1, 1·x, x·0, 0·x, x/1, x mod 1, x<<0,
// x>>0, the least and the largest of x and 0 where there is no sign, and p∧q, p∨q where one is constant.
func foldNeutral(op ir.Op, a, b *ir.Value) *ir.Value {
	is := func(v *ir.Value, n uint64) bool { return v.Const && v.Bits == n }
	switch op {
	case ir.OpAdd:
		if is(a, 0) {
			return b
		}
		if is(b, 0) {
			return a
		}
	case ir.OpSub, ir.OpShl, ir.OpShr:
		if is(b, 0) {
			return a
		}
		if op == ir.OpSub && a == b {
			return ir.ConstInt(a.Type, 0)
		}
	case ir.OpMin, ir.OpMax:
		zero, other := a, b
		if is(b, 0) {
			zero, other = b, a
		}
		if !is(zero, 0) || a.Type == ir.I32 {
			return nil
		}
		if op == ir.OpMin {
			return zero
		}
		return other
	case ir.OpMul:
		if is(a, 1) || is(b, 0) {
			return b
		}
		if is(b, 1) || is(a, 0) {
			return a
		}
	case ir.OpDiv:
		if is(b, 1) {
			return a
		}
	case ir.OpRem:
		if is(b, 1) {
			return ir.ConstInt(a.Type, 0)
		}
	case ir.OpAnd:
		if a.Type == ir.Pred && (is(a, 1) || is(b, 0)) {
			return b
		}
		if a.Type == ir.Pred && (is(b, 1) || is(a, 0)) {
			return a
		}
	case ir.OpOr:
		if a.Type == ir.Pred && (is(a, 0) || is(b, 1)) {
			return b
		}
		if a.Type == ir.Pred && (is(b, 0) || is(a, 1)) {
			return a
		}
	}
	return nil
}

func foldBoth(op ir.Op, a, b *ir.Value) *ir.Value {
	x, y := a.Bits, b.Bits
	signed := a.Type == ir.I32 // its bits are kept with their sign: sums and products need none
	less := x < y
	if signed {
		less = int64(x) < int64(y)
	}
	if v, ok := foldCompare(op, less, x == y); ok {
		return v
	}
	var r uint64
	switch op {
	case ir.OpAdd:
		r = x + y
	case ir.OpSub:
		r = x - y
	case ir.OpMul:
		r = x * y
	case ir.OpAnd:
		r = x & y
	case ir.OpOr:
		r = x | y
	case ir.OpXor:
		r = x ^ y
	case ir.OpMin, ir.OpMax:
		if r = y; less == (op == ir.OpMin) {
			r = x
		}
	case ir.OpShl:
		r = x << y
	case ir.OpShr, ir.OpDiv, ir.OpRem:
		if signed || y == 0 && op != ir.OpShr {
			return nil
		}
		switch op {
		case ir.OpShr:
			r = x >> y
		case ir.OpDiv:
			r = x / y
		default:
			r = x % y
		}
	default:
		return nil
	}
	return ir.ConstInt(a.Type, int64(r))
}

func foldCompare(op ir.Op, less, equal bool) (*ir.Value, bool) {
	var r bool
	switch op {
	case ir.OpEq:
		r = equal
	case ir.OpNe:
		r = !equal
	case ir.OpLt:
		r = less
	case ir.OpLe:
		r = less || equal
	case ir.OpGt:
		r = !less && !equal
	case ir.OpGe:
		r = !less
	default:
		return nil, false
	}
	v := ir.ConstInt(ir.Pred, 0)
	if r {
		v.Bits = 1
	}
	return v, true
}
