package bounds

import "github.com/mkgen/mkgen/dsl/ir"

// slice is the part of a kernel that addresses depend on: by data, or because it decides
// what runs.
type slice struct {
	values map[*ir.Value]bool
	vars   map[*ir.Var]bool
	bufs   map[*ir.Buf]bool // roots, of which words are loaded

	sets   map[*ir.Var][]*ir.Instr
	stores map[*ir.Buf][]*ir.Instr
	work   []*ir.Value
}

func newSlice(k *ir.Kernel) *slice {
	s := &slice{values: map[*ir.Value]bool{}, vars: map[*ir.Var]bool{}, bufs: map[*ir.Buf]bool{},
		sets: map[*ir.Var][]*ir.Instr{}, stores: map[*ir.Buf][]*ir.Instr{}}
	ir.Walk(k.Body, func(st ir.Stmt) bool {
		switch st := st.(type) {
		case *ir.If:
			s.want(st.Cond)
		case *ir.For:
			s.want(st.Lo, st.Hi, st.Step)
		case *ir.Instr:
			s.roots(st)
		}
		return true
	})
	for len(s.work) > 0 {
		v := s.work[len(s.work)-1]
		s.work = s.work[:len(s.work)-1]
		s.follow(v)
	}
	return s
}

func (s *slice) roots(in *ir.Instr) {
	for _, m := range in.Mem {
		if m.Index != nil {
			s.want(m.Index)
		}
	}
	switch in.Op {
	case ir.OpSet, ir.OpVar:
		s.sets[in.Attr.Var] = append(s.sets[in.Attr.Var], in)
	case ir.OpSt, ir.OpAtomAdd, ir.OpAtomMax, ir.OpAtomMin, ir.OpAtomOr, ir.OpAtomExch, ir.OpAtomCAS, ir.OpRedAdd:
		b := in.Mem[0].Buf.Base()
		s.stores[b] = append(s.stores[b], in)
	case ir.OpBulkG2S, ir.OpTensorG2S, ir.OpCopyAsync:
		s.want(in.Args...)
		b := in.Mem[0].Buf.Base()
		s.stores[b] = append(s.stores[b], in)
	case ir.OpMBarExpect, ir.OpAssert:
		s.want(in.Args...)
	}
}

func (s *slice) want(vs ...*ir.Value) {
	for _, v := range vs {
		if v != nil && !v.Const && !s.values[v] {
			s.values[v] = true
			s.work = append(s.work, v)
		}
	}
}

func (s *slice) follow(v *ir.Value) {
	if v.Loop != nil {
		s.want(v.Loop.Lo, v.Loop.Hi)
		return
	}
	in := v.Def
	switch {
	case in == nil:
	case in.Op == ir.OpGet:
		if x := in.Attr.Var; !s.vars[x] {
			s.vars[x] = true
			for _, set := range s.sets[x] {
				s.want(set.Args...)
			}
		}
	case in.Op == ir.OpLd && (v.Type.IsInt() || v.Type == ir.B128):
		if b := in.Mem[0].Buf.Base(); !s.bufs[b] {
			s.bufs[b] = true
			for _, st := range s.stores[b] {
				s.want(st.Args...)
			}
		}
	case in.Op == ir.OpLd:
	default:
		s.want(in.Args...)
	}
}

// has reports whether addresses depend on what the instruction computes.
func (s *slice) has(in *ir.Instr) bool {
	for _, r := range in.Res {
		if s.values[r] {
			return true
		}
	}
	return false
}
