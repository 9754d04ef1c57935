package emit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// helper is a function of the prelude: printed once, when the kernel calls it.
type helper struct {
	rank int // helpers call only those of lower rank
	text string
}

// prelude prints the helpers the body calls, by rank and name.
func (p *printer) prelude() {
	if len(p.helpers) == 0 {
		return
	}
	names := make([]string, 0, len(p.helpers))
	for name := range p.helpers {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(p.helpers[a].rank, p.helpers[b].rank), cmp.Compare(a, b))
	})
	p.text("namespace ptx {", "")
	for _, name := range names {
		p.text(strings.Split(p.helpers[name].text, "\n")...)
		p.text("")
	}
	p.text("}  // namespace ptx", "")
}

// need makes sure that helper name is printed and returns its qualified name.
func (p *printer) need(name string, rank int, text func() string) string {
	if _, ok := p.helpers[name]; !ok {
		p.helpers[name] = helper{rank: rank, text: text()}
	}
	return "ptx::" + name
}

// fixedHelpers are all of them.
func fixedHelpers() []fixedHelper {
	return slices.Concat(ownHelpers[:], sharedHelpers[:], groupHelpers[:])
}

// fixed makes sure that one of the helpers whose text never varies is printed.
func (p *printer) fixed(name string) string {
	for _, f := range fixedHelpers() {
		if f.name == name {
			for _, dep := range strings.Fields(f.deps) {
				p.fixed(dep)
			}
			return p.need(name, f.rank, func() string { return strings.TrimSpace(strings.ReplaceAll(f.text, "DEVICE", device)) })
		}
	}
	panic("BUG: emit: no helper " + name)
}

const device = "__device__ __forceinline__"

// function is the text of a helper around one asm statement.
//
//	outs, ins  operands as "constraint"(expression)
func function(doc, result, name, params, asm string, outs, ins []string, memory bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "// %s\n%s %s %s(%s) {\n", doc, device, result, name, params)
	if result != "void" {
		fmt.Fprintf(&b, "  %s v;\n", result)
	}
	fmt.Fprintf(&b, "  asm volatile(\"%s\"\n      :%s : %s", asm, strings.TrimRight(" "+strings.Join(outs, ", "), " "),
		strings.Join(ins, ", "))
	if memory {
		b.WriteString(` : "memory"`)
	}
	b.WriteString(");\n")
	if result != "void" {
		b.WriteString("  return v;\n")
	}
	b.WriteString("}")
	return b.String()
}

// constraint is the asm constraint letter of a type's register.
func constraint(t ir.Type) string {
	switch t.Size() {
	case 2:
		return "h"
	case 8:
		return "l"
	}
	if t == ir.F32 {
		return "f"
	}
	return "r"
}

// sized is the PTX type of a load or store of t.
func sized(t ir.Type) string {
	switch t {
	case ir.F32:
		return "f32"
	case ir.I32:
		return "s32"
	}
	return fmt.Sprintf("u%d", 8*t.Size())
}

// pointer is the asm operand for the address held in C++ pointer name.
func pointer(s ir.Space, name string) string {
	if s == ir.Shared {
		return `"r"(shared_address(` + name + `))`
	}
	return `"l"(__cvta_generic_to_global(` + name + `))`
}

func (p *printer) needSpace(s ir.Space) {
	if s == ir.Shared {
		p.fixed("shared_address")
	}
}
