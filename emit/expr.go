package emit

import (
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// C++ precedences, tightest highest.
const (
	precTernary = iota
	precOrOr
	precAndAnd
	precOr
	precXor
	precAnd
	precEq
	precRel
	precShift
	precAdd
	precMul
	precUnary
	precAtom
)

// expr is the text of a C++ expression and how tightly it binds. op is its
// outermost infix operator, where that binds it. For an i32 whose arithmetic
// was done in u32, wrap is the expression before the conversion back, so that
// sums of sums convert once.
type expr struct {
	text string
	prec int
	op   string
	wrap *expr
}

func atom(text string) expr { return expr{text: text, prec: precAtom} }

func call(name string, args ...string) expr { return atom(name + "(" + strings.Join(args, ", ") + ")") }

// in is e as an operand that must bind at least as tightly as prec.
func (e expr) in(prec int) string {
	if e.prec < prec {
		return "(" + e.text + ")"
	}
	return e.text
}

// operands are the parenthesised sides of a binary operator. Sides of shifts
// and bitwise operators are always parenthesised when they are themselves
// binary, for readers. The right side of an associative operator does not need
// it where its own is the same, or is - under +. A factor a / b or a % b needs it.
func operands(a, b expr, prec int, op string, associative bool) (string, string) {
	left, right := prec, prec+1
	if associative && (op == b.op || op == "+") {
		right = prec
	}
	switch op {
	case "<<", ">>":
		left, right = precUnary, precUnary
	case "&", "|", "^":
		left, right = tight(a, prec), tight(b, prec)
	case "||":
		if a.prec == precAndAnd {
			left = precUnary
		}
		if b.prec == precAndAnd {
			right = precUnary
		}
	case "==", "!=":
		left, right = precShift, precShift
	}
	l, r := a.in(left), b.in(right)
	if strings.HasPrefix(r, "-") && (op == "-" || op == "+") {
		r = "(" + r + ")"
	}
	return l, r
}

// tight is the precedence asked of e under an operator that only goes beside
// itself without parentheses.
func tight(e expr, prec int) int {
	if e.prec == prec {
		return prec
	}
	return precUnary
}

// infix is "a op b".
func infix(a expr, op string, b expr, prec int, associative bool) expr {
	l, r := operands(a, b, prec, op, associative)
	return expr{text: l + " " + op + " " + r, prec: prec, op: op}
}

// prefix is "op a"; two signs never touch.
func prefix(op string, a expr) expr {
	s := a.in(precUnary)
	if strings.HasPrefix(s, op) && op == "-" {
		s = "(" + s + ")"
	}
	return expr{text: op + s, prec: precUnary}
}

// castTo converts with C's notation.
func castTo(ctype string, a expr) expr {
	return expr{text: "(" + ctype + ")" + a.in(precUnary), prec: precUnary}
}

// asU32 is an i32 expression's value modulo 2³².
func asU32(e expr) expr {
	if e.wrap != nil {
		return *e.wrap
	}
	return castTo("u32", e)
}

// wrapped is an i32 whose value was computed as the u32 expression e.
func wrapped(e expr) expr {
	c := castTo("i32", e)
	c.wrap = &e
	return c
}

// ctype is the C++ type of a value.
func ctype(t ir.Type) string {
	switch t {
	case ir.Pred:
		return "bool"
	case ir.F32:
		return "float"
	case ir.B128:
		return "uint4"
	case ir.MBar:
		return "u64"
	case ir.E4M3x2:
		return "u16"
	}
	return t.String() // u16, i32, u32, u64, bf16, f16, bf16x2, f16x2 are aliases in the file
}

// vectorType is the built-in type of n = 2 or 4 elements of t, and the
// function that makes one.
func vectorType(t ir.Type, n int) string {
	base := map[ir.Type]string{ir.U16: "ushort", ir.BF16: "ushort", ir.F16: "ushort", ir.E4M3x2: "ushort", ir.I32: "int",
		ir.U32: "uint", ir.BF16x2: "uint", ir.F16x2: "uint", ir.F32: "float", ir.U64: "ulonglong"}[t]
	if base == "" || n != 2 && n != 4 {
		panic("BUG: emit: no vector of " + t.String())
	}
	return base + string(rune('0'+n))
}

var components = [4]string{".x", ".y", ".z", ".w"}
