package mutate

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl/ir"
)

// A move passes one statement that matters: one that touches memory or
// synchronises, or holds such a statement. Arithmetic in between is stepped over
// or, where the moved statement needs it, taken along. An instruction that is the
// only one of its kind under an If moves with the If.

// lift makes the innermost enclosing If the thing to move, while the instruction
// is all that matters in it.
func (e *edit) lift() {
	for n := len(e.trail); n > 1; n-- {
		outer := e.trail[n-2]
		cond, ok := outer.block.Stmts[outer.at].(*ir.If)
		if !ok || weight(cond.Then)+weight(cond.Else) != 1 {
			return
		}
		e.trail = e.trail[:n-1]
	}
}

// weight counts the statements that matter in b, inner ones included.
func weight(b *ir.Block) int {
	n := 0
	if b == nil {
		return 0
	}
	ir.Walk(b, func(s ir.Stmt) bool {
		if in, ok := s.(*ir.Instr); ok && matters(in) {
			n++
		}
		return true
	})
	return n
}

func matters(s ir.Stmt) bool {
	if in, ok := s.(*ir.Instr); ok {
		return len(in.Mem) > 0 || in.Op.Info().Effect == ir.Synchro
	}
	for _, b := range ir.Blocks(s) {
		if weight(b) > 0 {
			return true
		}
	}
	return false
}

func later(e *edit) error {
	e.lift()
	p := e.here()
	stmts := p.block.Stmts
	to := p.at + 1
	for to < len(stmts) && !matters(stmts[to]) {
		to++
	}
	if to == len(stmts) {
		return fmt.Errorf("nothing follows it in its block")
	}
	for _, s := range stmts[p.at+1 : to+1] {
		if uses(s, defines(stmts[p.at])) {
			return fmt.Errorf("what follows uses its result")
		}
	}
	moved := stmts[p.at]
	copy(stmts[p.at:], stmts[p.at+1:to+1])
	stmts[to] = moved
	return nil
}

func earlier(e *edit) error {
	e.lift()
	p := e.here()
	stmts := p.block.Stmts
	to := p.at - 1
	for to >= 0 && !matters(stmts[to]) {
		to--
	}
	if to < 0 {
		return fmt.Errorf("nothing precedes it in its block")
	}
	take, err := along(stmts, to, p.at)
	if err != nil {
		return err
	}
	var front, back []ir.Stmt
	for i := to; i <= p.at; i++ {
		if take[i] {
			front = append(front, stmts[i])
		} else {
			back = append(back, stmts[i])
		}
	}
	copy(stmts[to:], append(front, back...))
	return nil
}

// along marks what must move together with statement at to come before
// statement to: itself and the arithmetic between that it needs.
func along(stmts []ir.Stmt, to, at int) (map[int]bool, error) {
	take := map[int]bool{at: true}
	for i := at - 1; i >= to; i-- {
		def := defines(stmts[i])
		needed := false
		for j := range take {
			needed = needed || uses(stmts[j], def)
		}
		if !needed {
			continue
		}
		in, ok := stmts[i].(*ir.Instr)
		if i == to || !ok || in.Op.Info().Effect != ir.Pure && in.Op != ir.OpGet {
			return nil, fmt.Errorf("needs %s", stmts[i].Position())
		}
		take[i] = true
	}
	return take, nil
}

// defines is the set of values and variables that s computes or changes.
func defines(s ir.Stmt) map[any]bool {
	out := map[any]bool{}
	ir.Walk(&ir.Block{Stmts: []ir.Stmt{s}}, func(s ir.Stmt) bool {
		if in, ok := s.(*ir.Instr); ok {
			for _, v := range in.Res {
				out[v] = true
			}
			if in.Attr.Var != nil && in.Op != ir.OpGet {
				out[in.Attr.Var] = true
			}
			for _, x := range in.Attr.Vars {
				out[x] = true
			}
		}
		return true
	})
	return out
}

// uses reports whether s reads anything of defs.
func uses(s ir.Stmt, defs map[any]bool) bool {
	found := false
	see := func(vs ...*ir.Value) {
		for _, v := range vs {
			found = found || v != nil && defs[v]
		}
	}
	ir.Walk(&ir.Block{Stmts: []ir.Stmt{s}}, func(s ir.Stmt) bool {
		switch s := s.(type) {
		case *ir.Instr:
			see(s.Args...)
			for _, m := range s.Mem {
				see(m.Index)
			}
			if s.Attr.Var != nil {
				found = found || defs[s.Attr.Var]
			}
			for _, x := range s.Attr.Vars {
				found = found || defs[x]
			}
		case *ir.For:
			see(s.Lo, s.Hi)
		case *ir.If:
			see(s.Cond)
		}
		return true
	})
	return found
}
