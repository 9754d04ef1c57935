package ir

import "fmt"

// definitions records which statement defines each value and variable, and
// refuses what is defined twice or numbered wrongly.
func (v *verifier) definitions() {
	v.defs = make([]*Value, v.k.NumValues)
	v.at = make([]Pos, v.k.NumValues)
	v.vars = make([]*Instr, len(v.k.Vars))
	v.each(func(s Stmt) {
		switch s := s.(type) {
		case *Instr:
			for _, r := range s.Res {
				v.define(r, s.Pos, s.Op.String(), r.Def == s)
			}
			if s.Op == OpVar {
				v.declare(s)
			}
		case *For:
			v.define(s.I, s.Pos, "for", s.I.Loop == s)
		}
	})
}

func (v *verifier) define(r *Value, pos Pos, what string, linked bool) {
	switch {
	case r.Const:
		v.errorf(KindValue, pos, what, "defines the constant %s", r)
	case r.ID < 0 || r.ID >= len(v.defs):
		v.errorf(KindValue, pos, what, "defines %s, want an ID from 0 to %d", r, len(v.defs)-1)
	case v.defs[r.ID] != nil:
		v.errorf(KindValue, pos, what, "defines %s, which %s defines already", r, v.at[r.ID])
	default:
		v.defs[r.ID], v.at[r.ID] = r, pos
		if !linked {
			v.errorf(KindValue, pos, what, "defines %s, which names another definition", r)
		}
	}
}

func (v *verifier) declare(in *Instr) {
	x := in.Attr.Var
	if !v.ownVar(x) {
		return
	}
	if d := v.vars[x.ID]; d != nil {
		v.errorf(KindValue, in.Pos, "var", "declares %s, which %s declares already", x, d.Pos)
		return
	}
	v.vars[x.ID] = in
}

func (v *verifier) ownVar(x *Var) bool {
	return x != nil && x.ID >= 0 && x.ID < len(v.k.Vars) && v.k.Vars[x.ID] == x
}

// A place is where a definition stands: not reached yet, visible, or in a
// block that has ended.
type place uint8

const (
	ahead place = iota
	visible
	ended
)

// useCheck walks the program with the definitions that are visible.
type useCheck struct {
	v       *verifier
	vals    []place  // by Value.ID
	vars    []place  // by Var.ID
	home    []string // by Value.ID, the kind of block it was defined in
	varHome []string
	open    []int // values and, as −1−ID, variables defined in the open blocks
	block   string
}

// uses checks that everything used is defined before, in a block that is
// still open, in this kernel.
func (v *verifier) uses() {
	u := &useCheck{
		v: v, vals: make([]place, len(v.defs)), vars: make([]place, len(v.vars)),
		home: make([]string, len(v.defs)), varHome: make([]string, len(v.vars)), block: "kernel",
	}
	u.stmts(v.k.Body)
}

func (u *useCheck) stmts(b *Block) {
	for _, s := range b.Stmts {
		u.v.seq++
		u.stmt(s)
	}
}

// inside walks a block of its own; what it defines ends with it.
func (u *useCheck) inside(b *Block, kind string, index *Value) {
	mark, outer := len(u.open), u.block
	u.block = kind
	if index != nil {
		u.define(index)
	}
	u.stmts(b)
	for _, id := range u.open[mark:] {
		if id < 0 {
			u.vars[-1-id] = ended
		} else {
			u.vals[id] = ended
		}
	}
	u.open, u.block = u.open[:mark], outer
}

func (u *useCheck) define(r *Value) {
	if r.ID >= 0 && r.ID < len(u.vals) {
		u.vals[r.ID], u.home[r.ID] = visible, u.block
		u.open = append(u.open, r.ID)
	}
}

