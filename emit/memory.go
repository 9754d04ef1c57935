package emit

import (
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// qualifiers are the PTX words for an order at a scope, with leading dots.
func qualifiers(o ir.Order, s ir.Scope) string {
	switch o {
	case ir.Weak:
		return ""
	case ir.Volatile:
		return ".volatile"
	}
	return "." + o.String() + "." + s.String()
}

// hinting is how an access carries its cache hint: words before and after the
// address space, and the policy operand if there is one. Volatile accesses
// take no hints; what never writes memory during a launch may bypass coherence.
func hinting(in *ir.Instr) (nc bool, words, policy string) {
	b, a := in.Mem[0].Buf, in.Attr
	if a.Hint == ir.NoHint || a.Order == ir.Volatile {
		return false, "", ""
	}
	nc = in.Op == ir.OpLd && b.Base().ReadOnly && a.Order == ir.Weak
	switch a.Hint {
	case ir.NoAllocate:
		words = ".L1::no_allocate"
	case ir.EvictFirst, ir.EvictLast:
		words, policy = ".L2::cache_hint", a.Hint.String()
	}
	return nc, words, policy
}

// helperName turns PTX words into the name of the helper that wraps them.
func helperName(parts ...string) string {
	name := strings.NewReplacer(".", "_", "::", "_").Replace(strings.Join(parts, ""))
	name = strings.NewReplacer("L1_", "", "_L2_cache_hint", "", "_global", "").Replace(name)
	return strings.Trim(name, "_")
}

// plain reports whether an access is an ordinary one that C++ can spell.
func plain(in *ir.Instr) bool {
	nc, words, policy := hinting(in)
	return in.Attr.Order == ir.Weak && !nc && words == "" && policy == ""
}

func lanesOf(in *ir.Instr) int { return max(in.Attr.Lanes, 1) }

// valueType is the C++ type of what an access moves.
func valueType(t ir.Type, n int) string {
	if n > 1 {
		return vectorType(t, n)
	}
	return ctype(t)
}

// form is the element type and vector width an access has in PTX. A weak
// access to 128 bits need not be one access, so it goes without a .b128.
func form(in *ir.Instr) (t ir.Type, n int) {
	if in.T == ir.B128 && in.Attr.Order == ir.Weak {
		return ir.U32, 4
	}
	return in.T, lanesOf(in)
}

func spellLd(p *printer, in *ir.Instr) expr {
	m, n := in.Mem[0], lanesOf(in)
	if plain(in) {
		if n == 1 {
			return atom(p.place(m))
		}
		return expr{text: fmt.Sprintf("*(const %s*)%s", vectorType(in.T, n), p.address(m)), prec: precUnary}
	}
	nc, words, policy := hinting(in)
	mode := qualifiers(in.Attr.Order, in.Attr.Scope)
	ncWord := ""
	if nc {
		ncWord = ".nc"
	}
	space := "." + m.Buf.Space.String()
	t, width := form(in)
	ptx := "ld" + mode + space + ncWord + words + vec(width)
	name := helperName("ld", mode, space, ncWord, words, hintName(policy), vec(n), "_"+in.T.String())
	p.needSpace(m.Buf.Space)
	f := p.need(name, 1, func() string {
		return loadHelper(name, ptx, ctype(in.T), t, width, m.Buf.Space, policy != "",
			!nc)
	})
	args := []string{p.address(m)}
	return call(f, p.withPolicy(args, in.Attr.Hint, policy)...)
}

func vec(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(".v%d", n)
}

func hintName(policy string) string {
	if policy == "" {
		return ""
	}
	return "_" + policy
}

// withPolicy adds the cache policy to a call's arguments.
func (p *printer) withPolicy(args []string, h ir.Hint, policy string) []string {
	if policy == "" {
		return args
	}
	p.policy[h] = true
	p.fixed("policy_" + policy)
	return append(args, policy)
}

// loadHelper is the function around one form of ld. A scalar of 128 bits goes
// through a .b128 register: one access to the memory model.
func loadHelper(name, form, elem string, t ir.Type, n int, s ir.Space, policy, memory bool) string {
	ptr := "const " + elem + "* p"
	if policy {
		ptr += ", u64 policy"
	}
	if t == ir.B128 {
		return b128Load(name, form, ptr, s, policy)
	}
	var outs, regs []string
	for i := range n {
		v := "v"
		if n > 1 {
			v += components[i]
		}
		outs = append(outs, fmt.Sprintf(`"=%s"(%s)`, constraint(t), v))
		regs = append(regs, fmt.Sprintf("%%%d", i))
	}
	dst := regs[0]
	if n > 1 {
		dst = "{" + strings.Join(regs, ", ") + "}"
	}
	ins := []string{pointer(s, "p")}
	ptx := fmt.Sprintf("%s.%s %s, [%%%d]", form, sized(t), dst, n)
	if policy {
		ins = append(ins, `"l"(policy)`)
		ptx += fmt.Sprintf(", %%%d", n+1)
	}
	return function(form+"."+sized(t), valueType(t, n), name, ptr, ptx+";", outs, ins, memory)
}

func b128Load(name, form, params string, s ir.Space, policy bool) string {
	ins, tail := pointer(s, "p"), ""
	if policy {
		ins, tail = ins+`, "l"(policy)`, ", %3"
	}
	return fmt.Sprintf(`// %s.b128, one access to the memory model
%s uint4 %s(%s) {
  u64 lo, hi;
  asm volatile(
      "{\n"
      ".reg .b128 v;\n"
      "%s.b128 v, [%%2]%s;\n"
      "mov.b128 {%%0, %%1}, v;\n"
      "}"
      : "=l"(lo), "=l"(hi) : %s : "memory");
  return make_uint4((u32)lo, (u32)(lo >> 32), (u32)hi, (u32)(hi >> 32));
}`, form, device, name, params, form, tail, ins)
}

func spellSt(p *printer, in *ir.Instr) expr {
	m, n := in.Mem[0], lanesOf(in)
	value := p.bare(in.Args[0])
	if n > 1 {
		value = call("make_"+vectorType(in.T, n), p.texts(in)...).text
	}
	if plain(in) {
		if n == 1 {
			return atom(p.place(m) + " = " + value)
		}
		return atom(fmt.Sprintf("*(%s*)%s = %s", vectorType(in.T, n), p.address(m), value))
	}
	_, words, policy := hinting(in)
	mode := qualifiers(in.Attr.Order, in.Attr.Scope)
	space := "." + m.Buf.Space.String()
	t, width := form(in)
	ptx := "st" + mode + space + words + vec(width)
	name := helperName("st", mode, space, words, hintName(policy), vec(n), "_"+in.T.String())
	p.needSpace(m.Buf.Space)
	f := p.need(name, 1, func() string { return storeHelper(name, ptx, ctype(in.T), t, width, m.Buf.Space, policy != "") })
	return call(f, p.withPolicy([]string{p.address(m), value}, in.Attr.Hint, policy)...)
}

func storeHelper(name, form, elem string, t ir.Type, n int, s ir.Space, policy bool) string {
	params := fmt.Sprintf("%s* p, %s v", elem, valueType(t, n))
	if policy {
		params += ", u64 policy"
	}
	if t == ir.B128 {
		return b128Store(name, form, params, s, policy)
	}
	ins, regs := []string{pointer(s, "p")}, []string{}
	for i := range n {
		v := "v"
		if n > 1 {
			v += components[i]
		}
		ins = append(ins, fmt.Sprintf(`"%s"(%s)`, constraint(t), v))
		regs = append(regs, fmt.Sprintf("%%%d", i+1))
	}
	src := regs[0]
	if n > 1 {
		src = "{" + strings.Join(regs, ", ") + "}"
	}
	ptx := fmt.Sprintf("%s.%s [%%0], %s", form, sized(t), src)
	if policy {
		ins = append(ins, `"l"(policy)`)
		ptx += fmt.Sprintf(", %%%d", n+1)
	}
	return function(form+"."+sized(t), "void", name, params, ptx+";", nil, ins, true)
}

func b128Store(name, form, params string, s ir.Space, policy bool) string {
	ins := pointer(s, "p") + `, "l"((u64)v.y << 32 | v.x), "l"((u64)v.w << 32 | v.z)`
	tail := ""
	if policy {
		ins, tail = ins+`, "l"(policy)`, ", %3"
	}
	return fmt.Sprintf(`// %s.b128, one access to the memory model
%s void %s(%s) {
  asm volatile(
      "{\n"
      ".reg .b128 t;\n"
      "mov.b128 t, {%%1, %%2};\n"
      "%s.b128 [%%0], t%s;\n"
      "}"
      : : %s : "memory");
}`, form, device, name, params, form, tail, ins)
}
