package ir

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Statistics counts what a kernel is made of: static instructions, whatever
// number of times loops run them. Its lists have a fixed order.
type Statistics struct {
	Instrs      int           // instructions in all
	Ops         []OpCount     // by op, in the op table's order, only those that occur
	Loads       []AccessCount // ld and ldmatrix, by space and width
	Stores      []AccessCount // st, by space and width
	Barriers    int           // bar.cta, bar.sync and bar.arrive
	Waits       int           // structured waits
	Loops       int
	Branches    int
	Vars        int
	SharedBytes int // shared memory of a CTA
}

// OpCount is how often an op occurs.
type OpCount struct {
	Op Op
	N  int
}

// AccessCount is how often a thread accesses Bytes bytes of a space at once.
type AccessCount struct {
	Space Space
	Bytes int
	N     int
}

// Stats counts the kernel's instructions.
func Stats(k *Kernel) Statistics {
	st := Statistics{Vars: len(k.Vars), SharedBytes: k.SharedBytes}
	var ops [numOps]int
	Walk(k.Body, func(s Stmt) bool {
		switch s := s.(type) {
		case *For:
			st.Loops++
		case *If:
			st.Branches++
		case *Instr:
			st.Instrs++
			ops[s.Op]++
			st.count(s)
		}
		return true
	})
	for o, n := range ops {
		if n > 0 {
			st.Ops = append(st.Ops, OpCount{Op(o), n})
		}
	}
	slices.SortFunc(st.Loads, byWidth)
	slices.SortFunc(st.Stores, byWidth)
	return st
}

func (st *Statistics) count(in *Instr) {
	switch in.Op {
	case OpLd:
		access1(&st.Loads, in.Mem[0].Buf.Space, lanes(in)*in.T.Size())
	case OpLdMatrix:
		access1(&st.Loads, in.Mem[0].Buf.Space, 16)
	case OpSt:
		access1(&st.Stores, in.Mem[0].Buf.Space, lanes(in)*in.T.Size())
	case OpBarCTA, OpBarSync, OpBarArrive:
		st.Barriers++
	case OpWaitMBar, OpWaitMem, OpWaitTag:
		st.Waits++
	}
}

func access1(list *[]AccessCount, s Space, bytes int) {
	for i := range *list {
		if c := &(*list)[i]; c.Space == s && c.Bytes == bytes {
			c.N++
			return
		}
	}
	*list = append(*list, AccessCount{s, bytes, 1})
}

func byWidth(a, b AccessCount) int {
	return cmp.Or(cmp.Compare(a.Space, b.Space), cmp.Compare(a.Bytes, b.Bytes))
}

// String is a small table, one count a line.
func (st Statistics) String() string {
	var b strings.Builder
	row := func(name string, n int) { fmt.Fprintf(&b, "%-24s %d\n", name, n) }
	row("instructions", st.Instrs)
	row("loops", st.Loops)
	row("branches", st.Branches)
	row("variables", st.Vars)
	row("barriers", st.Barriers)
	row("waits", st.Waits)
	row("shared bytes", st.SharedBytes)
	for _, c := range st.Loads {
		row(fmt.Sprintf("load %s %d B", c.Space, c.Bytes), c.N)
	}
	for _, c := range st.Stores {
		row(fmt.Sprintf("store %s %d B", c.Space, c.Bytes), c.N)
	}
	for _, c := range st.Ops {
		row("op "+c.Op.String(), c.N)
	}
	return b.String()
}
