package dsl

import "github.com/mkgen/mkgen/dsl/ir"

func cmp[T Elem](op ir.Op, a, b Val[T]) Pred {
	k := kern(a.k, b.k)
	if v := k.fold(op, a.v, b.v); v != nil {
		return Pred{k: k, v: v}
	}
	return opPred(k, &ir.Instr{Op: op, T: typeOf[T](), Args: []*ir.Value{a.v, b.v}})
}

// Eq is a = b; false where either is NaN.
func (a Val[T]) Eq(b Val[T]) Pred { return cmp(ir.OpEq, a, b) }

// Ne is a ≠ b; true where either is NaN.
func (a Val[T]) Ne(b Val[T]) Pred { return cmp(ir.OpNe, a, b) }

// Lt is a < b; false where either is NaN.
func (a Val[T]) Lt(b Val[T]) Pred { return cmp(ir.OpLt, a, b) }

// Le is a ≤ b; false where either is NaN.
func (a Val[T]) Le(b Val[T]) Pred { return cmp(ir.OpLe, a, b) }

// Gt is a > b; false where either is NaN.
func (a Val[T]) Gt(b Val[T]) Pred { return cmp(ir.OpGt, a, b) }

// Ge is a ≥ b; false where either is NaN.
func (a Val[T]) Ge(b Val[T]) Pred { return cmp(ir.OpGe, a, b) }

// EqC is a = c for a Go constant.
func (a Val[T]) EqC(c int) Pred { return a.Eq(Lit[T](kern(a.k), int64(c))) }

// NeC is a ≠ c for a Go constant.
func (a Val[T]) NeC(c int) Pred { return a.Ne(Lit[T](kern(a.k), int64(c))) }

// LtC is a < c for a Go constant.
func (a Val[T]) LtC(c int) Pred { return a.Lt(Lit[T](kern(a.k), int64(c))) }

// GeC is a ≥ c for a Go constant.
func (a Val[T]) GeC(c int) Pred { return a.Ge(Lit[T](kern(a.k), int64(c))) }

func logic(op ir.Op, p, q Pred) Pred {
	k := kern(p.k, q.k)
	if v := k.fold(op, p.v, q.v); v != nil {
		return Pred{k: k, v: v}
	}
	return opPred(k, &ir.Instr{Op: op, T: ir.Pred, Args: []*ir.Value{p.v, q.v}})
}

// And is p and q; both are computed.
func (p Pred) And(q Pred) Pred { return logic(ir.OpAnd, p, q) }

// Or is p or q; both are computed.
func (p Pred) Or(q Pred) Pred { return logic(ir.OpOr, p, q) }

// Xor is p ≠ q.
func (p Pred) Xor(q Pred) Pred { return logic(ir.OpXor, p, q) }

// Not is the negation.
func (p Pred) Not() Pred {
	return opPred(kern(p.k), &ir.Instr{Op: ir.OpNot, T: ir.Pred, Args: []*ir.Value{p.v}})
}

// Select is a where p holds and b elsewhere, without a branch.
func Select[T Elem](p Pred, a, b Val[T]) Val[T] {
	k := kern(p.k, a.k, b.k)
	if p.v != nil && p.v.Const {
		k.absorb(a.v, b.v)
		if p.v.Bits != 0 {
			return a
		}
		return b
	}
	return op1[T](k, &ir.Instr{Op: ir.OpSelect, T: typeOf[T](), Args: []*ir.Value{p.v, a.v, b.v}})
}
