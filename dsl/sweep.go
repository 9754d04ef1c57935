package dsl

import "github.com/mkgen/mkgen/dsl/ir"

// Optional is v, which Finish drops without complaint when nothing uses it: for
// what is computed on behalf of templates that may or may not need it, such as
// a kernel's thread coordinates.
func Optional[T Elem](v Val[T]) Val[T] {
	kern(v.k).absorb(v.v)
	return v
}

// absorb notes operands that a folded operation would have used: a shape for
// which x·0 needs no x is no mistake of the template's author.
func (k *Kernel) absorb(vs ...*ir.Value) {
	for _, v := range vs {
		if v != nil && v.Def != nil {
			k.left[v] = true
		}
	}
}

// sweep drops the pure instructions whose results only folded operations
// used, and then what only those used.
func (k *Kernel) sweep() {
	if len(k.left) == 0 {
		return
	}
	uses := map[*ir.Value]int{}
	ir.Walk(k.ir.Body, func(s ir.Stmt) bool {
		for _, v := range operands(s) {
			uses[v]++
		}
		return true
	})
	k.sweepBlock(k.ir.Body, uses)
}

// operands lists the values a statement itself uses, nil where there is none.
func operands(s ir.Stmt) []*ir.Value {
	switch s := s.(type) {
	case *ir.Instr:
		vs := append([]*ir.Value(nil), s.Args...)
		for _, m := range s.Mem {
			vs = append(vs, m.Index)
		}
		return vs
	case *ir.For:
		return []*ir.Value{s.Lo, s.Hi, s.Step}
	case *ir.If:
		return []*ir.Value{s.Cond}
	}
	return nil
}

// sweepBlock goes backwards, so that uses come before definitions.
func (k *Kernel) sweepBlock(b *ir.Block, uses map[*ir.Value]int) {
	kept := len(b.Stmts)
	for i := len(b.Stmts) - 1; i >= 0; i-- {
		s := b.Stmts[i]
		inner := ir.Blocks(s)
		for j := len(inner) - 1; j >= 0; j-- {
			k.sweepBlock(inner[j], uses)
		}
		if in, ok := s.(*ir.Instr); ok && k.leftOver(in, uses) {
			for _, v := range operands(in) {
				k.absorb(v)
				uses[v]--
			}
			continue
		}
		kept--
		b.Stmts[kept] = s
	}
	b.Stmts = b.Stmts[kept:]
}

// leftOver reports whether folding is why nothing uses the instruction.
func (k *Kernel) leftOver(in *ir.Instr, uses map[*ir.Value]int) bool {
	if in.Op.Info().Effect != ir.Pure || in.Op == ir.OpUniform || in.Op == ir.OpParam {
		return false
	}
	folded := false
	for _, r := range in.Res {
		if uses[r] > 0 {
			return false
		}
		folded = folded || k.left[r]
	}
	return folded
}
