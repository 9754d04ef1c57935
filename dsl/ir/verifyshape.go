package ir

import (
	"fmt"
	"slices"
)

// shape checks that nothing is missing: what the other checks rely on.
func (v *verifier) shape() {
	v.tables()
	v.blockShape(v.k.Body)
}

func (v *verifier) bad(pos Pos, what, format string, args ...any) {
	v.errorf(KindShape, pos, what, format, args...)
}

// tables checks the kernel's lists, which IDs index.
func (v *verifier) tables() {
	k := v.k
	if k.NumValues < 0 {
		v.bad(Pos{}, "kernel "+k.Name, "has %d values", k.NumValues)
	}
	for i, p := range k.Params {
		if p == nil || p.ID != i {
			v.bad(Pos{}, fmt.Sprintf("parameter %d", i), "is missing or wrongly numbered")
		}
	}
	for i, x := range k.Vars {
		if x == nil || x.ID != i || x.Type == Invalid || x.Type == MBar || x.Type >= numTypes {
			v.bad(Pos{}, fmt.Sprintf("variable %d", i), "is missing, wrongly numbered or of no register type")
		}
	}
	for i, b := range k.Bufs {
		if b == nil || b.ID != i || b.Elem == Invalid || b.Elem == Pred || b.Elem >= numTypes || b.Len < 0 || b.Len > MaxLen {
			v.bad(Pos{}, fmt.Sprintf("buffer %d", i),
				"is missing, wrongly numbered, of a length below 0 or above 2^40, or of no type that memory holds")
		}
	}
}

// head checks the kernel's sizes, parameters and names.
func (v *verifier) head() {
	k := v.k
	refuse := func(pos Pos, what, format string, args ...any) { v.errorf(KindHead, pos, what, format, args...) }
	if k.Warps < 1 || k.Warps > 32 {
		refuse(Pos{}, "kernel "+k.Name, "has %d warps a CTA, want 1 to 32", k.Warps)
	}
	if k.PerSM < 0 || k.PerSM > 32 {
		refuse(Pos{}, "kernel "+k.Name, "leaves registers for %d CTAs an SM, want 0 to 32", k.PerSM)
	}
	if k.Grid < 0 || k.ClusterSize < 0 || k.ClusterSize > 16 {
		refuse(Pos{}, "kernel "+k.Name,
			"has a grid of %d CTAs in clusters of %d, want none negative and at most 16 a cluster", k.Grid, k.ClusterSize)
	} else if k.ClusterSize > 1 && k.Grid%k.ClusterSize != 0 {
		refuse(Pos{}, "kernel "+k.Name, "has a grid of %d CTAs in clusters of %d, want a multiple", k.Grid, k.ClusterSize)
	}
	names := map[string]bool{}
	name := func(pos Pos, what, n string) {
		if n == "" || names[n] {
			refuse(pos, what+" "+n, "its name is empty or taken, want a name of its own")
		}
		names[n] = true
	}
	for _, p := range k.Params {
		name(Pos{}, "parameter", p.Name)
		if !slices.Contains([]Type{I32, U32, U64, F32}, p.Type) {
			refuse(Pos{}, "parameter "+p.Name, "is %s, want i32, u32, u64 or f32", p.Type)
		}
	}
	for _, b := range k.Bufs {
		if b.Root == nil {
			name(b.Pos, "buffer", b.Name)
		}
	}
}

func (v *verifier) blockShape(b *Block) {
	for _, s := range b.Stmts {
		v.seq++
		v.stmtShape(s)
	}
}

func (v *verifier) stmtShape(s Stmt) {
	switch s := s.(type) {
	case *Instr:
		v.instrShape(s)
		return
	case *For:
		if s.I == nil || s.Lo == nil || s.Hi == nil || s.Step == nil {
			v.bad(s.Pos, "for", "lacks its index, a bound or its step")
		}
		v.bodies(s.Pos, "for", s.Body)
	case *If:
		if s.Cond == nil {
			v.bad(s.Pos, "if", "lacks its condition")
		}
		v.bodies(s.Pos, "if", s.Then)
		if s.Else != nil {
			v.blockShape(s.Else)
		}
	case *Roles:
		for _, r := range s.Roles {
			v.bodies(r.Pos, "role "+r.Name, r.Body)
		}
	case *Region:
		v.bodies(s.Pos, "region "+s.Name, s.Body)
	case *Note:
	default:
		v.bad(Pos{}, "block", "holds a %T, want an instruction, for, if, roles or region", s)
	}
}

func (v *verifier) bodies(pos Pos, what string, b *Block) {
	if b == nil {
		v.bad(pos, what, "has no body")
		return
	}
	v.blockShape(b)
}

func (v *verifier) instrShape(in *Instr) {
	if in.Op >= numOps || ops[in.Op].Sig == nil {
		v.bad(in.Pos, in.Op.String(), "is no op of the table")
		return
	}
	if slices.Contains(in.Args, nil) || slices.Contains(in.Res, nil) {
		v.bad(in.Pos, in.Op.String(), "lacks an operand or a result")
		return
	}
	known := func(x *Value) bool { return x.Type < numTypes }
	a := in.Attr
	if in.T >= numTypes || a.Order > Volatile || a.Scope > Sys || a.Hint > NonCoherent || a.Cond > CondGE ||
		!all(in.Args, known) || !all(in.Res, known) {
		v.bad(in.Pos, in.Op.String(), "has a type, order, scope, hint or condition that does not exist")
	}
	for _, m := range in.Mem {
		if m.Buf == nil {
			v.bad(in.Pos, in.Op.String(), "has an address without a buffer")
		}
	}
}

func all(vs []*Value, ok func(*Value) bool) bool {
	return !slices.ContainsFunc(vs, func(v *Value) bool { return !ok(v) })
}
