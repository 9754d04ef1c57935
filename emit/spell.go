package emit

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl/ir"
)

type spelling = func(p *printer, in *ir.Instr) expr

// text is an expression without operands.
func text(s string) spelling { return func(*printer, *ir.Instr) expr { return atom(s) } }

// callOf calls one of CUDA's own functions with the operands.
func callOf(name string) spelling {
	return func(p *printer, in *ir.Instr) expr { return call(name, p.texts(in)...) }
}

// helperCall calls a function of the prelude with the operands.
func helperCall(name string) spelling {
	return func(p *printer, in *ir.Instr) expr { return call(p.fixed(name), p.bareTexts(in)...) }
}

// collective calls a warp function with the mask of all lanes.
func collective(name string) spelling {
	return func(p *printer, in *ir.Instr) expr {
		return call(name, append([]string{"0xffffffffu"}, p.texts(in)...)...)
	}
}

func byFloat(float, integer string) spelling {
	return func(p *printer, in *ir.Instr) expr {
		if in.Args[0].Type == ir.F32 {
			return call(float, p.texts(in)...)
		}
		return call(integer, p.texts(in)...)
	}
}

func binary(op string, prec int) spelling {
	return func(p *printer, in *ir.Instr) expr {
		a, b := p.sides(in)
		return infix(a, op, b, prec, false)
	}
}

// sum is + or −. Integers of 32 signed bits go through u32, where they wrap.
func sum(op string, prec int) spelling {
	return func(p *printer, in *ir.Instr) expr {
		a, b := p.sides(in)
		if in.Args[0].Type != ir.I32 {
			return infix(a, op, b, prec, op == "+" && in.Args[0].Type != ir.F32)
		}
		if c := in.Args[1]; c.Const && int32(c.Bits) < 0 && int32(c.Bits) != -1<<31 {
			op := map[string]string{"+": "-", "-": "+"}[op]
			return wrapped(infix(asU32(a), op, atom(fmt.Sprintf("%du", -int32(c.Bits))), prec, false))
		}
		return wrapped(infix(asU32(a), op, asU32(b), prec, op == "+"))
	}
}

// product is ·. One of floats that goes into a sum is spelled so that nvcc
// does not make an fma of the two.
func product(p *printer, in *ir.Instr) expr {
	a, b := p.sides(in)
	switch {
	case in.Args[0].Type == ir.I32:
		return wrapped(infix(asU32(a), "*", asU32(b), precMul, true))
	case in.Args[0].Type == ir.F32 && p.pl.rounded[in.Res[0].ID]:
		return call("__fmul_rn", a.text, b.text)
	}
	return infix(a, "*", b, precMul, in.Args[0].Type != ir.F32)
}

func quotient(p *printer, in *ir.Instr) expr {
	if in.Args[0].Type == ir.F32 {
		return call("__fdiv_rn", p.texts(in)...)
	}
	a, b := p.sides(in)
	return infix(a, "/", b, precMul, false)
}

func negation(p *printer, in *ir.Instr) expr {
	a := p.arg(in, 0)
	if in.Args[0].Type == ir.I32 {
		return wrapped(infix(atom("0u"), "-", asU32(a), precAdd, false))
	}
	return prefix("-", a)
}

func magnitude(p *printer, in *ir.Instr) expr {
	if in.Args[0].Type == ir.F32 {
		return call("fabsf", p.texts(in)...)
	}
	return call(p.fixed("abs_i32"), p.texts(in)...)
}

// logic is a bitwise op on integers and its counterpart on predicates.
func logic(bits string, bitsPrec int, preds string, predsPrec int) spelling {
	return func(p *printer, in *ir.Instr) expr {
		if in.Args[0].Type == ir.Pred {
			return infix(p.arg(in, 0), preds, p.arg(in, 1), predsPrec, preds != "!=")
		}
		return infix(p.mask(in.Args[0]), bits, p.mask(in.Args[1]), bitsPrec, true)
	}
}

// mask is an operand of a bitwise op: constants in hex.
func (p *printer) mask(v *ir.Value) expr {
	if r := p.pl.resolve(v); r.Const {
		return hexLiteral(r)
	}
	return p.val(v)
}

func complement(p *printer, in *ir.Instr) expr {
	if in.Args[0].Type == ir.Pred {
		return prefix("!", p.arg(in, 0))
	}
	return prefix("~", p.arg(in, 0))
}

