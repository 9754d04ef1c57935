package interp

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/mkgen/mkgen/dsl/ir"
)

// region is the storage a memory operand names.
func (m *machine) region(w *warp, r *memRef) *region {
	if r.shared {
		return w.cta.shared[r.root]
	}
	return m.global[r.root]
}

// index is lane l's element index.
func (m *machine) index(w *warp, r *memRef, l int) int64 {
	if r.none {
		return 0
	}
	i := m.in(w, r.index)[l]
	if r.signed {
		return int64(int32(i))
	}
	if i > 1<<62 {
		return -1
	}
	return int64(i)
}

// locate is lane l's byte offset in the root for an access to n elements, after
// the checks of bounds and alignment.
func (m *machine) locate(w *warp, in *inst, r *memRef, rg *region, l int, n int64) (int64, bool) {
	i := m.index(w, r, l)
	length := r.length
	if length == 0 {
		length = (int64(len(rg.data)) - r.base) / r.elem
	}
	if i < 0 || i > length-n {
		m.fail(w, in, l, OutOfBounds, "access to %d element(s) at index %s of %s, which has %d", n, m.shownIndex(w, r, l),
			r.buf, length).at(r.buf, i)
		return 0, false
	}
	off := r.base + i*r.elem
	abs := off
	if r.shared {
		abs += int64(rg.info.buf.Offset)
	}
	if size := n * r.elem; abs&(size-1) != 0 {
		m.fail(w, in, l, Misaligned, "access of %d bytes to element %d of %s, at byte %d", size, i, r.buf, abs).at(r.buf, i)
		return 0, false
	}
	return off, true
}

// spots finds lanes' byte offsets as locate does, by what all lanes of an access have in common.
type spots struct {
	index           *row
	most            uint64 // the largest index
	base, elem, abs int64
	odd             int64 // bits that the place of an aligned access has not
}

// noIndex is out of all bounds in each lane, zeroIndex in none.
var noIndex, zeroIndex = func() (no, zero row) {
	for l := range no {
		no[l] = math.MaxUint64
	}
	return
}()

// spotsOf is what lanes' accesses to n elements have in common.
func (m *machine) spotsOf(w *warp, r *memRef, rg *region, n int64) spots {
	length := r.length
	if length == 0 {
		length = (int64(len(rg.data)) - r.base) / r.elem
	}
	s := spots{index: &zeroIndex, most: uint64(length - n), base: r.base, elem: r.elem, odd: n*r.elem - 1}
	if r.shared {
		s.abs = int64(rg.info.buf.Offset)
	}
	switch {
	case length < n:
		s.index, s.most = &noIndex, 0
	case !r.none:
		s.index = m.in(w, r.index)
	}
	if r.signed {
		s.most = min(s.most, math.MaxInt32)
	}
	return s
}

// of is lane l's offset, and whether it is within bounds and aligned; where not, locate says what is wrong.
func (s *spots) of(l int) (int64, bool) {
	i := s.index[l&31]
	off := s.base + int64(i)*s.elem
	return off, i <= s.most && (off+s.abs)&s.odd == 0
}

// shownIndex is lane l's index as a report shows it.
func (m *machine) shownIndex(w *warp, r *memRef, l int) string {
	if i := m.index(w, r, l); i != -1 || r.signed {
		return strconv.FormatInt(i, 10)
	}
	return strconv.FormatUint(m.in(w, r.index)[l], 10)
}

// load and store move 2, 4, 8 or 16 bytes, load 1, too.
func (rg *region) load(off, n int64) value {
	b := rg.data[off:]
	switch n {
	case 1:
		return value{lo: uint64(b[0])}
	case 2:
		return value{lo: uint64(binary.LittleEndian.Uint16(b))}
	case 4:
		return value{lo: uint64(binary.LittleEndian.Uint32(b))}
	case 8:
		return value{lo: binary.LittleEndian.Uint64(b)}
	}
	return value{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}

func (rg *region) store(off, n int64, v value) {
	b := rg.data[off:]
	switch n {
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v.lo))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v.lo))
	case 8:
		binary.LittleEndian.PutUint64(b, v.lo)
	default:
		binary.LittleEndian.PutUint64(b, v.lo)
		binary.LittleEndian.PutUint64(b[8:], v.hi)
	}
}

func loading(s *ir.Instr) (stepFn, error) {
	if s.Attr.Order != ir.Weak {
		return stepLoadStrong, nil
	}
	return stepLoad, nil
}

func storing(s *ir.Instr) (stepFn, error) {
	if s.Attr.Order != ir.Weak {
		return stepStoreStrong, nil
	}
	return stepStore, nil
}

// accessorFor starts an access by one lane at a time.
func accessorFor(w *warp, in *inst, write bool) accessor {
	return accessor{w: w, in: in, write: write}
}

func (a *accessor) by(l int) {
	a.lane = uint8(l)
	a.rec = pack(a.w.comp, a.w.clk.epoch, a.lane, a.in.pc)
}

// readable checks that n bytes at off are initialised.
func (m *machine) readable(w *warp, in *inst, r *memRef, rg *region, l int, off, n int64) bool {
	if m.void || rg.valid == nil || rg.isValid(off, n) {
		return true
	}
	i := (off - r.base) / r.elem
	text := "reads element %d of %s, which nobody has written"
	copied := rg.copied(m, off, n)
	if copied != 0 {
		text = "reads element %d of %s, which a bulk copy brought from where nobody has written"
	}
	f := m.fail(w, in, l, Uninitialised, text, i, r.buf).at(r.buf, i)
	if copied != 0 {
		f.record(m, "the copy", copied)
	}
	return false
}

