package mutate

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl/ir"
)

func named(c Class, in *ir.Instr, what string, f func(e *edit) error) Mutation {
	name := fmt.Sprintf("%s %s", c, in.Op)
	if len(in.Mem) > 0 {
		name += " " + in.Mem[0].Buf.String()
	}
	if what != "" {
		name += ": " + what
	}
	return Mutation{Class: c, Name: name, edit: f}
}

// removable reports whether in does nothing but synchronise.
func removable(in *ir.Instr) bool {
	switch in.Op {
	case ir.OpBarCTA, ir.OpBarSync, ir.OpBarArrive, ir.OpSyncWarp, ir.OpFence, ir.OpFenceProxy, ir.OpFenceMBar,
		ir.OpMBarInit, ir.OpMBarArrive, ir.OpMBarArriveN, ir.OpMBarArriveAt, ir.OpMBarExpect, ir.OpWaitMBar, ir.OpWaitMem,
		ir.OpWaitTag, ir.OpGridWait, ir.OpBarCluster, ir.OpWGMMAFence, ir.OpWGMMACommit, ir.OpWGMMAWait, ir.OpCopyCommit,
		ir.OpCopyWait, ir.OpSetMaxReg:
		return true
	}
	return publishes(in)
}

func atomic(op ir.Op) bool { return op >= ir.OpAtomAdd && op <= ir.OpRedAdd }

// publishes reports whether in publishes something: a releasing store or atomic.
func publishes(in *ir.Instr) bool {
	return (in.Op == ir.OpSt || atomic(in.Op)) && (in.Attr.Order == ir.Release || in.Attr.Order == ir.AcqRel)
}

// mutationsOf lists what can be broken about in.
func mutationsOf(in *ir.Instr) []Mutation {
	var out []Mutation
	if removable(in) {
		out = append(out, named(Remove, in, "", remove))
	}
	out = append(out, weakenings(in)...)
	out = append(out, miscounts(in)...)
	if removable(in) && in.Op != ir.OpMBarInit {
		out = append(out, named(Earlier, in, "", earlier), named(Later, in, "", later))
	}
	return out
}

func setOrder(o ir.Order) func(e *edit) error {
	return func(e *edit) error { e.in.Attr.Order = o; return nil }
}

func weakenings(in *ir.Instr) []Mutation {
	var out []Mutation
	order := func(to ir.Order) {
		out = append(out, named(Weaken, in, fmt.Sprintf("%s to %s", in.Attr.Order, to), setOrder(to)))
	}
	switch in.Attr.Order {
	case ir.Release, ir.Acquire:
		order(ir.Relaxed)
	case ir.AcqRel:
		if in.Op != ir.OpFence {
			order(ir.Relaxed)
			order(ir.Acquire)
			order(ir.Release)
		}
	case ir.SeqCst:
		order(ir.AcqRel)
	case ir.Relaxed, ir.Volatile:
		if in.Op == ir.OpLd || in.Op == ir.OpSt {
			order(ir.Weak)
		}
	}
	if in.Attr.Order != ir.Weak && in.Attr.Order != ir.Volatile && in.Attr.Scope >= ir.GPU && in.Op != ir.OpUniform {
		out = append(out, named(Weaken, in, fmt.Sprintf("scope %s to cta", in.Attr.Scope), func(e *edit) error {
			e.in.Attr.Scope = ir.CTA
			return nil
		}))
	}
	if in.Op == ir.OpFenceProxy && in.Attr.Imm == ir.FenceAll {
		for _, imm := range []int64{ir.FenceGlobal, ir.FenceShared} {
			name := [...]string{ir.FenceGlobal: "global", ir.FenceShared: "shared"}[imm]
			out = append(out, named(Weaken, in, name+" memory only", func(e *edit) error { e.in.Attr.Imm = imm; return nil }))
		}
	}
	return out
}