func choice(p *printer, in *ir.Instr) expr {
	c, a, b := p.arg(in, 0), p.arg(in, 1), p.arg(in, 2)
	return expr{text: c.in(precEq) + " ? " + a.in(precOrOr) + " : " + b.in(precOrOr), prec: precTernary}
}

func packing(p *printer, in *ir.Instr) expr {
	name := map[ir.Type]string{ir.BF16x2: "pack_bf16", ir.F16x2: "pack_f16", ir.E4M3x2: "pack_e4m3"}[in.T]
	return call(p.fixed(name), p.texts(in)...)
}

func matrixProduct(p *printer, in *ir.Instr) expr {
	if in.Args[0].Type == ir.F16x2 {
		return call(p.fixed("mma_m16n8k16_f16"), p.bareTexts(in)...)
	}
	return call(p.fixed("mma_m16n8k16"), p.bareTexts(in)...)
}

func byteProduct(p *printer, in *ir.Instr) expr {
	name := "mma_m16n8k32_s8"
	if in.Args[0].Type == ir.U32 {
		name = "mma_m16n8k32_u8"
	}
	return call(p.fixed(name), p.bareTexts(in)...)
}

func unpacking(p *printer, in *ir.Instr, i int) expr {
	kind := map[ir.Type]string{ir.BF16x2: "bf16", ir.F16x2: "f16", ir.U32: "u16"}[in.Args[0].Type]
	return call(p.fixed(kind+[...]string{"_lo", "_hi"}[i]), p.arg(in, 0).text)
}

func conversion(p *printer, in *ir.Instr) expr {
	a, from, to := p.arg(in, 0), in.Args[0].Type, in.T
	switch {
	case to == ir.F32 && from == ir.BF16:
		return call(p.fixed("float_of_bf16"), a.text)
	case to == ir.F32 && from == ir.F16:
		return call(p.fixed("float_of_f16"), a.text)
	case to == ir.F16x2:
		return call(p.fixed("f16_of_e4m3"), a.text)
	case to == ir.BF16:
		return call(p.fixed("bf16_of"), a.text)
	case to == ir.F16:
		return call(p.fixed("f16_of"), a.text)
	case from == ir.F32 && to == ir.I32:
		return call("__float2int_rz", a.text) // saturates, NaN gives 0: C++ leaves both open
	case from == ir.F32 && to == ir.U32:
		return call("__float2uint_rz", a.text)
	case from == ir.I32 && to == ir.U32:
		return asU32(a)
	case from == ir.U32 && to == ir.I32:
		return wrapped(a)
	}
	return castTo(ctype(to), a)
}

// sameBits needs no text between types that are one in C++.
func sameBits(p *printer, in *ir.Instr) expr {
	a, from, to := p.arg(in, 0), in.Args[0].Type, in.T
	switch {
	case oneType(from, to):
		return a
	case to == ir.F32 && from == ir.I32:
		return call("__int_as_float", a.text)
	case to == ir.F32:
		return call("__uint_as_float", a.text)
	case from == ir.F32 && to == ir.I32:
		return call("__float_as_int", a.text)
	case from == ir.F32:
		return call("__float_as_uint", a.text)
	case to == ir.I32:
		return wrapped(a)
	case from == ir.I32:
		return asU32(a)
	}
	panic(fmt.Sprintf("BUG: emit: bits of %s as %s", from, to))
}

// oneType reports whether two types of the same size are one in C++: all of
// 16 bits are, and u32 with the packed pairs.
func oneType(a, b ir.Type) bool {
	word := func(t ir.Type) bool { return t == ir.U32 || t == ir.BF16x2 || t == ir.F16x2 }
	return a == b || a.Size() == 2 && b.Size() == 2 || word(a) && word(b)
}

// variable is the name of in's Var.
func (p *printer) variable(in *ir.Instr) string {
	name, ok := p.vars[in.Attr.Var]
	if !ok {
		panic(fmt.Sprintf("BUG: emit: %s is used before it is declared", in.Attr.Var))
	}
	return name
}

func declareVar(p *printer, in *ir.Instr) {
	first := p.bare(in.Args[0])
	p.line(in.Pos, "%s %s = %s;", ctype(in.Attr.Var.Type), p.newVariable(in.Attr.Var), first)
}

// newVariable chooses the name of a variable that is declared here.
func (p *printer) newVariable(x *ir.Var) string {
	hint := x.Hint
	if hint == "" {
		hint = "x"
	}
	p.vars[x] = p.names.pick(hint)
	return p.vars[x]
}