// copied is the bulk copy that wrote the first uninitialised of n bytes at off
// last, if one did.
func (rg *region) copied(m *machine, off, n int64) record {
	for n > 1 && rg.isValid(off, 1) {
		off, n = off+1, n-1
	}
	if rg.shadow == nil {
		return 0
	}
	var one [1]record
	for _, r := range rg.view(rg.shadow[off>>rg.info.gran].w, &one) {
		if m.isAsync(r) {
			return r
		}
	}
	return 0
}

// stepLoad is a weak load.
func stepLoad(m *machine, w *warp, in *inst) {
	r := &in.mem[0]
	rg := m.region(w, r)
	n := int64(in.vec) * r.elem
	a := accessorFor(w, in, false)
	g := rg.info.gran
	single := rg.shadow != nil && n == 1<<g
	at := m.spotsOf(w, r, rg, int64(in.vec))
	for l := range 32 {
		if w.mask>>l&1 == 0 {
			continue
		}
		off, ok := at.of(l)
		if !ok {
			m.locate(w, in, r, rg, l, int64(in.vec))
			return
		}
		if rg.shadow != nil {
			a.by(l)
			if single {
				c := &rg.shadow[off>>g]
				if !m.checkRead(rg, c.w, off, &a) {
					return
				}
				m.recordRead(rg, c, &a)
			} else if !m.touch(rg, off, n, &a) {
				return
			}
		}
		if rg.valid != nil && !rg.isValid(off, n) && !m.readable(w, in, r, rg, l, off, n) {
			return
		}
		if !in.unread {
			m.fill(w, in, rg, l, off)
		}
	}
}

// fill puts the elements at off into lane l of the results.
func (m *machine) fill(w *warp, in *inst, rg *region, l int, off int64) {
	b := rg.data[off:]
	switch e := in.size; e {
	case 16:
		w.regs[in.r[0]][l] = binary.LittleEndian.Uint64(b)
		w.regs[in.r[0]+1][l] = binary.LittleEndian.Uint64(b[8:])
	case 4:
		for i, o := range in.r {
			w.regs[o][l] = uint64(binary.LittleEndian.Uint32(b[4*i:]))
		}
	default:
		for i, o := range in.r {
			w.regs[o][l] = rg.load(off+int64(i*e), int64(e)).lo
		}
	}
}

// element is lane l of element i of a store.
func (m *machine) element(w *warp, in *inst, i, l int) value {
	v := value{lo: m.in(w, in.a[i])[l]}
	if in.size == 16 {
		v.hi = m.in2(w, in.a[i])[l]
	}
	return v
}

// stepStore is a weak store. Two lanes of one store that meet at one place race
// with each other.
func stepStore(m *machine, w *warp, in *inst) {
	r := &in.mem[0]
	rg := m.region(w, r)
	n := int64(in.vec) * r.elem
	a := accessorFor(w, in, true)
	at := m.spotsOf(w, r, rg, int64(in.vec))
	for l := range 32 {
		if w.mask>>l&1 == 0 {
			continue
		}
		off, ok := at.of(l)
		if !ok {
			m.locate(w, in, r, rg, l, int64(in.vec))
			return
		}
		if rg.shadow != nil {
			if a.by(l); !m.touch(rg, off, n, &a) {
				return
			}
		}
		if rg.locs != nil {
			m.weakWrite(rg, off, n)
		}
		for i := range in.vec {
			rg.store(off+int64(i)*r.elem, r.elem, m.element(w, in, i, l))
		}
		if rg.valid != nil {
			rg.setValid(off, n)
		}
		if !m.watchStore(w, in, l, rg, off, n) {
			return
		}
	}
}

// stepLoadStrong is a strong load: of a vector each element is an access of its
// own, and may see another moment.
func stepLoadStrong(m *machine, w *warp, in *inst) {
	r := &in.mem[0]
	rg := m.region(w, r)
	a := accessorFor(w, in, false)
	for l := range 32 {
		if w.mask>>l&1 == 0 {
			continue
		}
		off, ok := m.locate(w, in, r, rg, l, int64(in.vec))
		if !ok {
			return
		}
		for i := range in.vec {
			o := off + int64(i)*r.elem
			if a.by(l); rg.shadow != nil && !m.touch(rg, o, r.elem, &a) || !m.readable(w, in, r, rg, l, o, r.elem) {
				return
			}
			v := m.strongRead(rg, o, &a, false)
			if w.regs[in.r[i]][l] = v.lo; in.size == 16 {
				w.regs[in.r[i]+1][l] = v.hi
			}
		}
	}
}

// stepStoreStrong is a strong store.
func stepStoreStrong(m *machine, w *warp, in *inst) {
	r := &in.mem[0]
	rg := m.region(w, r)
	a := accessorFor(w, in, true)
	for l := range 32 {
		if w.mask>>l&1 == 0 {
			continue
		}
		off, ok := m.locate(w, in, r, rg, l, int64(in.vec))
		if !ok {
			return
		}
		for i := range in.vec {
			o := off + int64(i)*r.elem
			if a.by(l); rg.shadow != nil && !m.touch(rg, o, r.elem, &a) {
				return
			}
			v := m.element(w, in, i, l)
			m.strongWrite(rg, o, v, &a)
			if m.o.Host != nil && r.buf.Base().Host == ir.HostReads {
				m.o.Host.Stored(r.buf.Base().Name, o/4, uint32(v.lo))
			}
		}
		if rg.valid != nil {
			rg.setValid(off, int64(in.vec)*r.elem)
		}
		if !m.watchStore(w, in, l, rg, off, int64(in.vec)*r.elem) {
			return
		}
	}
}
