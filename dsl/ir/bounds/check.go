package bounds

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

// Kind is what a finding is about.
type Kind string

// The kinds of findings.
const (
	Overflow  Kind = "overflow"  // a value that an address is made of may leave its type's range
	Outside   Kind = "outside"   // an access may lie outside of its buffer
	Unaligned Kind = "unaligned" // an access may not begin at a multiple of its size
	BadCount  Kind = "count"     // a number of bytes to copy is not one that can be
)

// Finding is something that could not be shown to be right.
type Finding struct {
	Kind Kind
	Pos  ir.Pos // of the operation that may overflow, or of the access
	At   ir.Pos // of the access that an overflow reaches
	Text string
}

// String is the finding on one line, with its places.
func (f Finding) String() string {
	text := fmt.Sprintf("%s: %s: %s", f.Kind, f.Pos, f.Text)
	if f.Kind == Overflow && f.At != f.Pos {
		text += fmt.Sprintf("; it reaches the access at %s", f.At)
	}
	return text
}

// Report is what an analysis came to.
type Report struct {
	Accesses int       // accesses and waits that were proved, or are not reached
	Values   int       // operations on integers that addresses depend on and that were proved not to overflow
	Findings []Finding // in the order of the program, one for each place
}

func (a *analysis) report() *Report {
	r := &Report{}
	a.k.Instrs(func(in *ir.Instr) {
		r.Accesses += len(in.Mem)
		if a.fine[in] {
			r.Values++
		}
	})
	seen := map[string]bool{}
	for _, f := range a.findings {
		key := fmt.Sprint(f.Kind, f.Pos)
		if !seen[key] {
			seen[key] = true
			r.Findings = append(r.Findings, f)
		}
	}
	r.Accesses -= len(r.Findings)
	return r
}

// index is an address's index.
func (a *analysis) index(m ir.Addr) form {
	if m.Index == nil {
		return form{}
	}
	return a.get(m.Index).f
}

// check checks an instruction's addresses and byte counts. Where all this is looked at again that does.
func (a *analysis) check(in *ir.Instr) {
	if a.grew || a.again {
		a.indices(in)
		return
	}
	for i, m := range in.Mem {
		elems, bytes := int64(1), form{}
		size := int64(m.Buf.Elem.Size())
		switch {
		case in.Op == ir.OpBulkG2S && i < 2:
			bytes = a.get(in.Args[0]).f
		case in.Op == ir.OpTensorG2S && i == 0:
			elems = in.BoxBytes() / size
		case in.Op == ir.OpWGMMA:
			n, _ := in.Touches(i)
			elems = n / size
		case in.Op == ir.OpLdMatrix || in.Op == ir.OpCopyAsync:
			elems = max(1, 16/size)
		case i == 0 && (in.Op == ir.OpLd || in.Op == ir.OpSt):
			elems = int64(max(1, in.Attr.Lanes))
		}
		a.access(in, m, constant(elems*size), bytes)
	}
	switch in.Op {
	case ir.OpBulkG2S:
		a.bytes(in, in.Args[0])
	case ir.OpMBarExpect:
		a.bytes(in, in.Args[0])
	}
}

// indices asks for an instruction's addresses and byte counts, which may settle what they are.
func (a *analysis) indices(in *ir.Instr) {
	for _, m := range in.Mem {
		a.index(m)
	}
	if in.Op == ir.OpBulkG2S || in.Op == ir.OpMBarExpect {
		a.get(in.Args[0])
	}
}

// access checks that an address and the bytes behind it, least or bytes of them, lie in the
// buffer, and that it is a multiple of least bytes, or 16.
func (a *analysis) access(in *ir.Instr, m ir.Addr, least, bytes form) {
	f, size := a.index(m), int64(m.Buf.Elem.Size())
	at, ok := sum(size, f, 0, form{})
	n := least
	align := least.k
	if len(bytes.terms) > 0 || bytes.k > 0 {
		n, align = bytes, 16
	}
	if from := a.origins(f); len(from) > 0 {
		for _, w := range from {
			a.overflow(in, w)
		}
		return
	}
	length, known := a.length(m.Buf)
	if !known {
		return
	}
	end, fits := sum(1, at, 1, n)
	if !ok || !fits || !a.atMost(end.minus(length)) || !a.atMost(at.negated()) {
		a.find(Finding{Kind: Outside, Pos: in.Pos, At: in.Pos,
			Text: fmt.Sprintf("%s of %s: index %s, %s elements, want it in %s", in.Op, m.Buf, a.both(f), a.both(n).over(size),
				a.both(length).over(size))})
		return
	}
	if align > 1 && align <= 16 && !multiple(at, align) {
		a.find(Finding{Kind: Unaligned, Pos: in.Pos, At: in.Pos,
			Text: fmt.Sprintf("%s of %s: byte %s is not known to be a multiple of %d", in.Op, m.Buf, a.both(at), align)})
	}
}

func (i interval) over(n int64) interval {
	if i.lo > -inf {
		i.lo = floorDiv(i.lo, n)
	}
	if i.hi < inf {
		i.hi = floorDiv(i.hi, n)
	}
	return i
}

// length is a buffer's length in bytes.
func (a *analysis) length(b *ir.Buf) (form, bool) {
	r := b.Base()
	if r.Len > 0 {
		return constant(r.Len * int64(r.Elem.Size())), true
	}
	l, ok := a.facts.Lens[r.Name]
	if !ok {
		return form{}, false
	}
	f, ok := sum(int64(r.Elem.Size()), a.linear(l), 0, form{})
	return f, ok
}

// overflow reports a value that may have left its type.
func (a *analysis) overflow(at *ir.Instr, w *wrap) {
	a.find(Finding{Kind: Overflow, Pos: w.in.Pos, At: at.Pos,
		Text: fmt.Sprintf("%s of %s may be %s", w.in.Op, w.t, w.exact.want(w.t))})
}

func (a *analysis) find(f Finding) {
	if !slices.Contains(a.findings, f) {
		a.findings = append(a.findings, f)
	}
}

// maxBytes is what an mbarrier's transaction count can take at once.
const maxBytes = 1<<20 - 1

// bytes checks a number of bytes to copy: a multiple of 16 up to what an mbarrier counts.
func (a *analysis) bytes(in *ir.Instr, v *ir.Value) {
	f := a.get(v).f
	if from := a.origins(f); len(from) > 0 {
		for _, w := range from {
			a.overflow(in, w)
		}
		return
	}
	if !a.atMost(f.plus(-maxBytes)) || !a.atMost(f.negated()) || !multiple(f, 16) {
		a.find(Finding{Kind: BadCount, Pos: in.Pos, At: in.Pos,
			Text: fmt.Sprintf("%s of %s bytes, want a multiple of 16 up to %d", in.Op, a.both(f), maxBytes)})
	}
}
