package emit

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// printer holds what is known while one kernel is printed.
type printer struct {
	k       *ir.Kernel
	t       Target
	o       Options
	pl      *plan
	names   *namer
	exprs   []expr               // by value ID: the text that stands for it
	vars    map[*ir.Var]string   // names of the Vars in scope
	bufs    map[*ir.Buf]string   // names of the buffers used
	params  map[*ir.Param]string // names of the scalars used
	fields  map[any]string       // names of the params block's members, by *ir.Buf or *ir.Param
	helpers map[string]helper    // the prelude's functions, by name
	declare []*ir.Buf            // the buffers used, once per name
	policy  map[ir.Hint]bool     // cache policies used
	out     bytes.Buffer
	lines   []ir.Pos
	instrs  [][]*ir.Instr       // per line: what Source.Instrs says
	taken   []*ir.Instr         // instructions whose text the statement now composed takes
	carried map[int][]*ir.Instr // by value ID: those in the text that stands for it
	indent  int
}

const (
	indentWidth = 2
	lineWidth   = 120
	inlineWidth = 64 // a longer expression gets a name
)

func newPrinter(k *ir.Kernel, t Target, o Options) *printer {
	p := &printer{
		k: k, t: t, o: o, pl: analyze(k), names: newNamer(), exprs: make([]expr, k.NumValues), vars: map[*ir.Var]string{},
		bufs: map[*ir.Buf]string{}, params: map[*ir.Param]string{}, fields: map[any]string{}, helpers: map[string]helper{},
		policy: map[ir.Hint]bool{}, carried: map[int][]*ir.Instr{}, indent: 1,
	}
	p.nameFields()
	p.nameTop()
	return p
}

// line prints one line of code that came from pos; a long one is broken after
// commas and before operators.
func (p *printer) line(pos ir.Pos, format string, args ...any) {
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	if p.o.Lines && pos.Line != "" {
		text += "  // " + pos.Line
	}
	pad := strings.Repeat(" ", p.indent*indentWidth)
	for first := true; text != ""; first = false {
		head, rest := breakLine(text, lineWidth-len(pad))
		p.out.WriteString(pad + head + "\n")
		p.lines = append(p.lines, pos)
		p.instrs = append(p.instrs, slices.Clone(p.taken))
		text = rest
		if first {
			pad += "    "
		}
	}
}

// breakLine splits text that is wider than width, after a comma or before an
// operator, as far out of its parentheses as it can and there as far right. A
// comment is never broken.
func breakLine(text string, width int) (head, rest string) {
	code, _, _ := strings.Cut(text, "  // ")
	if len(code) <= width || strings.HasPrefix(text, "//") {
		return text, ""
	}
	at, best, depth := 0, 1<<30, 0
	for i := range width + 1 {
		switch c := code[i]; {
		case c == '(' || c == '{':
			depth++
		case c == ')' || c == '}':
			depth--
		case c == ' ' && i > width/3 && depth <= best && breakable(code, i):
			at, best = i, depth
		}
	}
	if at == 0 {
		return text, ""
	}
	return text[:at], text[at+1:]
}

// breakable reports whether a line may end before the blank at i.
func breakable(code string, i int) bool {
	return code[i-1] == ',' || i+2 < len(code) && strings.ContainsRune("+*&|?:", rune(code[i+1])) &&
		strings.ContainsRune(" &|", rune(code[i+2]))
}

// block prints statements in the current scope.
func (p *printer) block(b *ir.Block) {
	for i := 0; i < len(b.Stmts); i++ {
		if run := p.runOf(b.Stmts[i:]); len(run) > 1 {
			p.together(run)
			i += len(run) - 1
			continue
		}
		if f := p.pollOf(b.Stmts[i:]); f != nil {
			p.poll(f)
			i += guardStmts*len(f.packets) - 1
			continue
		}
		switch s := b.Stmts[i].(type) {
		case *ir.Instr:
			p.instr(s)
		case *ir.For:
			p.loop(s)
		case *ir.If:
			p.branch(s)
		case *ir.Roles:
			p.roles(s)
		case *ir.Region:
			p.region(s)
		case *ir.Note:
			p.line(s.Pos, "// %s  [%s]", oneLine(s.Text), oneLine(s.From))
		default:
			panic(fmt.Sprintf("BUG: emit: unknown statement %T", s))
		}
	}
}

