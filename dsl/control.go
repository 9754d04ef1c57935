package dsl

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

// If runs body in the threads where p holds. A constant p decides at Go time.
func (k *Kernel) If(p Pred, body func()) { k.IfElse(p, body, nil) }

// IfElse runs then in the threads where p holds and otherwise (may be nil) in
// the others. A constant p decides at Go time.
func (k *Kernel) IfElse(p Pred, then, otherwise func()) {
	if p.v == nil || then == nil {
		k.errorf("if: the predicate is a zero Pred or the body is nil")
		return
	}
	if p.v.Const {
		if p.v.Bits != 0 {
			then()
		} else if otherwise != nil {
			otherwise()
		}
		return
	}
	s := &ir.If{Pos: k.here(), Cond: p.v}
	k.cur.Stmts = append(k.cur.Stmts, s)
	s.Then = k.in(then)
	if otherwise != nil {
		s.Else = k.in(otherwise)
	}
}

// LoopOpt sets how a device loop is compiled.
type LoopOpt func(*ir.For)

// Unroll asks the compiler to unroll n times; 1 keeps the loop rolled.
func Unroll(n int) LoopOpt { return func(f *ir.For) { f.Unroll = n } }

// For runs body for i = lo, lo+1, … while i < hi.
func (k *Kernel) For(lo, hi Val[U32], body func(i Val[U32]), opts ...LoopOpt) {
	k.ForStep(lo, hi, 1, body, opts...)
}

// ForStep runs body for i = lo, lo+step, … while i < hi; step is positive.
// hi must leave room for the last step: hi + step ≤ 2³². Where i would wrap below
// hi, and the loop never end, the executor stops.
func (k *Kernel) ForStep(lo, hi Val[U32], step int, body func(i Val[U32]), opts ...LoopOpt) {
	switch {
	case lo.v == nil || hi.v == nil || body == nil:
		k.errorf("for: a bound is a zero Val or the body is nil")
		return
	case step < 1 || int64(step) >= 1<<32:
		k.errorf("for: the step is %d, want 1 to 2^32-1", step)
		return
	case lo.v.Const && hi.v.Const && lo.v.Bits >= hi.v.Bits:
		return
	}
	f := &ir.For{Pos: k.here(), Lo: lo.v, Hi: hi.v, Step: ir.ConstInt(ir.U32, int64(step))}
	f.I = k.value(ir.U32, nil, f)
	for _, o := range opts {
		o(f)
	}
	k.cur.Stmts = append(k.cur.Stmts, f)
	f.Body = k.in(func() { body(Val[U32]{k: k, v: f.I}) })
}

// Role is one warp range of a CTA and what it does: warps First ≤ w < End.
type Role struct {
	Name       string
	First, End int
	Body       func()
}

// Roles gives disjoint warp ranges their own bodies; a warp in none does nothing.
func (k *Kernel) Roles(roles ...Role) {
	s := &ir.Roles{Pos: k.here()}
	k.cur.Stmts = append(k.cur.Stmts, s)
	for _, r := range roles {
		node := &ir.Role{Pos: k.here(), Name: r.Name, First: r.First, End: r.End}
		s.Roles = append(s.Roles, node)
		if r.Body == nil {
			k.errorf("role %s: the body is nil", r.Name)
			r.Body = func() {}
		}
		k.role = r.Name
		node.Body = k.in(r.Body)
		k.role = ""
	}
}

// Region names a part of the program for readers and reports.
func (k *Kernel) Region(name string, body func()) {
	s := &ir.Region{Pos: k.here(), Name: name}
	k.cur.Stmts = append(k.cur.Stmts, s)
	k.regions = append(k.regions, name)
	s.Body = k.in(body)
	k.regions = k.regions[:len(k.regions)-1]
}

// Note says in words what the template does next. The emitted kernel and the program's text have it as a comment, with
// the template's file and function.
func (k *Kernel) Note(format string, args ...any) {
	k.cur.Stmts = append(k.cur.Stmts, &ir.Note{Pos: k.here(), Text: fmt.Sprintf(format, args...), From: k.template()})
}

// Place is where in the program a template stands, in words.
type Place struct {
	Role         string   // of the warps, "" if all
	Regions      []string // outermost first
	Line, Caller string   // of Go: of the template, and what called it
}

// Place is where the caller stands.
func (k *Kernel) Place() Place {
	pos := k.here()
	return Place{Role: k.role, Regions: slices.Clone(k.regions), Line: pos.Line, Caller: pos.Caller}
}

// Uniform asserts that v is the same in all threads of the scope (WarpScope,
// CTAScope, GPUScope) that compute it, which the verifier then believes and
// the executor checks. It is how plan bounds read from memory steer barriers.
func Uniform[T Elem](v Val[T], scope ir.Scope) Val[T] {
	k := kern(v.k)
	if v.v != nil && v.v.Const {
		return v
	}
	return op1[T](k, &ir.Instr{Op: ir.OpUniform, T: typeOf[T](), Args: []*ir.Value{v.v}, Attr: ir.Attr{Scope: scope}})
}

// UniformPred is Uniform of a predicate, such as what WaitOr returned.
func UniformPred(p Pred, scope ir.Scope) Pred {
	if p.v != nil && p.v.Const {
		return p
	}
	return opPred(kern(p.k), &ir.Instr{Op: ir.OpUniform, T: ir.Pred, Args: []*ir.Value{p.v}, Attr: ir.Attr{Scope: scope}})
}

// Claim asserts what p says. What p computes only serves that: it is numbered behind all
// other values, so that the emitted kernel is the same with and without it.
func (k *Kernel) Claim(text string, p func() Pred) {
	outer := k.claiming
	k.claiming = true
	defer func() { k.claiming = outer }()
	k.Assert(p(), text)
}

// number gives the values of claims their numbers.
func (k *Kernel) number() {
	for _, v := range k.claimed {
		v.ID = k.ir.NumValues
		k.ir.NumValues++
	}
	k.claimed = nil
}

// Assert stops the executor with text where p is false; the GPU ignores it.
func (k *Kernel) Assert(p Pred, text string) {
	if p.v != nil && p.v.Const && p.v.Bits != 0 {
		return
	}
	k.emit(&ir.Instr{Op: ir.OpAssert, Args: []*ir.Value{p.v}, Attr: ir.Attr{Text: text}})
}