func (u *useCheck) stmt(s Stmt) {
	switch s := s.(type) {
	case *Instr:
		u.instr(s)
	case *For:
		for _, b := range []*Value{s.Lo, s.Hi, s.Step} {
			u.value(s.Pos, "for", b)
		}
		u.inside(s.Body, "loop", s.I)
	case *If:
		u.value(s.Pos, "if", s.Cond)
		u.inside(s.Then, "if", nil)
		if s.Else != nil {
			u.inside(s.Else, "if", nil)
		}
	case *Roles:
		for _, r := range s.Roles {
			u.inside(r.Body, "role", nil)
		}
	case *Region:
		u.stmts(s.Body)
	}
}

func (u *useCheck) instr(in *Instr) {
	what := in.Op.String()
	for _, a := range in.Args {
		u.value(in.Pos, what, a)
	}
	for _, m := range in.Mem {
		if m.Index != nil {
			u.value(in.Pos, what, m.Index)
		}
		if b, k := m.Buf, u.v.k; b.ID < 0 || b.ID >= len(k.Bufs) || k.Bufs[b.ID] != b {
			u.v.errorf(KindValue, in.Pos, what,
				"names %s of %s, which is no buffer of kernel %s; a buffer belongs to the kernel that declared it", b, b.Pos.Line,
				k.Name)
		}
	}
	switch in.Op {
	case OpVar, OpGet, OpSet:
		u.variable(in, in.Attr.Var)
	case OpWGMMA:
		for _, x := range in.Attr.Vars {
			u.variable(in, x)
		}
	case OpParam:
		if p, k := in.Attr.Param, u.v.k; p != nil && (p.ID < 0 || p.ID >= len(k.Params) || k.Params[p.ID] != p) {
			u.v.errorf(KindValue, in.Pos, what, "names %s, which is no parameter of kernel %s", p.Name, k.Name)
		}
	}
	for _, r := range in.Res {
		u.define(r)
	}
}

func (u *useCheck) value(pos Pos, what string, x *Value) {
	v := u.v
	if x.Const {
		v.constant(pos, what, x)
		return
	}
	if x.ID < 0 || x.ID >= len(v.defs) || v.defs[x.ID] != x {
		v.errorf(KindValue, pos, what,
			"uses %s%s, which kernel %s does not define; a value belongs to the kernel that built it", x, madeAt(x), v.k.Name)
		return
	}
	switch u.vals[x.ID] {
	case ahead:
		v.errorf(KindValue, pos, what, "uses %s before %s defines it", x, v.at[x.ID])
	case ended:
		v.errorf(KindValue, pos, what,
			"%s was defined at %s in %s and is used outside it; carry it out in a Var declared before", x, v.at[x.ID].Line,
			article(u.home[x.ID]))
	}
}

func madeAt(x *Value) string {
	switch {
	case x.Def != nil:
		return fmt.Sprintf(" (%s at %s)", x.Def.Op, x.Def.Pos.Line)
	case x.Loop != nil:
		return fmt.Sprintf(" (a loop index at %s)", x.Loop.Pos.Line)
	}
	return ""
}

func article(kind string) string {
	if kind == "if" {
		return "an if"
	}
	return "a " + kind
}

func (u *useCheck) variable(in *Instr, x *Var) {
	v := u.v
	if !v.ownVar(x) {
		if x != nil {
			v.errorf(KindValue, in.Pos, in.Op.String(), "names %s, which is no variable of kernel %s", x, v.k.Name)
		}
		return
	}
	if in.Op == OpVar {
		if v.vars[x.ID] == in {
			u.vars[x.ID], u.varHome[x.ID] = visible, u.block
			u.open = append(u.open, -1-x.ID)
		}
		return
	}
	switch d := v.vars[x.ID]; {
	case d == nil:
		v.errorf(KindValue, in.Pos, in.Op.String(), "%s is declared nowhere", x)
	case u.vars[x.ID] == ahead:
		v.errorf(KindValue, in.Pos, in.Op.String(), "%s is used before %s declares it", x, d.Pos)
	case u.vars[x.ID] == ended:
		v.errorf(KindValue, in.Pos, in.Op.String(), "%s was declared at %s in %s and is used outside it", x, d.Pos.Line,
			article(u.varHome[x.ID]))
	}
}
