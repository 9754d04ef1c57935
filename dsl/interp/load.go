package interp

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

// maxCode bounds the program's length: an access record keeps 20 bits of it.
const maxCode = 1 << 20

// loader flattens one kernel.
type loader struct {
	p      *Program
	alloc  allocator
	consts map[constKey]operand
	region string // the region being flattened
	err    error
}

type constKey struct {
	bits uint64
	wide bool
}

// Load flattens k. It checks each instruction's types by the op table and
// returns an error for a kernel that no backend could accept; it does not
// replace the verifier.
func Load(k *ir.Kernel) (*Program, error) {
	l := &loader{p: &Program{kernel: k, rootOf: map[*ir.Buf]int32{}, groupVars: map[*ir.Var]int32{}},
		consts: map[constKey]operand{}}
	l.alloc.init()
	if k.Warps < 1 || k.Warps > 32 {
		return nil, fmt.Errorf("kernel %s has %d warps a CTA, want 1 to 32", k.Name, k.Warps)
	}
	if err := l.layout(k); err != nil {
		return nil, err
	}
	l.block(k.Body)
	l.emit(inst{fn: stepExit, exits: true})
	if l.err != nil {
		return nil, fmt.Errorf("kernel %s: %w", k.Name, l.err)
	}
	if len(l.p.code) >= maxCode {
		return nil, fmt.Errorf("kernel %s has %d instructions when flattened, want fewer than %d", k.Name, len(l.p.code),
			maxCode)
	}
	for i := range l.p.code {
		in := &l.p.code[i]
		in.unread = !slices.ContainsFunc(in.r, func(o operand) bool { return l.alloc.ranges[o].last > int32(i) })
	}
	l.p.rows = l.alloc.assign(l.p.code)
	for i := range l.p.code {
		in := &l.p.code[i]
		in.pc = int32(i)
		if len(in.mem) > 1 && in.op.Waits() {
			flag := *in
			flag.attr, flag.scope, flag.size = &ir.Attr{Order: ir.Relaxed, Scope: ir.Sys}, ir.Sys, 4
			in.flag = &flag
		}
	}
	return l.p, nil
}

func (l *loader) fail(pos ir.Pos, format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("%s: %s", pos, fmt.Sprintf(format, args...))
	}
}

func (l *loader) pc() int32 { return int32(len(l.p.code)) }

func (l *loader) emit(in inst) int32 {
	in.region = l.region
	l.p.code = append(l.p.code, in)
	return l.pc() - 1
}

func (l *loader) block(b *ir.Block) {
	for _, s := range b.Stmts {
		switch s := s.(type) {
		case *ir.Instr:
			l.instr(s)
		case *ir.For:
			l.loop(s)
		case *ir.If:
			l.branch(s)
		case *ir.Roles:
			l.roles(s)
		case *ir.Note:
		case *ir.Region:
			outer := l.region
			l.region = s.Name
			l.block(s.Body)
			l.region = outer
		default:
			panic(fmt.Sprintf("BUG: unknown statement %T", s))
		}
	}
}

func (l *loader) loop(s *ir.For) {
	t := s.I.Type
	if t != ir.I32 && t != ir.U32 || s.Lo.Type != t || s.Hi.Type != t || !s.Step.Const {
		l.fail(s.Pos, "loop over %s from %s to %s, want i32 or u32 and a constant step", t, s.Lo.Type, s.Hi.Type)
		return
	}
	step := int64(uint32(s.Step.Bits))
	if t == ir.I32 {
		step = int64(int32(s.Step.Bits))
	}
	if step <= 0 {
		l.fail(s.Pos, "loop has step %d, want a positive one", step)
		return
	}
	lo, hi := l.use(s.Lo), l.use(s.Hi)
	i := l.alloc.define(s.I, l.pc())
	begin := l.emit(inst{fn: stepForBegin, t: t, a: []operand{lo, hi}, r: []operand{i}, pos: s.Pos})
	l.alloc.openLoop(begin)
	l.block(s.Body)
	l.use(s.I)
	hi = l.use(s.Hi)
	next := l.emit(inst{fn: stepForNext, t: t, a: []operand{i, hi}, r: []operand{i}, pos: s.Pos, step: step,
		target: begin + 1})
	l.alloc.closeLoop(next)
	l.p.code[begin].target = l.pc()
}

func (l *loader) branch(s *ir.If) {
	if s.Cond.Type != ir.Pred {
		l.fail(s.Pos, "if on %s, want pred", s.Cond.Type)
		return
	}
	begin := l.emit(inst{fn: stepIf, a: []operand{l.use(s.Cond)}, pos: s.Pos})
	l.block(s.Then)
	l.p.code[begin].target = l.emit(inst{fn: stepElse, pos: s.Pos})
	if s.Else != nil {
		l.block(s.Else)
	}
	end := l.emit(inst{fn: stepEndIf, pos: s.Pos})
	l.p.code[l.p.code[begin].target].target = end
}

