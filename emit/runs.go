package emit

import (
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// runOf is the first statements of a block that share a line: declarations of variables of one type and hint that begin
// with the same constant, or assignments of the components of one vector. Fewer than two are no run.
func (p *printer) runOf(list []ir.Stmt) (run []*ir.Instr) {
	for _, s := range list {
		in, ok := s.(*ir.Instr)
		if !ok || len(run) > 0 && p.pl.live[in] && !p.follows(run[0], in) || len(run) == 0 && !p.begins(in) {
			break
		}
		run = append(run, in)
	}
	return run
}

// begins reports whether in may be the first of a run.
func (p *printer) begins(in *ir.Instr) bool {
	switch {
	case !p.pl.live[in]:
		return false
	case in.Op == ir.OpVar:
		return p.pl.resolve(in.Args[0]).Const
	}
	return in.Op == ir.OpSet && p.vector(in) != nil
}

// follows reports whether in goes on with the run that first begins.
func (p *printer) follows(first, in *ir.Instr) bool {
	if in.Op != first.Op {
		return false
	}
	if in.Op == ir.OpSet {
		return p.vector(in) == p.vector(first)
	}
	a, b := p.pl.resolve(first.Args[0]), p.pl.resolve(in.Args[0])
	x, y := first.Attr.Var, in.Attr.Var
	return b.Const && a.Bits == b.Bits && a.Type == b.Type && x.Type == y.Type && x.Hint == y.Hint
}

// vector is the instruction that made the vector of which in assigns a component; nil where it assigns none.
func (p *printer) vector(in *ir.Instr) *ir.Instr {
	v := p.pl.resolve(in.Args[0])
	if v.Const || v.Def == nil || len(v.Def.Res) < 2 || p.pl.rows[v.Def.Op].each != nil {
		return nil
	}
	return v.Def
}

// together prints a run.
func (p *printer) together(run []*ir.Instr) {
	first := run[0]
	p.taken = nil
	defer func() { p.taken = nil }()
	var texts []string
	for _, in := range run {
		if !p.pl.live[in] {
			continue
		}
		p.taken = append(p.taken, in)
		if in.Op == ir.OpVar {
			texts = append(texts, fmt.Sprintf("%s = %s", p.newVariable(in.Attr.Var), p.bare(in.Args[0])))
		} else {
			texts = append(texts, fmt.Sprintf("%s = %s;", p.variable(in), p.bare(in.Args[0])))
		}
	}
	if first.Op == ir.OpVar {
		p.line(first.Pos, "%s %s;", ctype(first.Attr.Var.Type), strings.Join(texts, ", "))
		return
	}
	width := lineWidth - p.indent*indentWidth
	for line := ""; len(texts) > 0 || line != ""; {
		if len(texts) > 0 && (line == "" || len(line)+1+len(texts[0]) <= width) {
			line, texts = strings.TrimPrefix(line+" "+texts[0], " "), texts[1:]
			continue
		}
		p.line(first.Pos, "%s", line)
		line = ""
	}
}
