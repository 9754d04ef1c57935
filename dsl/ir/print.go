package ir

import (
	"fmt"
	"io"
	"strings"
)

// Print writes the kernel in its text form, see the package comment. The form
// is for readers and goldens; nothing reads it back. The first error of w is
// returned.
func Print(w io.Writer, k *Kernel) error { return (&printer{w: w}).kernel(k) }

// PrintLines is Print with the Go line of each instruction, and its caller's, as a comment behind it.
func PrintLines(w io.Writer, k *Kernel) error { return (&printer{w: w, lines: true}).kernel(k) }

func (p *printer) kernel(k *Kernel) error {
	p.header(k)
	p.line("{")
	p.block(k.Body)
	p.line("}")
	return p.err
}

// String is the kernel's text form.
func (k *Kernel) String() string {
	var b strings.Builder
	_ = Print(&b, k) // a Builder never fails
	return b.String()
}

// printer writes indented lines and remembers the first error.
type printer struct {
	w      io.Writer
	lines  bool // Go's, behind each instruction
	indent int
	err    error
}

func (p *printer) line(format string, args ...any) {
	if p.err != nil {
		return
	}
	_, p.err = fmt.Fprintf(p.w, strings.Repeat("  ", p.indent)+format+"\n", args...)
}

func (p *printer) header(k *Kernel) {
	for _, d := range k.Doc {
		p.line("// %s", d)
	}
	head := fmt.Sprintf("kernel %s warps=%d", k.Name, k.Warps)
	if k.Grid > 0 {
		head += fmt.Sprintf(" grid=%d", k.Grid)
	}
	if k.ClusterSize > 1 {
		head += fmt.Sprintf(" cluster=%d", k.ClusterSize)
	}
	if k.PerSM > 1 {
		head += fmt.Sprintf(" per-sm=%d", k.PerSM)
	}
	p.line("%s shared=%d/%d", head, k.SharedBytes, k.SharedLimit)
	for _, x := range k.Params {
		p.line("param %s:%s%s", x.Name, x.Type, doc(x.Doc))
	}
	for _, b := range k.Bufs {
		p.line("%s", b.Decl())
	}
}

func doc(text string) string {
	if text == "" {
		return ""
	}
	return "  // " + text
}

// Decl is the buffer's declaration in printed IR.
//
// Example printed form: shared @ring:b128[512] offset=1024 align=128
func (b *Buf) Decl() string {
	n := fmt.Sprint(b.Len)
	if b.Len == 0 && b.Space == Global {
		n = "" // as long as the host binds
	}
	if b.Root != nil {
		return fmt.Sprintf("view @%s:%s[%s] of %s offset=%d", b.Name, b.Elem, n, b.Root, b.Offset)
	}
	s := fmt.Sprintf("%s @%s:%s[%s]", b.Space, b.Name, b.Elem, n)
	if b.Space == Shared {
		s += fmt.Sprintf(" offset=%d", b.Offset)
	}
	s += fmt.Sprintf(" align=%d", b.Align)
	if b.ReadOnly {
		s += " readonly"
	}
	if b.Host != HostNone {
		s += " host-" + b.Host.String()
	}
	if m := b.Map; m != nil {
		s += fmt.Sprintf(" map of %s at %d dims=%v strides=%v box=%v", m.Of, m.From, m.Dims, m.Strides, m.Box)
	}
	return s + doc(b.Doc)
}

func (p *printer) block(b *Block) {
	if b == nil {
		return
	}
	p.indent++
	for _, s := range b.Stmts {
		p.stmt(s)
	}
	p.indent--
}

func (p *printer) stmt(s Stmt) {
	switch s := s.(type) {
	case *Instr:
		if p.lines {
			p.line("%s  // %s", s, s.Pos)
		} else {
			p.line("%s", s)
		}
		return
	case *Note:
		p.line("note %q", s.Text)
		return
	case *For:
		p.line("%s {", s)
		p.block(s.Body)
	case *If:
		p.line("%s {", s)
		p.block(s.Then)
		if s.Else != nil {
			p.line("} else {")
			p.block(s.Else)
		}
	case *Roles:
		p.line("roles {")
		p.indent++
		for _, r := range s.Roles {
			p.line("%s warps %d..%d {", r.Name, r.First, r.End)
			p.block(r.Body)
			p.line("}")
		}
		p.indent--
	case *Region:
		p.line("region %q {", s.Name)
		p.block(s.Body)
	default:
		panic(fmt.Sprintf("BUG: unknown statement %T", s))
	}
	p.line("}")
}

// def is the printed form of a value where it is defined: "v7.row:u32".
func def(v *Value) string {
	switch {
	case v == nil:
		return "<nil>"
	case v.Hint != "":
		return fmt.Sprintf("%s.%s:%s", v, v.Hint, v.Type)
	}
	return fmt.Sprintf("%s:%s", v, v.Type)
}

// String is the loop's head, "for v2.i:u32 in 0..v1 step 1".
func (s *For) String() string {
	h := fmt.Sprintf("for %s in %s..%s step %s", def(s.I), s.Lo, s.Hi, s.Step)
	if s.Unroll != 0 {
		h += fmt.Sprintf(" unroll %d", s.Unroll)
	}
	return h
}

// String is the branch's head, "if v3".
func (s *If) String() string { return "if " + s.Cond.String() }
