package ir

import "fmt"

// Blocks lists a statement's own blocks, in order; none for an Instr and a Note.
func Blocks(s Stmt) []*Block {
	switch s := s.(type) {
	case *Instr, *Note:
		return nil
	case *For:
		return []*Block{s.Body}
	case *If:
		if s.Else == nil {
			return []*Block{s.Then}
		}
		return []*Block{s.Then, s.Else}
	case *Roles:
		bs := make([]*Block, len(s.Roles))
		for i, r := range s.Roles {
			bs[i] = r.Body
		}
		return bs
	case *Region:
		return []*Block{s.Body}
	}
	panic(fmt.Sprintf("BUG: unknown statement %T", s))
}

// Walk visits every statement of b in order, outer before inner. When visit
// returns false the statement's own blocks are skipped.
func Walk(b *Block, visit func(Stmt) bool) {
	for _, s := range b.Stmts {
		if !visit(s) {
			continue
		}
		for _, inner := range Blocks(s) {
			Walk(inner, visit)
		}
	}
}

// Instrs calls visit for every instruction of the kernel in order.
func (k *Kernel) Instrs(visit func(*Instr)) {
	Walk(k.Body, func(s Stmt) bool {
		if in, ok := s.(*Instr); ok {
			visit(in)
		}
		return true
	})
}
