// Package mutate makes broken variants of a kernel: each synchronisation
// removed, weakened, miscounted or moved. An executor that reports none of what
// a variant breaks is blind there.
//
// List enumerates the mutations of a kernel in a fixed order; Apply makes the
// kernel that one of them describes, leaving the original alone. Variants are
// meant for the executor only: they need not pass the verifier.
package mutate

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

// Class says how a mutation breaks a kernel.
type Class string

// The classes.
const (
	Remove  Class = "remove"  // the instruction is left out
	Weaken  Class = "weaken"  // a lower order, a narrower scope, fewer spaces
	Count   Class = "count"   // arrivals, threads, lanes or CTAs are more or fewer
	Parity  Class = "parity"  // a wait is for the other phase
	Bytes   Class = "bytes"   // transaction bytes are off by 16
	Earlier Class = "earlier" // moved before the statement in front of it
	Later   Class = "later"   // moved behind the statement after it
)

// Mutation is one way to break one instruction of a kernel.
type Mutation struct {
	Class  Class
	Name   string // "weaken wait @barrier: acquire to relaxed"
	Region string // the innermost region around the instruction, "" if none
	Role   string // the role whose warps execute it, "" if all do
	Pos    ir.Pos // the instruction's
	Key    Key    // the same place by the kernel's structure
	instr  int    // its number in the order of ir.Kernel.Instrs
	edit   func(e *edit) error
}

// String is the name and the place.
func (m Mutation) String() string {
	if m.Region == "" {
		return fmt.Sprintf("%s at %s", m.Name, m.Pos)
	}
	return fmt.Sprintf("%s in %q at %s", m.Name, m.Region, m.Pos)
}

// edit is a copied kernel and the place of the instruction to break.
type edit struct {
	k     *ir.Kernel
	in    *ir.Instr
	trail []place // from the kernel's body down to the instruction's block
}

// place is a statement's block and its number there.
type place struct {
	block *ir.Block
	at    int
}

func (e *edit) here() *place { return &e.trail[len(e.trail)-1] }

// Apply returns a copy of k broken as all of ms say, one after the other, each of another instruction. It fails when
// one does not come from List of the same kernel, and when one leaves another nothing to break: a move may have lost
// its neighbour.
func Apply(k *ir.Kernel, ms ...Mutation) (*ir.Kernel, error) {
	e := &edit{k: Clone(k)}
	var all []*ir.Instr
	e.k.Instrs(func(in *ir.Instr) { all = append(all, in) })
	for i, m := range ms {
		if m.instr >= len(all) {
			return nil, fmt.Errorf("kernel %s has no instruction %d; the mutation %s is not of it", k.Name, m.instr, m.Name)
		}
		if slices.ContainsFunc(ms[:i], func(o Mutation) bool { return o.instr == m.instr }) {
			return nil, fmt.Errorf("%s: another mutation is of the same instruction", m)
		}
		e.in, e.trail = all[m.instr], nil
		if !e.find(e.k.Body) {
			return nil, fmt.Errorf("%s: another mutation has removed it", m)
		}
		if err := m.edit(e); err != nil {
			return nil, fmt.Errorf("%s: %w", m, err)
		}
	}
	return e.k, nil
}

// find makes the trail to the instruction.
func (e *edit) find(b *ir.Block) bool {
	for i, s := range b.Stmts {
		e.trail = append(e.trail, place{b, i})
		if in, ok := s.(*ir.Instr); ok && in == e.in {
			return true
		}
		for _, inner := range ir.Blocks(s) {
			if e.find(inner) {
				return true
			}
		}
		e.trail = e.trail[:len(e.trail)-1]
	}
	return false
}

// List enumerates the mutations of k in the order of its instructions.
func List(k *ir.Kernel) []Mutation {
	l := lister{k: k, keys: keys(k)}
	l.block(k.Body, "", "")
	return l.out
}

type lister struct {
	k    *ir.Kernel
	keys []Key
	n    int // instructions passed
	out  []Mutation

	trail []place // to the statement at hand
}

func (l *lister) block(b *ir.Block, region, role string) {
	outer := len(l.trail)
	defer func() { l.trail = l.trail[:outer] }()
	for i, s := range b.Stmts {
		l.trail = append(l.trail[:outer], place{b, i})
		switch s := s.(type) {
		case *ir.Instr:
			l.instr(s, region, role)
		case *ir.Region:
			l.block(s.Body, s.Name, role)
		case *ir.Roles:
			for _, r := range s.Roles {
				l.block(r.Body, region, r.Name)
			}
		default:
			for _, c := range ir.Blocks(s) {
				l.block(c, region, role)
			}
		}
	}
}

func (l *lister) instr(in *ir.Instr, region, role string) {
	for _, m := range mutationsOf(in) {
		m.Pos, m.Key, m.Region, m.Role, m.instr = in.Pos, l.keys[l.n], region, role, l.n
		if l.possible(m, in) {
			l.out = append(l.out, m)
		}
	}
	l.n++
}

// possible reports whether the edit applies; moves may have nowhere to go.
func (l *lister) possible(m Mutation, in *ir.Instr) bool {
	if m.Class != Earlier && m.Class != Later {
		return true
	}
	e := &edit{k: l.k, in: in, trail: slices.Clone(l.trail)}
	for i, p := range e.trail { // a move changes the order in one of these blocks
		e.trail[i].block = &ir.Block{Stmts: slices.Clone(p.block.Stmts)}
	}
	return m.edit(e) == nil
}
