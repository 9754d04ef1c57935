package ir

import (
	"fmt"
	"strings"
)

// String is the instruction's line in printed IR, as in the comments of the
// op constants: results, name with its order, scope and type, memory operands,
// value operands, and what else is fixed at generation time.
//
// Example printed form: v7.x:u32, v8:u32 = ld.acquire.gpu.u32 @x:u32[v3] lanes=2
func (s *Instr) String() string {
	var left, ops []string
	for _, r := range s.Res {
		left = append(left, def(r))
	}
	mem, abort := s.Mem, ""
	if s.Op.Waits() && len(mem) > 1 {
		abort = " abort=" + mem[1].String()
		if len(mem) > 2 {
			abort += fmt.Sprintf(" note=%s site=%d", mem[2].Buf, s.Attr.N)
		}
		mem = mem[:1]
	}
	if n := len(s.Attr.Vars); n > 0 {
		ops = append(ops, fmt.Sprintf("%s … %s", s.Attr.Vars[0], s.Attr.Vars[n-1]))
	}
	for _, m := range mem {
		ops = append(ops, m.String())
	}
	if s.Op == OpSet {
		ops = append(ops, s.Attr.Var.String())
	}
	for _, a := range s.Args {
		ops = append(ops, a.String())
	}
	if s.Op == OpVar {
		left = append(left, fmt.Sprintf("%s:%s", s.Attr.Var, s.T))
	}
	text := s.name()
	if len(ops) > 0 {
		text += " " + strings.Join(ops, ", ")
	}
	text += abort + s.suffix()
	if len(left) > 0 {
		text = strings.Join(left, ", ") + " = " + text
	}
	return text
}

// name is the op's name with what PTX would write after dots.
func (s *Instr) name() string {
	n, a := s.Op.String(), s.Attr
	switch s.Op {
	case OpWaitMem:
		n += "." + a.Cond.String()
	case OpUniform:
		return n + "." + a.Scope.String()
	case OpSetMaxReg:
		return n + [...]string{".dec", ".inc"}[a.Imm&1]
	case OpFenceProxy:
		return n + [...]string{"", ".global", ".shared"}[min(max(a.Imm, 0), 2)]
	}
	switch a.Order {
	case Weak:
	case Volatile:
		n += ".volatile"
	default:
		n += "." + a.Order.String() + "." + a.Scope.String()
	}
	switch s.Op {
	case OpLd, OpSt, OpAtomAdd, OpAtomMax, OpAtomMin, OpAtomOr, OpAtomExch, OpAtomCAS, OpRedAdd, OpWGMMA:
		n += "." + s.T.String()
	}
	return n
}

// suffix is what follows the operands.
func (s *Instr) suffix() string {
	var b strings.Builder
	a := s.Attr
	switch s.Op {
	case OpLop3:
		fmt.Fprintf(&b, " lut=0x%02x", a.Imm)
	case OpPrmt:
		fmt.Fprintf(&b, " sel=0x%04x", a.Imm)
	case OpParam, OpGet:
		if s.Op == OpParam && a.Param != nil {
			b.WriteString(" " + a.Param.Name)
		}
		if s.Op == OpGet {
			b.WriteString(" " + a.Var.String())
		}
	case OpBarSync, OpBarArrive:
		fmt.Fprintf(&b, " id=%d n=%d", a.Imm, a.N)
	case OpLdMatrix:
		if a.Imm != 0 {
			b.WriteString(" trans")
		}
	case OpWaitMBar, OpWaitMem, OpWaitTag:
		if a.Imm != 0 {
			fmt.Fprintf(&b, " sleep=%d", a.Imm)
		}
	case OpTensorG2S:
		if a.Imm != 0 {
			fmt.Fprintf(&b, " mask=%d", a.Imm)
		}
	case OpWGMMA:
		fmt.Fprintf(&b, " n=%d tiles=%v", s.Columns(), a.Tiles)
	case OpWGMMAWait, OpCopyWait, OpSetMaxReg:
		fmt.Fprintf(&b, " %d", a.N)
	case OpAssert:
		fmt.Fprintf(&b, " %q", a.Text)
	}
	if a.Lanes > 1 {
		fmt.Fprintf(&b, " lanes=%d", a.Lanes)
	}
	if a.Hint != NoHint {
		b.WriteString(" hint=" + a.Hint.String())
	}
	return b.String()
}

// String is the printed form, "@x:u32[v3]".
func (a Addr) String() string {
	if a.Index == nil {
		return a.Buf.String() + "[0]"
	}
	return fmt.Sprintf("%s[%s]", a.Buf, a.Index)
}
