package ir

import "fmt"

// SkeletonCount is what Skeleton did to the instructions of a role, or of what lies outside
// of all roles (Role is "" then).
type SkeletonCount struct {
	Role          string
	Kept, Dropped int
}

// Skeleton copies k without its arithmetic on data. The copy has the same control flow,
// accesses to memory, copies and synchronisation.
//
// Every value of a floating-point type becomes the constant 0 where it is used. Operations
// whose results nothing needs are dropped then: pure ones, warp collectives, mma, and
// variables. Blocks that are left without a statement go, too. What is kept:
//
//   - loads, stores, atomics, ldmatrix and bulk copies, with the addresses they had; a
//     stored float is 0, the tag beside it is what it was;
//   - waits, barriers, fences, mbarriers, assertions;
//   - integers and predicates that one of these, a branch or a loop depends on. A condition
//     on floats sees zeros.
//
// k is left alone; instructions that did not change are shared with it. The counts are in
// program order.
func Skeleton(k *Kernel) (*Kernel, []SkeletonCount) {
	s := &skeleton{k: k, live: make([]bool, k.NumValues), vars: make([]bool, len(k.Vars))}
	for s.changed = true; s.changed; {
		s.changed = false
		s.mark(k.Body)
	}
	out := *k
	s.enter("")
	out.Body = s.copyBlock(k.Body)
	return &out, s.counts
}

// skeleton is the state of one pass.
type skeleton struct {
	k       *Kernel
	live    []bool // by Value.ID: something kept needs it
	vars    []bool // by Var.ID: a kept get reads it
	changed bool
	counts  []SkeletonCount
	at      int // the role being copied, index of counts
}

// isData reports whether values of t are data, of which a skeleton has none.
func isData(t Type) bool {
	switch t {
	case F32, BF16, F16, BF16x2, F16x2, E4M3x2:
		return true
	}
	return false
}

// mark notes what the statements of b need, last first, and reports whether one is kept.
func (s *skeleton) mark(b *Block) (kept bool) {
	if b == nil {
		return false
	}
	for i := len(b.Stmts) - 1; i >= 0; i-- {
		kept = s.markStmt(b.Stmts[i]) || kept
	}
	return kept
}

func (s *skeleton) markStmt(st Stmt) (kept bool) {
	switch st := st.(type) {
	case *Instr:
		return s.markInstr(st)
	case *For:
		if kept = s.mark(st.Body); kept {
			s.need(st.Lo, st.Hi, st.Step)
		}
	case *If:
		kept = s.mark(st.Then)
		if kept = s.mark(st.Else) || kept; kept {
			s.need(st.Cond)
		}
	default:
		for _, inner := range Blocks(st) {
			kept = s.mark(inner) || kept
		}
	}
	return kept
}

func (s *skeleton) markInstr(in *Instr) bool {
	if !s.keeps(in) {
		return false
	}
	s.need(in.Args...)
	for _, a := range in.Mem {
		s.need(a.Index)
	}
	if x := in.Attr.Var; in.Op == OpGet && !s.vars[x.ID] {
		s.vars[x.ID], s.changed = true, true
	}
	for _, x := range in.Attr.Vars {
		if !s.vars[x.ID] {
			s.vars[x.ID], s.changed = true, true
		}
	}
	return true
}

// keeps reports whether in is kept, as far as the pass knows what is needed.
func (s *skeleton) keeps(in *Instr) bool {
	switch in.Op {
	case OpVar, OpSet:
		return s.vars[in.Attr.Var.ID]
	case OpMMA:
		return false
	}
	if len(in.Mem) > 0 || in.Op.Info().Effect == Writes || in.Op.Info().Effect == Synchro {
		return true
	}
	for _, r := range in.Res {
		if s.live[r.ID] {
			return true
		}
	}
	return false
}

func (s *skeleton) need(vs ...*Value) {
	for _, v := range vs {
		if v == nil || v.Const || isData(v.Type) || s.live[v.ID] {
			continue
		}
		s.live[v.ID], s.changed = true, true
	}
}

func (s *skeleton) enter(role string) (outer int) {
	outer = s.at
	for s.at = range s.counts {
		if s.counts[s.at].Role == role {
			return outer
		}
	}
	s.counts, s.at = append(s.counts, SkeletonCount{Role: role}), len(s.counts)
	return outer
}

func (s *skeleton) copyBlock(b *Block) *Block {
	if b == nil {
		return nil
	}
	out := &Block{}
	for _, st := range b.Stmts {
		if c := s.copyStmt(st); c != nil {
			out.Stmts = append(out.Stmts, c)
		}
	}
	return out
}

// copyStmt is the copy of st, nil where nothing of it is kept.
func (s *skeleton) copyStmt(st Stmt) Stmt {
	switch st := st.(type) {
	case *Instr:
		return s.copyInstr(st)
	case *For:
		c := *st
		if c.Body = s.copyBlock(st.Body); len(c.Body.Stmts) == 0 {
			return nil
		}
		return &c
	case *If:
		c := *st
		c.Then, c.Else, c.Cond = s.copyBlock(st.Then), s.copyBlock(st.Else), blank(st.Cond)
		if c.Else != nil && len(c.Else.Stmts) == 0 {
			c.Else = nil
		}
		if len(c.Then.Stmts) == 0 && c.Else == nil {
			return nil
		}
		return &c
	case *Roles:
		c := &Roles{Pos: st.Pos}
		for _, r := range st.Roles {
			outer := s.enter(r.Name)
			c.Roles = append(c.Roles, &Role{Pos: r.Pos, Name: r.Name, First: r.First, End: r.End, Body: s.copyBlock(r.Body)})
			s.at = outer
		}
		return c
	case *Note:
		return nil
	case *Region:
		c := *st
		if c.Body = s.copyBlock(st.Body); len(c.Body.Stmts) == 0 {
			return nil
		}
		return &c
	}
	panic(fmt.Sprintf("BUG: unknown statement %T", st))
}

func (s *skeleton) copyInstr(in *Instr) Stmt {
	if !s.keeps(in) {
		s.counts[s.at].Dropped++
		return nil
	}
	s.counts[s.at].Kept++
	for i, a := range in.Args {
		if blank(a) == a {
			continue
		}
		c := *in
		c.Args = make([]*Value, len(in.Args))
		copy(c.Args, in.Args[:i])
		for j := i; j < len(in.Args); j++ {
			c.Args[j] = blank(in.Args[j])
		}
		return &c
	}
	return in
}

// blank is v, or the constant 0 in place of data.
func blank(v *Value) *Value {
	if v == nil || v.Const || !isData(v.Type) {
		return v
	}
	return &Value{ID: -1, Type: v.Type, Const: true}
}
