package ir

// constant checks that the bits of a constant are those its type can have.
func (v *verifier) constant(pos Pos, what string, x *Value) {
	ok := true
	switch x.Type {
	case Pred:
		ok = x.Bits <= 1
	case U16, BF16, F16, E4M3x2:
		ok = x.Bits <= 0xffff
	case U32, F32, BF16x2, F16x2:
		ok = x.Bits <= 0xffffffff
	case I32:
		ok = x.Bits == uint64(int64(int32(x.Bits)))
	case U64, B128:
	default:
		ok = false
	}
	if !ok {
		v.errorf(KindValue, pos, what, "uses a constant of type %s with the bits 0x%x, which the type cannot have", x.Type,
			x.Bits)
	}
}

// unused refuses pure instructions none of whose results is used. Exempt are
// assertions (uniform) and declarations (param).
func (v *verifier) unused() {
	used := make([]bool, v.k.NumValues)
	mark := func(xs ...*Value) {
		for _, x := range xs {
			if x != nil && x.ID >= 0 && x.ID < len(used) {
				used[x.ID] = true
			}
		}
	}
	v.each(func(s Stmt) {
		switch s := s.(type) {
		case *Instr:
			mark(s.Args...)
			for _, m := range s.Mem {
				mark(m.Index)
			}
		case *For:
			mark(s.Lo, s.Hi)
		case *If:
			mark(s.Cond)
		}
	})
	v.seq = 0
	v.instrs(func(in *Instr) {
		if in.Op.Info().Effect != Pure || in.Op == OpUniform || in.Op == OpParam {
			return
		}
		for _, r := range in.Res {
			if r.ID >= 0 && r.ID < len(used) && used[r.ID] {
				return
			}
		}
		if len(in.Res) > 0 {
			v.errorf(KindUnused, in.Pos, in.Op.String(), "%s is computed and nothing uses it", def(in.Res[0]))
		}
	})
}
