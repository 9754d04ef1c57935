package interp

import "github.com/mkgen/mkgen/dsl/ir"

// Watcher hears of accesses to global memory, where Options has one. Its methods are
// called by the goroutine that runs the kernel, in the order of the accesses. An error
// ends the run with a Fault of kind Unexpected at the instruction.
type Watcher interface {
	// Copied hears of a bulk copy when it is issued: a.Bytes bytes from a.Offset of
	// a.Buffer to byte to of shared buffer dst.
	Copied(a Access, dst string, to int64) error
	// Stored hears of a store that has been made, element 0 of it as v and, of 16
	// bytes, its upper half.
	Stored(a Access, v, upper uint64) error
	// Tagged hears of a wait for a tag that has ended: the 16 bytes at a hold the tag.
	Tagged(a Access, tag uint32) error
}

// Access is an access of one lane to a global buffer.
type Access struct {
	CTA, Warp, Lane int
	Op              string // the instruction's name
	At              int    // its place in the program
	Pos             ir.Pos
	Region          string // the innermost region around it
	Buffer          string // the root
	Offset, Bytes   int64  // in the root
}

func accessOf(w *warp, in *inst, l int, rg *region, off, n int64) Access {
	return Access{CTA: int(w.cta.id), Warp: int(w.wi), Lane: l, Op: in.op.String(), At: int(in.pc), Pos: in.pos,
		Region: in.region, Buffer: rg.info.buf.Name, Offset: off, Bytes: n}
}

// unexpected ends the run with what the watcher found, if it found something.
func (m *machine) unexpected(w *warp, in *inst, l int, rg *region, off int64, err error) bool {
	if err == nil {
		return false
	}
	m.fail(w, in, l, Unexpected, "%v", err).at(rg.info.buf, off/int64(rg.info.buf.Elem.Size()))
	return m.fault != nil
}

// watchStore tells of a store to global memory and reports whether the run may go on.
func (m *machine) watchStore(w *warp, in *inst, l int, rg *region, off, n int64) bool {
	if m.o.Watch == nil || rg.cta >= 0 {
		return true
	}
	v := m.element(w, in, 0, l)
	return !m.unexpected(w, in, l, rg, off, m.o.Watch.Stored(accessOf(w, in, l, rg, off, n), v.lo, v.hi))
}

// watchTag tells of a wait for a tag that lane l need not go on with.
func (m *machine) watchTag(w *warp, in *inst, l int, tag uint64) bool {
	if m.o.Watch == nil {
		return true
	}
	r := &in.mem[0]
	rg := m.region(w, r)
	off, ok := m.locate(w, in, r, rg, l, 1)
	return ok && !m.unexpected(w, in, l, rg, off, m.o.Watch.Tagged(accessOf(w, in, l, rg, off, 16), uint32(tag)))
}
