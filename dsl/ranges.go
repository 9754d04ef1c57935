package dsl

import (
	"math"
	"math/bits"

	"github.com/mkgen/mkgen/dsl/ir"
)

// span is where a u32 lies: from least to most.
type span struct{ least, most uint64 }

// spanDepth is how many definitions spanOf goes through at most, one behind another.
const spanDepth = 8

// spanOf returns where a u32 lies in every thread, as far as its definition tells.
func spanOf(v *ir.Value, depth int) span {
	all := span{0, math.MaxUint32}
	switch {
	case v.Const:
		return span{v.Bits, v.Bits}
	case v.Def == nil || depth == 0:
		return all
	case v.Def.Op == ir.OpLane:
		return span{0, 31}
	case len(v.Def.Args) != 2 || v.Def.Args[0].Type != ir.U32 || v.Def.Args[1].Type != ir.U32:
		return all
	}
	a, b := spanOf(v.Def.Args[0], depth-1), spanOf(v.Def.Args[1], depth-1)
	s := all
	switch v.Def.Op {
	case ir.OpAdd:
		s = span{a.least + b.least, a.most + b.most}
	case ir.OpMul:
		s = span{a.least * b.least, a.most * b.most}
	case ir.OpMin:
		s = span{min(a.least, b.least), min(a.most, b.most)}
	case ir.OpMax:
		s = span{max(a.least, b.least), max(a.most, b.most)}
	case ir.OpAnd:
		s = span{0, min(a.most, b.most)}
	case ir.OpXor, ir.OpOr:
		s = span{0, 1<<bits.Len64(a.most|b.most) - 1}
	case ir.OpDiv:
		if b.least > 0 {
			s = span{a.least / b.most, a.most / b.least}
		}
	case ir.OpRem:
		if b.least > 0 {
			s = span{0, min(a.most, b.most-1)}
		}
	}
	if s.most > math.MaxUint32 {
		return all
	}
	return s
}

// foldSpans returns what a comparison of u32 comes out as wherever the two sides lie, or the side that min or max
// always takes; nil where that depends on the thread.
func foldSpans(op ir.Op, a, b *ir.Value) *ir.Value {
	if a.Type != ir.U32 || b.Type != ir.U32 {
		return nil
	}
	x, y := spanOf(a, spanDepth), spanOf(b, spanDepth)
	less, greater := x.most < y.least, x.least > y.most
	known := less || greater
	switch op {
	case ir.OpMin, ir.OpMax:
		switch {
		case x.most <= y.least && op == ir.OpMin, x.least >= y.most && op == ir.OpMax:
			return a
		case x.most <= y.least, x.least >= y.most:
			return b
		}
		return nil
	case ir.OpLt, ir.OpGe:
		known = less || x.least >= y.most
	case ir.OpGt, ir.OpLe:
		known, less = greater || x.most <= y.least, !greater
	}
	if !known {
		return nil
	}
	v, _ := foldCompare(op, less, false)
	return v
}
