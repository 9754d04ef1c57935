package emit

import (
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// shiftLeft is << where the amount is known to be below the width, else the
// function that defines the rest.
func shiftLeft(p *printer, in *ir.Instr) expr {
	a, n := p.arg(in, 0), atom(p.bare(in.Args[1]))
	if !p.pl.resolve(in.Args[1]).Const {
		n = p.arg(in, 1)
	}
	t := in.Args[0].Type
	if t == ir.I32 {
		a = asU32(a)
	}
	var e expr
	switch width := uint64(8 * t.Size()); {
	case p.pl.limit(in.Args[1], 0) < width:
		e = infix(a, "<<", n, precShift, false)
	case t == ir.U64:
		e = call(p.fixed("shl64"), a.text, n.text)
	default:
		e = call(p.fixed("shl32"), a.text, n.text)
	}
	if t == ir.I32 {
		return wrapped(e)
	}
	return e
}

func shiftRight(p *printer, in *ir.Instr) expr {
	a, n := p.arg(in, 0), atom(p.bare(in.Args[1]))
	if !p.pl.resolve(in.Args[1]).Const {
		n = p.arg(in, 1)
	}
	t := in.Args[0].Type
	if p.pl.limit(in.Args[1], 0) < uint64(8*t.Size()) {
		return infix(a, ">>", n, precShift, false)
	}
	f := map[ir.Type]string{ir.I32: "sar32", ir.U32: "shr32", ir.U64: "shr64"}[t]
	return call(p.fixed(f), a.text, n.text)
}

// limit is an upper bound of a u32 value as far as it is plain to see.
func (pl *plan) limit(v *ir.Value, depth int) uint64 {
	const unknown = 1<<32 - 1
	v = pl.resolve(v)
	switch {
	case v.Const:
		return v.Bits
	case v.Def == nil && v.Loop.Hi.Const && v.Loop.Hi.Bits > 0:
		return v.Loop.Hi.Bits - 1
	case v.Def == nil || depth > 4 || v.Type != ir.U32:
		return unknown
	}
	arg := func(i int) uint64 { return pl.limit(v.Def.Args[i], depth+1) }
	switch v.Def.Op {
	case ir.OpLane:
		return 31
	case ir.OpAnd, ir.OpMin:
		return min(arg(0), arg(1))
	case ir.OpRem:
		return max(arg(1), 1) - 1
	case ir.OpShr:
		if n := pl.resolve(v.Def.Args[1]); n.Const && n.Bits < 32 {
			return arg(0) >> n.Bits
		}
	case ir.OpDiv:
		if n := pl.resolve(v.Def.Args[1]); n.Const && n.Bits > 0 {
			return arg(0) / n.Bits
		}
	case ir.OpMul:
		return clamp(arg(0)*arg(1), arg(0), arg(1))
	case ir.OpAdd:
		return min(arg(0)+arg(1), unknown)
	}
	return unknown
}

// clamp is a product of two 32-bit bounds, or the largest u32 where it may wrap.
func clamp(product, a, b uint64) uint64 {
	if a != 0 && b > (1<<32-1)/a {
		return 1<<32 - 1
	}
	return product
}

func named(name string) spelling {
	return func(p *printer, in *ir.Instr) expr {
		return call(fmt.Sprintf("%s<%d, %d>", p.fixed(name), in.Attr.Imm, in.Attr.N))
	}
}

// mbarrier calls a function of an mbarrier with the operands behind its address.
func mbarrier(name string) spelling {
	return func(p *printer, in *ir.Instr) expr {
		return call(p.fixed(name), append([]string{p.address(in.Mem[0])}, p.bareTexts(in)...)...)
	}
}

// notedArgs adds to a wait's own arguments the flag and what its note takes.
func (p *printer) notedArgs(in *ir.Instr, args []string) []string {
	note := in.Args[len(in.Args)-2:]
	return append(args, p.address(in.Mem[1]), p.address(in.Mem[2]), fmt.Sprint(in.Attr.N), p.bare(note[0]),
		p.bare(note[1]))
}

func spellWaitMBar(p *printer, in *ir.Instr) expr {
	args := []string{p.address(in.Mem[0]), p.bare(in.Args[0])}
	ns := fmt.Sprint(in.Attr.Imm)
	switch {
	case len(in.Mem) > 2:
		p.fixed("mbar_poll_noted")
		return call(p.fixed("mbar_wait_noted"), p.notedArgs(in, args)...)
	case len(in.Mem) > 1:
		if ns == "0" {
			return call(p.fixed("mbar_wait_or"), append(args, p.address(in.Mem[1]))...)
		}
		return call(p.fixed("mbar_wait_or_sleep"), append(args, ns, p.address(in.Mem[1]))...)
	case in.Attr.Imm > 0:
		return call(p.fixed("mbar_wait_sleep"), append(args, ns)...)
	}
	return call(p.fixed("mbar_wait"), args...)
}

func spellBulk(p *printer, in *ir.Instr) expr {
	args := []string{p.address(in.Mem[0]), p.address(in.Mem[1]), p.bare(in.Args[0]), p.address(in.Mem[2])}
	if h := in.Attr.Hint; h == ir.EvictFirst || h == ir.EvictLast {
		return call(p.fixed("bulk_g2s_hint"), p.withPolicy(args, h, h.String())...)
	}
	return call(p.fixed("bulk_g2s"), args...)
}

// spellFence calls the function around one fence instruction.
func spellFence(p *printer, ptx, doc string) expr {
	name := strings.Replace(helperName(ptx), "shared_cta", "shared", 1)
	if strings.HasSuffix(ptx, ".global") {
		name += "_global"
	}
	return call(p.need(name, 1, func() string {
		return fmt.Sprintf("// %s.\n%s void %s() { asm volatile(\"%s;\" : : : \"memory\"); }", doc, device, name, ptx)
	}))
}
