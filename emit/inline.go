package emit

import (
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

// instrBackward decides about one instruction once all uses of its results
// are known, and passes its own needs on to its operands.
func (pl *plan) instrBackward(in *ir.Instr, at site) {
	if !pl.needed(in) {
		return
	}
	pl.live[in] = true
	for _, m := range in.Mem {
		pl.usedBufs[m.Buf] = true
	}
	if in.Attr.Param != nil {
		pl.usedParam[in.Attr.Param] = true
	}
	here := []use{{site: at}}
	where := here
	if len(in.Res) == 1 {
		where = pl.decide(in, in.Res[0], at, here)
		pl.operands(in, where)
	} else if pl.rows[in.Op].each != nil {
		for _, r := range in.Res {
			if len(pl.uses[r.ID]) > 0 {
				pl.operands(in, pl.decide(in, r, at, here))
			}
		}
	} else {
		pl.operands(in, here)
	}
	for _, x := range in.Attr.Vars {
		pl.varUses[x] = append(pl.varUses[x], at.pos)
	}
	if x := in.Attr.Var; x != nil {
		for _, u := range where {
			pl.varUses[x] = append(pl.varUses[x], u.pos)
		}
	}
}

// needed reports whether anything about in must be printed.
func (pl *plan) needed(in *ir.Instr) bool {
	switch in.Op {
	case ir.OpAssert, ir.OpUniform:
		return false
	case ir.OpVar, ir.OpSet:
		return !pl.deadVars[in.Attr.Var]
	}
	if e := in.Op.Info().Effect; e == ir.Writes || e == ir.Synchro {
		return true
	}
	if in.Op == ir.OpLd && in.Attr.Order != ir.Weak {
		return true
	}
	return slices.ContainsFunc(in.Res, func(r *ir.Value) bool { return len(pl.uses[r.ID]) > 0 })
}

// operands notes that in's operands are read at each of the places.
func (pl *plan) operands(in *ir.Instr, where []use) {
	for _, u := range where {
		for _, a := range in.Args {
			pl.needs(a, u)
		}
		for _, m := range in.Mem {
			if m.Index != nil {
				pl.needs(m.Index, u)
			}
		}
	}
}

// decide settles whether result r of in is printed where it is used, and
// returns where its text then stands: its uses, or its own place.
func (pl *plan) decide(in *ir.Instr, r *ir.Value, at site, here []use) []use {
	uses := pl.uses[r.ID]
	if len(uses) == 0 || !pl.mayInline(in, r, at, uses) {
		return here
	}
	pl.inline[r.ID] = true
	return uses
}

func (pl *plan) mayInline(in *ir.Instr, r *ir.Value, at site, uses []use) bool {
	info := in.Op.Info()
	switch {
	case isRegister(in.Op):
		return true // has one name in the whole file
	case pl.hint(r) != "":
		return false // a name was asked for
	case in.Op == ir.OpBits && oneType(in.T, in.Args[0].Type), in.Op == ir.OpSplit:
		return true // no more than another name
	case in.Op == ir.OpGet:
		return !slices.ContainsFunc(uses, func(u use) bool {
			return u.loop != at.loop || u.header || between(pl.sets[in.Attr.Var], at.pos, u.pos)
		})
	case len(uses) != 1:
		return false
	case pl.assigned(in, at, uses):
		return true
	case in.Op == ir.OpLd:
		u := uses[0]
		scalar := max(in.Attr.Lanes, 1) == 1 && in.Attr.Order == ir.Weak && in.Attr.Hint == ir.NoHint
		return scalar && u.loop == at.loop && !u.header && !between(pl.stores, at.pos, u.pos)
	case info.Effect != ir.Pure || info.Scope != ir.Thread:
		return false
	}
	u := uses[0]
	return u.loop == at.loop || u.header && pl.at[u.loop].loop == at.loop
}

// assigned reports whether what in makes goes to the statement behind it and nowhere else, to be the value of a
// variable or, where in touches no memory that somebody writes, of an element.
func (pl *plan) assigned(in *ir.Instr, at site, uses []use) bool {
	if len(uses) != 1 || uses[0].header || uses[0].pos != at.pos+1 {
		return false
	}
	to, ok := pl.stmts[at.pos+1].(*ir.Instr)
	switch {
	case !ok:
		return false
	case to.Op == ir.OpSet || to.Op == ir.OpVar:
		return true
	case to.Op != ir.OpSt || to.Attr.Order != ir.Weak || len(to.Args) != 1 || pl.resolve(to.Args[0]) != in.Res[0]:
		return false
	}
	info := in.Op.Info()
	return info.Effect == ir.Pure && info.Scope == ir.Thread || in.Op == ir.OpLd && in.Attr.Hint == ir.NonCoherent
}

// isRegister reports whether op reads what the kernel names once at its top.
func isRegister(op ir.Op) bool {
	switch op {
	case ir.OpLane, ir.OpWarp, ir.OpTid, ir.OpCTA, ir.OpGrid, ir.OpParam:
		return true
	}
	return false
}
