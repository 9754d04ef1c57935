package emit

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// instr prints one instruction, or remembers its text for where it is used.
func (p *printer) instr(in *ir.Instr) {
	if !p.pl.live[in] {
		return
	}
	p.taken = []*ir.Instr{in}
	defer func() { p.taken = nil }()
	r := p.pl.rows[in.Op]
	switch {
	case r.stmt != nil:
		r.stmt(p, in)
	case r.each != nil:
		for i, v := range in.Res {
			if len(p.pl.uses[v.ID]) > 0 {
				p.define(in, v, r.each(p, in, i))
			}
		}
	case len(in.Res) > 1:
		p.defineVector(in, r.expr(p, in))
	case len(in.Res) == 1 && len(p.pl.uses[in.Res[0].ID]) > 0:
		p.define(in, in.Res[0], r.expr(p, in))
	default:
		p.line(in.Pos, "%s;", r.expr(p, in).text)
	}
}

// define binds value v to e: by its text alone, or as a named constant.
func (p *printer) define(in *ir.Instr, v *ir.Value, e expr) {
	short := len(e.text) <= inlineWidth || in.Op == ir.OpGet || isRegister(in.Op) ||
		len(in.Res) == 1 && p.pl.assigned(in, p.pl.at[in], p.pl.uses[v.ID])
	if p.pl.inline[v.ID] && short {
		p.exprs[v.ID] = e
		p.carried[v.ID] = slices.Clone(p.taken)
		return
	}
	name := p.names.pick(p.baseName(v))
	p.line(in.Pos, "const %s %s = %s;", ctype(v.Type), name, e.text)
	p.exprs[v.ID] = atom(name)
}

// defineVector binds the results of in to the components of one named vector.
func (p *printer) defineVector(in *ir.Instr, e expr) {
	used := false
	for _, v := range in.Res {
		used = used || len(p.pl.uses[v.ID]) > 0
	}
	if !used {
		p.line(in.Pos, "%s;", e.text)
		return
	}
	name := p.names.pick(p.groupName(in.Res))
	p.line(in.Pos, "const %s %s = %s;", vectorType(in.Res[0].Type, len(in.Res)), name, e.text)
	for i, v := range in.Res {
		p.exprs[v.ID] = atom(name + components[i])
	}
}

// baseName is the name wanted for v: its hint, or that of the printed IR.
func (p *printer) baseName(v *ir.Value) string {
	if h := p.pl.hint(v); h != "" {
		return h
	}
	return fmt.Sprintf("v%d", v.ID)
}

// groupName is the name wanted for a vector: what the hints of its components
// have in common.
func (p *printer) groupName(vs []*ir.Value) string {
	hint := p.pl.hint(vs[0])
	if hint == "" {
		return p.baseName(vs[0])
	}
	common := hint
	for _, v := range vs[1:] {
		h := p.pl.hint(v)
		for !strings.HasPrefix(h, common) {
			common = common[:len(common)-1]
		}
	}
	if common == "" {
		return hint
	}
	return common
}

// val is the expression that stands for v here.
func (p *printer) val(v *ir.Value) expr {
	v = p.pl.resolve(v)
	if v.Const {
		return literal(v)
	}
	e := p.exprs[v.ID]
	if e.text == "" {
		panic(fmt.Sprintf("BUG: emit: %s is used before it is printed", v))
	}
	p.taken = append(p.taken, p.carried[v.ID]...)
	return e
}

// arg is operand i of in.
func (p *printer) arg(in *ir.Instr, i int) expr { return p.val(in.Args[i]) }

// texts are the operands of in as arguments of a call.
func (p *printer) texts(in *ir.Instr) []string {
	out := make([]string, len(in.Args))
	for i := range in.Args {
		out[i] = p.arg(in, i).text
	}
	return out
}

// place is the element that m names: x[i].
func (p *printer) place(m ir.Addr) string {
	index := "0"
	if m.Index != nil {
		index = p.index(m.Index)
	}
	return p.buf(m.Buf) + "[" + index + "]"
}

// address is the element's address: x, or &x[i].
func (p *printer) address(m ir.Addr) string {
	if m.Index == nil || p.pl.resolve(m.Index).Const && m.Index.Bits == 0 {
		return p.buf(m.Buf)
	}
	return "&" + p.place(m)
}

// index is an index's text; constants lose their suffix. Pointer arithmetic
// is 64 bits wide whatever the index's type.
func (p *printer) index(v *ir.Value) string {
	return p.bare(v)
}

// bare is v's text where its type is plain without a suffix: what it is
// converted to is declared.
func (p *printer) bare(v *ir.Value) string {
	r := p.pl.resolve(v)
	if r.Const && r.Type.IsInt() && r.Bits <= math.MaxInt32 {
		return strconv.FormatUint(r.Bits, 10)
	}
	return p.val(r).text
}

// bareTexts are the operands of in as arguments of a function whose
// parameters have one type.
func (p *printer) bareTexts(in *ir.Instr) []string {
	out := make([]string, len(in.Args))
	for i, v := range in.Args {
		out[i] = p.bare(v)
	}
	return out
}

// sides are the two operands of an operator; beside one that is no constant a
// small integer constant needs no suffix.
func (p *printer) sides(in *ir.Instr) (a, b expr) {
	a, b = p.arg(in, 0), p.arg(in, 1)
	left, right := p.pl.resolve(in.Args[0]), p.pl.resolve(in.Args[1])
	switch {
	case left.Type == ir.I32 || left.Const == right.Const:
	case left.Const && left.Type.IsInt():
		a = atom(p.bare(left))
	case right.Const && right.Type.IsInt():
		b = atom(p.bare(right))
	}
	return a, b
}

func (p *printer) buf(b *ir.Buf) string {
	name, ok := p.bufs[b]
	if !ok {
		panic(fmt.Sprintf("BUG: emit: buffer %s has no name", b))
	}
	return name
}