// scope prints b one level deeper, in a scope of its own.
func (p *printer) scope(b *ir.Block) {
	p.names.open()
	p.indent++
	p.block(b)
	p.indent--
	p.names.close()
}

func (p *printer) loop(f *ir.For) {
	p.names.open()
	defer p.names.close()
	hint := f.I.Hint
	if hint == "" {
		hint = "i"
	}
	p.taken = nil
	lo, hi := p.bare(f.Lo), p.val(f.Hi)
	if p.pl.resolve(f.Hi).Const {
		hi = atom(p.bare(f.Hi))
	}
	i := p.names.pick(hint)
	p.exprs[f.I.ID] = atom(i)
	if f.Unroll > 0 {
		p.line(f.Pos, "#pragma unroll %d", f.Unroll)
	}
	step := "++" + i
	if f.Step.Bits != 1 {
		step = i + " += " + p.bare(f.Step)
	}
	p.line(f.Pos, "for (%s %s = %s; %s < %s; %s) {", ctype(f.I.Type), i, lo, i, hi.in(precShift), step)
	p.taken = nil
	p.scope(f.Body)
	p.line(ir.Pos{}, "}")
}

func (p *printer) branch(s *ir.If) {
	p.taken = nil
	p.line(s.Pos, "if (%s) {", p.val(s.Cond).text)
	p.taken = nil
	p.scope(s.Then)
	if s.Else != nil && len(s.Else.Stmts) > 0 {
		p.line(ir.Pos{}, "} else {")
		p.scope(s.Else)
	}
	p.line(ir.Pos{}, "}")
}

// roles prints disjoint warp ranges as one chain of branches.
func (p *printer) roles(s *ir.Roles) {
	lead := ""
	for _, r := range s.Roles {
		cond := fmt.Sprintf("warp >= %d && warp < %d", r.First, r.End)
		switch {
		case r.End == r.First+1:
			cond = fmt.Sprintf("warp == %d", r.First)
		case r.First == 0:
			cond = fmt.Sprintf("warp < %d", r.End)
		case r.End == p.k.Warps:
			cond = fmt.Sprintf("warp >= %d", r.First)
		}
		p.line(r.Pos, "%sif (%s) {  // role %s: %s", lead, cond, oneLine(r.Name), warpCount(r))
		p.scope(r.Body)
		lead = "} else "
	}
	if lead != "" {
		p.line(ir.Pos{}, "}")
	}
}

func warpCount(r *ir.Role) string {
	if r.End-r.First == 1 {
		return "1 warp"
	}
	return fmt.Sprintf("%d warps", r.End-r.First)
}

// region prints a titled part: in braces when nothing named inside is needed
// after it, else open to its end.
func (p *printer) region(r *ir.Region) {
	p.line(r.Pos, "// ---- %s ----", oneLine(r.Name))
	if p.escapes(r.Body, p.pl.end[r]) {
		p.block(r.Body)
		return
	}
	p.line(r.Pos, "{")
	p.scope(r.Body)
	p.line(ir.Pos{}, "}")
}

// escapes reports whether something defined in b itself, or in regions that
// share its scope, is used after position end.
func (p *printer) escapes(b *ir.Block, end int) bool {
	for _, s := range b.Stmts {
		switch s := s.(type) {
		case *ir.Region:
			if p.escapes(s.Body, end) {
				return true
			}
		case *ir.Instr:
			if p.pl.usedAfter(s, end) {
				return true
			}
		}
	}
	return false
}

// usedAfter reports whether text after position end needs what in defines.
func (pl *plan) usedAfter(in *ir.Instr, end int) bool {
	for _, r := range in.Res {
		for _, u := range pl.uses[r.ID] {
			if u.pos > end {
				return true
			}
		}
	}
	if in.Op == ir.OpVar {
		for _, pos := range pl.varUses[in.Attr.Var] {
			if pos > end {
				return true
			}
		}
	}
	return false
}

// oneLine makes any text safe inside a // comment: one line of printable
// characters, not ended by a backslash.
func oneLine(s string) string {
	clean := func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}
	s = strings.TrimRight(strings.Map(clean, s), `\ `)
	s = strings.ReplaceAll(s, "??/", "?? /")
	s = strings.ReplaceAll(s, "__global__", "global")
	return strings.ReplaceAll(s, "#include", "include")
}
