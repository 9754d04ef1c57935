package emit

import (
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// rmwType is the PTX type of an atomic on t: signs count for add, min and max.
func rmwType(op string, t ir.Type) string {
	bits := fmt.Sprint(8 * t.Size())
	switch {
	case op == "or", op == "exch", op == "cas":
		return "b" + bits
	case t == ir.I32:
		return "s32"
	case t == ir.F32:
		return "f32"
	}
	return "u" + bits
}

// atomicOp is the row of an atomic: op is PTX's name for it. A reduction has
// no acquiring form in PTX, so one that asks for it is an atom whose result
// nobody takes.
func atomicOp(kind, op string) row {
	return row{expr: func(p *printer, in *ir.Instr) expr {
		kind := kind
		if kind == "red" && in.Attr.Order != ir.Relaxed && in.Attr.Order != ir.Release {
			kind = "atom"
		}
		_, words, policy := hinting(in)
		if policy == "" {
			words = "" // atomics take no L1 hint
		}
		space := in.Mem[0].Buf.Space
		mode := qualifiers(in.Attr.Order, in.Attr.Scope)
		form := kind + mode + "." + space.String() + "." + op + words + "." + rmwType(op, in.T)
		name := helperName(kind, mode, "."+space.String(), "."+op, hintName(policy), "_"+in.T.String())
		p.needSpace(space)
		f := p.need(name, 1, func() string { return atomicHelper(name, kind, form, in.T, len(in.Args), space, policy != "") })
		args := append([]string{p.address(in.Mem[0])}, p.bareTexts(in)...)
		return call(f, p.withPolicy(args, in.Attr.Hint, policy)...)
	}}
}

func atomicHelper(name, kind, form string, t ir.Type, values int, s ir.Space, policy bool) string {
	c, params := constraint(t), ctype(t)+"* p"
	var outs, regs []string
	result, at := "void", 0
	if kind == "atom" {
		result, at, outs, regs = ctype(t), 1, []string{`"=` + c + `"(v)`}, []string{"%0"}
	}
	ins := []string{pointer(s, "p")}
	regs = append(regs, fmt.Sprintf("[%%%d]", at))
	for i := range values {
		x := [...]string{"a", "b"}[i]
		params += ", " + ctype(t) + " " + x
		ins = append(ins, fmt.Sprintf(`"%s"(%s)`, c, x))
		regs = append(regs, fmt.Sprintf("%%%d", at+1+i))
	}
	if policy {
		params += ", u64 policy"
		ins = append(ins, `"l"(policy)`)
		regs = append(regs, fmt.Sprintf("%%%d", at+1+values))
	}
	return function(form, result, name, params, form+" "+strings.Join(regs, ", ")+";", outs, ins, true)
}

// waitPolls is how many polls of a word go by between two looks at an abort flag.
const waitPolls = 16

// spellWaitMem calls the polling loop of a condition, order, scope and space.
func spellWaitMem(p *printer, in *ir.Instr) expr {
	a, space := in.Attr, in.Mem[0].Buf.Space
	mode := qualifiers(a.Order, a.Scope)
	load := helperName("ld", mode, "."+space.String(), "_u32")
	p.needSpace(space)
	p.need(load, 1, func() string {
		return loadHelper(load, "ld"+mode+"."+space.String(), "u32", ir.U32, 1, space, false, true)
	})

	name := helperName("wait_", a.Cond.String(), mode, "."+space.String())
	args := []string{p.address(in.Mem[0]), p.bare(in.Args[0])}
	if len(in.Mem) > 2 {
		p.fixed("note")
		f := p.need(name+"_noted", 2, func() string { return notedWaitHelper(name+"_noted", load, a.Cond) })
		return call(f, p.notedArgs(in, args)...)
	}
	abort, sleep := len(in.Mem) > 1, a.Imm > 0
	if abort {
		name += "_or"
		args = append(args, p.address(in.Mem[1]))
	}
	if sleep {
		name += "_sleep"
		args = append(args, fmt.Sprint(a.Imm))
	}
	return call(p.need(name, 2, func() string { return waitHelper(name, load, a.Cond, abort, sleep) }), args...)
}

// condition is what keeps a wait polling, and in words what ends it.
func condition(load string, c ir.Cond) (open, until string) {
	switch c {
	case ir.CondEQ:
		return load + "(p) != want", "the word is want"
	case ir.CondNE:
		return load + "(p) == want", "the word is not want"
	}
	return "(i32)(" + load + "(p) - want) < 0", "the word has reached want, by wrapping difference"
}

// notedWaitHelper is waitHelper with a flag that ends the wait with a note.
func notedWaitHelper(name, load string, c ir.Cond) string {
	open, until := condition(load, c)
	return fmt.Sprintf(`// Polls until %s, or the flag is set, which it
// notes. Looks at the flag every %d polls.
%s void %s(const u32* p, u32 want, const u32* flag, u32* notes, u32 site, u32 tag, u32 detail) {
  for (u32 polls = 1; %s; ++polls) {
    if (polls %% %d == 0 && *(const volatile u32*)flag != 0) {
      note(notes, site, tag, detail);
      return;
    }
  }
}`, until, waitPolls, device, name, open, waitPolls)
}

// waitHelper is the loop that polls a word through the helper load.
func waitHelper(name, load string, c ir.Cond, abort, sleep bool) string {
	met, until := condition(load, c)
	params, rest := "const u32* p, u32 want", ""
	if abort {
		params += ", const u32* flag"
	}
	if sleep {
		params, rest = params+", u32 ns", "    __nanosleep(ns);\n"
	}
	if !abort {
		return fmt.Sprintf("// Polls until %s.\n%s void %s(%s) {\n  while (%s) {\n%s  }\n}", until, device, name, params, met,
			rest)
	}
	return fmt.Sprintf(`// Polls until %s, or the flag is set: then true. Looks at the
// flag every %d polls.
%s bool %s(%s) {
  for (u32 polls = 1; %s; ++polls) {
    if (polls %% %d == 0 && *(const volatile u32*)flag != 0) {
      return true;
    }
%s  }
  return false;
}`, until, waitPolls, device, name, params, met, waitPolls, rest)
}

// spellWaitTag calls the polling loop of a packet.
func spellWaitTag(p *printer, in *ir.Instr) expr {
	args := []string{p.address(in.Mem[0]), p.bare(in.Args[0]), p.bare(in.Args[1])}
	if len(in.Mem) > 2 {
		args = p.notedArgs(in, args)
	}
	return call(p.waitTag(in), args...)
}

// tagLoad is the name of the helper that loads a packet as in does.
func tagLoad(in *ir.Instr) string {
	return helperName("ld", qualifiers(in.Attr.Order, in.Attr.Scope), "."+in.Mem[0].Buf.Space.String(), "_b128")
}

// waitTag makes sure that the polling loop of in is printed and returns its qualified name.
func (p *printer) waitTag(in *ir.Instr) string {
	space := in.Mem[0].Buf.Space
	mode := qualifiers(in.Attr.Order, in.Attr.Scope)
	load := tagLoad(in)
	p.needSpace(space)
	p.need(load, 1, func() string {
		return loadHelper(load, "ld"+mode+"."+space.String(), ctype(ir.B128), ir.B128, 1, space, false, true)
	})
	name := helperName("wait_packet", mode, "."+space.String())
	if len(in.Mem) > 2 {
		p.fixed("note")
		return p.need(name+"_noted", 2, func() string { return notedTagHelper(name+"_noted", load) })
	}
	return p.need(name, 2, func() string {
		return fmt.Sprintf(`// v, or the packet that comes to be there, as soon as its last word is flag.
%s uint4 %s(const uint4* p, u32 flag, uint4 v) {
  while (v.w != flag) {
    v = %s(p);
  }
  return v;
}`, device, name, load)
	})
}

func notedTagHelper(name, load string) string {
	return fmt.Sprintf(`// v, or the packet that comes to be there, as soon as its last word is flag; or when abort is set,
// which it notes. Looks at abort every %d polls.
%s uint4 %s(const uint4* p, u32 flag, uint4 v, const u32* abort, u32* notes, u32 site, u32 word, u32 detail) {
  for (u32 polls = 1; v.w != flag; ++polls) {
    v = %s(p);
    if (polls %% %d == 0 && *(const volatile u32*)abort != 0) {
      note(notes, site, word, detail);
      return v;
    }
  }
  return v;
}`, waitPolls, device, name, load, waitPolls)
}