// roles emits, for each role, a test of the warp's index that jumps over it.
func (l *loader) roles(s *ir.Roles) {
	for _, r := range s.Roles {
		if r.First < 0 || r.End > l.p.kernel.Warps || r.First >= r.End {
			l.fail(r.Pos, "role %s has warps %d to %d of a CTA of %d", r.Name, r.First, r.End, l.p.kernel.Warps)
		}
		test := l.emit(inst{fn: stepRole, imm: uint64(r.First)<<32 | uint64(r.End), pos: r.Pos})
		l.block(r.Body)
		l.p.code[test].target = l.pc()
	}
}

// use is the operand for a value read at the current position.
func (l *loader) use(v *ir.Value) operand {
	if v.Const {
		return l.constant(v)
	}
	o, ok := l.alloc.use(v, l.pc())
	if !ok {
		l.fail(ir.Pos{}, "value %s is used before its definition", v)
	}
	return o
}

func (l *loader) constant(v *ir.Value) operand {
	bits := v.Bits
	if v.Type != ir.U64 && v.Type != ir.B128 {
		bits = uint64(uint32(bits))
	}
	key := constKey{bits, v.Type == ir.B128}
	if o, ok := l.consts[key]; ok {
		return o
	}
	o := ^operand(len(l.p.consts))
	var r row
	for i := range r {
		r[i] = bits
	}
	l.p.consts = append(l.p.consts, r)
	if key.wide {
		l.p.consts = append(l.p.consts, row{})
	}
	l.consts[key] = o
	return o
}

func (l *loader) instr(s *ir.Instr) {
	types, err := s.Op.Info().Sig(s)
	if err != nil {
		l.fail(s.Pos, "%s %v", s.Op, err)
		return
	}
	if len(types) != len(s.Res) {
		l.fail(s.Pos, "%s has %d results, want %d", s.Op, len(s.Res), len(types))
		return
	}
	fn, err := bind(s)
	if err != nil {
		l.fail(s.Pos, "%s %v", s.Op, err)
		return
	}
	in := inst{fn: fn, op: s.Op, t: s.T, attr: &s.Attr, pos: s.Pos, vec: max(s.Attr.Lanes, 1), text: s.Attr.Text}
	for _, a := range s.Args {
		in.a = append(in.a, l.use(a))
	}
	for _, a := range s.Mem {
		in.mem = append(in.mem, l.memRef(a))
	}
	if s.Attr.Var != nil {
		in.slot = l.alloc.variable(s.Attr.Var, s.Op == ir.OpVar, l.pc())
		if in.slot < 0 {
			l.fail(s.Pos, "variable %s is used before its declaration", s.Attr.Var)
		}
		if n, ok := l.p.groupVars[s.Attr.Var]; ok {
			in.fn, in.groupVars = guarded(fn), []int32{n}
		}
	}
	for _, x := range s.Attr.Vars {
		slot := l.alloc.variable(x, false, l.pc())
		if slot < 0 {
			l.fail(s.Pos, "variable %s is used before its declaration", x)
		}
		in.vars, in.groupVars = append(in.vars, slot), append(in.groupVars, l.p.groupVars[x])
	}
	for _, v := range s.Res {
		in.r = append(in.r, l.alloc.define(v, l.pc()))
	}
	l.strength(&in)
	if err := s.HostRace(); err != nil {
		in.fn, in.text = stepHostRace, err.Error()
	}
	l.emit(in)
}

// strength notes whether the instruction is a strong memory operation, its
// scope, and the size of its scalar accesses.
func (l *loader) strength(in *inst) {
	if len(in.mem) == 0 {
		return
	}
	in.size = int(in.mem[0].elem)
	o := in.attr.Order
	in.strong = isAtomic(in.op) || in.op == ir.OpWaitMem || in.op == ir.OpWaitTag ||
		(in.op == ir.OpLd || in.op == ir.OpSt) && o != ir.Weak
	in.scope = in.attr.Scope
	if o == ir.Volatile {
		in.scope = ir.Sys
	}
	if in.op == ir.OpWaitMBar { // what it reads from memory is the abort flag
		in.strong, in.scope, in.size = true, ir.Sys, 4
	}
}

func (l *loader) memRef(a ir.Addr) memRef {
	b := a.Buf
	root, ok := l.p.rootOf[b.Base()]
	if !ok {
		l.fail(b.Pos, "buffer %s is not declared in the kernel", b)
	}
	ref := memRef{buf: b, root: root, shared: b.Space == ir.Shared, elem: int64(b.Elem.Size()), length: b.Len,
		none: a.Index == nil}
	if b.Root != nil {
		ref.base = int64(b.Offset)
	}
	if a.Index != nil {
		ref.index, ref.signed = l.use(a.Index), a.Index.Type == ir.I32
	}
	return ref
}
