package promela

import (
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// word is 32 bits: known while the model is written, or an expression of Promela.
type word struct {
	known bool
	n     uint32
	s     string
}

func number(n uint32) word { return word{known: true, n: n} }

func (w word) String() string {
	if w.known {
		return fmt.Sprint(w.n)
	}
	return w.s
}

func isReg(s string) bool {
	return strings.HasPrefix(s, "r#") && strings.Count(s, "#") == 2 && strings.HasSuffix(s, "#")
}

func choice(c, a, b word) word {
	switch {
	case c.known && c.n != 0 || a == b:
		return a
	case c.known:
		return b
	}
	return word{s: fmt.Sprintf("(%s -> %s : %s)", c, a, b)}
}

// operator is arithmetic of 32 bits: its value, and its spelling.
type operator struct {
	fold func(a, b uint32) uint32
	sign string
}

func truth(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

var binary = map[ir.Op]operator{
	ir.OpAdd: {func(a, b uint32) uint32 { return a + b }, "+"},
	ir.OpSub: {func(a, b uint32) uint32 { return a - b }, "-"},
	ir.OpMul: {func(a, b uint32) uint32 { return a * b }, "*"},
	ir.OpDiv: {func(a, b uint32) uint32 { return a / b }, "/"},
	ir.OpAnd: {func(a, b uint32) uint32 { return a & b }, "&"},
	ir.OpOr:  {func(a, b uint32) uint32 { return a | b }, "|"},
	ir.OpXor: {func(a, b uint32) uint32 { return a ^ b }, "^"},
	ir.OpEq:  {func(a, b uint32) uint32 { return truth(a == b) }, "=="},
	ir.OpNe:  {func(a, b uint32) uint32 { return truth(a != b) }, "!="},
	ir.OpLt:  {func(a, b uint32) uint32 { return truth(a < b) }, "<"},
	ir.OpLe:  {func(a, b uint32) uint32 { return truth(a <= b) }, "<="},
	ir.OpGt:  {func(a, b uint32) uint32 { return truth(a > b) }, ">"},
	ir.OpGe:  {func(a, b uint32) uint32 { return truth(a >= b) }, ">="},
}

func (o operator) of(a, b word) word {
	switch {
	case a.known && b.known:
		return number(o.fold(a.n, b.n))
	case b == number(0) && (o.sign == "+" || o.sign == "|" || o.sign == "-"):
		return a
	case a == number(0) && (o.sign == "+" || o.sign == "|"):
		return b
	}
	return word{s: fmt.Sprintf("(%s %s %s)", a, o.sign, b)}
}
