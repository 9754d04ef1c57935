package ir

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Kind is a class of mistakes.
type Kind uint8

// The kinds of mistakes.
const (
	KindShape   Kind = iota // a node lacks a part, or the kernel's head is wrong
	KindHead                // the kernel's name, sizes, parameters; names that are taken
	KindType                // operands or results do not fit the op
	KindValue               // a value, variable or buffer is used where it is not defined
	KindControl             // threads that must take part together may be apart
	KindSync                // a barrier, role or mbarrier cannot work as written
	KindInit                // an mbarrier is used that nothing initialises
	KindPlace               // buffers and views: alignment, the shared-memory map, its budget
	KindMemory              // an access: bounds, alignment
	KindLiteral             // a constant operand is out of its range
	KindUnused              // something is computed or declared in vain
)

var kindNames = [...]string{"shape", "head", "type", "value", "control", "sync", "init", "place", "memory", "literal",
	"unused"}

// String is the kind's name in lower case.
func (k Kind) String() string { return kindNames[k] }

// Error is one mistake found by Verify.
type Error struct {
	Pos  Pos
	Kind Kind
	What string // the object: an op, a buffer, a variable
	Text string // what was found and what is wanted
	seq  int    // statements before it
}

// Error is one line: place (if known), object, what was found and what is wanted.
func (e *Error) Error() string {
	if e.Pos.Line == "" {
		return e.What + ": " + e.Text
	}
	return fmt.Sprintf("%s: %s: %s", e.Pos, e.What, e.Text)
}

// checks is the verifier's list of checks, in order. The first to report
// KindShape ends the run: the others rely on the shape.
var checks = [...]struct {
	name  string
	check func(*verifier)
}{
	{"shape", (*verifier).shape},
	{"head", (*verifier).head},
	{"memory map", (*verifier).memoryMap},
	{"definitions", (*verifier).definitions},
	{"uses", (*verifier).uses},
	{"types", (*verifier).types},
	{"literals", (*verifier).literals},
	{"addresses", (*verifier).addresses},
	{"control", (*verifier).control},
	{"mbarriers", (*verifier).mbarriers},
	{"unused values", (*verifier).unused},
}

// Verify checks a kernel and returns all mistakes joined, in program order,
// each an *Error; nil when there are none. It changes nothing.
func Verify(k *Kernel) error {
	if k == nil || k.Body == nil {
		return &Error{Kind: KindShape, What: "kernel", Text: "is nil or has no body"}
	}
	v := &verifier{k: k}
	for _, c := range checks {
		v.seq = 0
		c.check(v)
		if len(v.errs) > 0 && v.errs[0].Kind == KindShape {
			break
		}
	}
	slices.SortStableFunc(v.errs, func(a, b *Error) int { return cmp.Compare(a.seq, b.seq) })
	return join(v.errs)
}

// join joins mistakes; one that reads like another (a Go loop made both) comes once.
func join(es []*Error) error {
	var joined []error
	seen := map[string]bool{}
	for _, e := range es {
		if text := e.Error(); !seen[text] {
			seen[text] = true
			joined = append(joined, e)
		}
	}
	return errors.Join(joined...)
}

// Errors lists the mistakes in what Verify returned, in order.
func Errors(err error) []*Error {
	switch e := err.(type) {
	case nil:
		return nil
	case *Error:
		return []*Error{e}
	case interface{ Unwrap() []error }:
		var es []*Error
		for _, x := range e.Unwrap() {
			es = append(es, Errors(x)...)
		}
		return es
	}
	return nil
}

type verifier struct {
	k    *Kernel
	errs []*Error
	seq  int      // number of the statement looked at, for the order of errors
	defs []*Value // by ID, as the statements define them
	at   []Pos    // by ID, where
	vars []*Instr // by Var.ID, the declaring instruction
}

func (v *verifier) errorf(kind Kind, pos Pos, what, format string, args ...any) {
	v.errs = append(v.errs, &Error{Pos: pos, Kind: kind, What: what, Text: fmt.Sprintf(format, args...), seq: v.seq})
}

// each calls f for every statement in program order.
func (v *verifier) each(f func(Stmt)) {
	Walk(v.k.Body, func(s Stmt) bool {
		v.seq++
		f(s)
		return true
	})
}

func (v *verifier) instrs(f func(*Instr)) {
	v.each(func(s Stmt) {
		if in, ok := s.(*Instr); ok {
			f(in)
		}
	})
}

// types runs every instruction's signature again and compares the results.
func (v *verifier) types() {
	v.each(func(s Stmt) {
		switch s := s.(type) {
		case *Instr:
			v.signature(s)
		case *If:
			if s.Cond.Type != Pred {
				v.errorf(KindType, s.Pos, "if", "the condition %s is %s, want pred", s.Cond, s.Cond.Type)
			}
		case *For:
			v.loopTypes(s)
		}
	})
}

func (v *verifier) signature(in *Instr) {
	want, err := in.Op.Info().Sig(in)
	if err != nil {
		v.errorf(KindType, in.Pos, in.Op.String(), "%v", err)
		return
	}
	if len(want) != len(in.Res) {
		v.errorf(KindType, in.Pos, in.Op.String(), "has %d results, want %d", len(in.Res), len(want))
		return
	}
	for i, r := range in.Res {
		if r.Type != want[i] {
			v.errorf(KindType, in.Pos, in.Op.String(), "result %s is %s, want %s", r, r.Type, want[i])
		}
	}
}

func (v *verifier) loopTypes(f *For) {
	t := f.I.Type
	if t != U32 && t != I32 {
		v.errorf(KindType, f.Pos, "for", "the index is %s, want u32 or i32", t)
	}
	for _, b := range []*Value{f.Lo, f.Hi, f.Step} {
		if b.Type != t {
			v.errorf(KindType, f.Pos, "for", "the bound %s is %s, want %s like the index", b, b.Type, t)
		}
	}
	step := int64(f.Step.Bits)
	if !f.Step.Const || step <= 0 {
		v.errorf(KindLiteral, f.Pos, "for", "the step is %s, want a positive constant", f.Step)
	}
	if f.Unroll < 0 {
		v.errorf(KindLiteral, f.Pos, "for", "is unrolled %d times, want 0 or more", f.Unroll)
	}
}