func miscounts(in *ir.Instr) []Mutation {
	var out []Mutation
	arg := func(c Class, delta int64, what string) {
		out = append(out, named(c, in, what, func(e *edit) error { e.shift(delta); return nil }))
	}
	switch in.Op {
	case ir.OpMBarInit, ir.OpMBarArriveN:
		arg(Count, 1, "one arrival more")
		if v := in.Args[0]; !v.Const || v.Bits > 1 {
			arg(Count, -1, "one arrival less")
		}
	case ir.OpMBarExpect:
		arg(Bytes, 16, "16 bytes more")
		arg(Bytes, -16, "16 bytes less")
	case ir.OpWaitMBar:
		out = append(out, named(Parity, in, "the other parity", func(e *edit) error {
			e.in.Args[0] = e.insert(ir.OpXor, e.in.Args[0], ir.ConstInt(ir.U32, 1))
			return nil
		}))
	case ir.OpBarSync, ir.OpBarArrive:
		threads := func(d int, what string) {
			out = append(out, named(Count, in, what, func(e *edit) error { e.in.Attr.N += d; return nil }))
		}
		threads(32, "one warp more")
		if in.Attr.N > 32 {
			threads(-32, "one warp less")
		}
	case ir.OpWaitMem:
		if in.Attr.Cond != ir.CondNE {
			out = append(out, named(Count, in, "one less", func(e *edit) error {
				e.in.Args[0] = e.insert(ir.OpSub, e.in.Args[0], ir.ConstInt(ir.U32, 1))
				return nil
			}))
		}
	case ir.OpWGMMAWait, ir.OpCopyWait:
		out = append(out, named(Count, in, "one group more", func(e *edit) error { e.in.Attr.N++; return nil }))
	case ir.OpSetMaxReg:
		out = append(out, named(Count, in, "8 registers more", func(e *edit) error { e.in.Attr.N += 8; return nil }),
			named(Count, in, "the other way", func(e *edit) error { e.in.Attr.Imm ^= 1; return nil }),
			named(Count, in, "not the last warp", notTheLast))
	case ir.OpMBarArriveAt:
		out = append(out, named(Count, in, "at another CTA", func(e *edit) error {
			e.in.Args[0] = e.insert(ir.OpXor, e.in.Args[0], ir.ConstInt(ir.U32, 1))
			return nil
		}))
	case ir.OpWaitTag:
		arg(Count, -1, "the tag before")
	case ir.OpElect:
		out = append(out, named(Count, in, "every lane", func(e *edit) error {
			e.replace(e.in.Res[0], e.insert(ir.OpNe, ir.ConstInt(ir.U32, 0), ir.ConstInt(ir.U32, 1)))
			return nil
		}))
	case ir.OpTensorG2S:
		if fewer := in.Attr.Imm & (in.Attr.Imm - 1); fewer != 0 { // several CTAs of the cluster
			out = append(out, named(Count, in, "one CTA less", func(e *edit) error { e.in.Attr.Imm = fewer; return nil }))
		}
	}
	return out
}

// shift adds delta to the instruction's first argument.
func (e *edit) shift(delta int64) {
	e.in.Args[0] = e.insert(ir.OpAdd, e.in.Args[0], ir.ConstInt(ir.U32, delta))
}

// notTheLast leaves the instruction out in the last warp of each warpgroup.
func notTheLast(e *edit) error {
	at := e.insert(ir.OpAnd, e.insert(ir.OpWarp), ir.ConstInt(ir.U32, 3))
	not := e.insert(ir.OpNe, at, ir.ConstInt(ir.U32, 3))
	p := e.here()
	p.block.Stmts[p.at] = &ir.If{Pos: e.in.Pos, Cond: not, Then: &ir.Block{Stmts: []ir.Stmt{e.in}}}
	return nil
}

// insert puts a new instruction of u32 before e.in and returns its result.
func (e *edit) insert(op ir.Op, args ...*ir.Value) *ir.Value {
	v := &ir.Value{ID: e.k.NumValues, Type: ir.U32}
	if op == ir.OpNe {
		v.Type = ir.Pred
	}
	e.k.NumValues++
	v.Def = &ir.Instr{Pos: e.in.Pos, Op: op, T: ir.U32, Args: args, Res: []*ir.Value{v}}
	p := e.here()
	p.block.Stmts = append(p.block.Stmts[:p.at], append([]ir.Stmt{v.Def}, p.block.Stmts[p.at:]...)...)
	p.at++
	return v
}

// remove leaves the instruction out; its results become 0, and a tagged wait's what it
// was given.
func remove(e *edit) error {
	p := e.here()
	p.block.Stmts = append(p.block.Stmts[:p.at], p.block.Stmts[p.at+1:]...)
	if e.in.Op == ir.OpWaitTag {
		e.replace(e.in.Res[0], e.in.Args[1])
		return nil
	}
	for _, r := range e.in.Res {
		if r.Type != ir.Pred && !r.Type.IsInt() {
			return fmt.Errorf("has a result of type %s", r.Type)
		}
		e.replace(r, ir.ConstInt(r.Type, 0))
	}
	return nil
}

func (e *edit) replace(old, v *ir.Value) {
	swap := func(p **ir.Value) {
		if *p == old {
			*p = v
		}
	}
	ir.Walk(e.k.Body, func(s ir.Stmt) bool {
		switch s := s.(type) {
		case *ir.Instr:
			for i := range s.Args {
				swap(&s.Args[i])
			}
			for i := range s.Mem {
				swap(&s.Mem[i].Index)
			}
		case *ir.For:
			swap(&s.Lo)
			swap(&s.Hi)
		case *ir.If:
			swap(&s.Cond)
		}
		return true
	})
}
