package interp

import "github.com/mkgen/mkgen/dsl/ir"

// stepTensor issues cp.async.bulk.tensor of a box in three dimensions, for each CTA of the mask a copy of its own. What
// lies outside of the map comes as zeros, and counts as bytes that have come.
func stepTensor(m *machine, w *warp, in *inst) {
	for l := range 32 {
		if w.mask>>l&1 == 0 {
			continue
		}
		mask := in.attr.Imm
		if mask == 0 {
			mask = 1 << (w.cta.id % m.clusterSize())
		}
		for r := range int64(16) {
			if mask>>r&1 == 0 {
				continue
			}
			if c := m.peer(w, in, l, r); c == nil || !m.issueTensor(w, in, l, c) {
				return
			}
		}
	}
	if m.o.races() {
		m.tick(w) // what lanes do behind the copy is not before it
	}
}

func (m *machine) issueTensor(w *warp, in *inst, l int, c *cta) bool {
	t := in.mem[1].buf.Map
	b, comp := m.mbarIn(c, w, in, &in.mem[2], l)
	if b == nil || !m.ready(w, in, b, l, true) {
		return false
	}
	dst := c.shared[in.mem[0].root]
	i := m.index(w, &in.mem[0], l)
	off := in.mem[0].base + i*in.mem[0].elem
	if n := t.BoxBytes(); i < 0 || off+n > int64(len(dst.data)) {
		m.fail(w, in, l, OutOfBounds, "a box of %d bytes at element %d of %s", n, i, in.mem[0].buf).at(in.mem[0].buf, i)
		return false
	}
	if abs := off + int64(dst.info.buf.Offset); abs%ir.MapAlign != 0 {
		m.fail(w, in, l, Misaligned, "a box at element %d of %s, byte %d, want a multiple of %d", i, in.mem[0].buf, abs,
			ir.MapAlign).at(in.mem[0].buf, i)
		return false
	}
	src := m.global[m.p.rootOf[t.Of]]
	if p := t.Problem(int64(len(src.data))); p != "" {
		m.fail(w, in, l, CopyRules, "%s", p).at(t.Of, 0)
		return false
	}
	f := &flight{cta: c, w: w, in: in, lane: uint8(l), bar: b, comp: comp, phase: b.phase, dst: dst, src: src, dstOff: off,
		n: t.BoxBytes()}
	f.rec = pack(c.id*m.comps+comp, b.phase+1, anyLane, in.pc)
	if m.o.races() {
		f.came = m.cameBy(w, uint8(l), c)
	}
	f.parts = m.boxRows(w, in, l, t, int64(len(src.data)))
	a := accessor{w: w, in: in, lane: uint8(l), async: true, rec: f.rec}
	for _, p := range f.parts {
		if p.src+p.n > int64(len(src.data)) {
			m.fail(w, in, l, OutOfBounds, "the tensor map %s reaches byte %d of %s, which has %d", in.mem[1].buf, p.src+p.n,
				t.Of, len(src.data)).at(t.Of, p.src)
			return false
		}
		if src.shadow != nil && !m.touch(src, p.src, p.n, &a) {
			return false
		}
	}
	if a.write = true; m.o.races() && !m.touch(dst, off, f.n, &a) {
		return false
	}
	m.flight = append(m.flight, f)
	return true
}

// piece is a contiguous part of a copy: n bytes from byte src of the source to byte dst behind the destination's first.
type piece struct{ dst, src, n int64 }

// boxRows are the parts of a box at lane l's coordinates that lie inside of the map, over a buffer of that length.
func (m *machine) boxRows(w *warp, in *inst, l int, t *ir.TensorMap, bytes int64) (parts []piece) {
	dims := t.Within(bytes)
	var at [3]int64
	for d := range at {
		at[d] = int64(int32(m.in(w, in.a[d])[l]))
	}
	lo := max(at[0], 0)
	n := min(at[0]+int64(t.Box[0]), dims[0]) - lo
	for z := range int64(t.Box[2]) {
		for y := range int64(t.Box[1]) {
			row, plane := at[1]+y, at[2]+z
			if n <= 0 || row < 0 || row >= dims[1] || plane < 0 || plane >= dims[2] {
				continue
			}
			dst := 2 * ((z*int64(t.Box[1])+y)*int64(t.Box[0]) + lo - at[0])
			parts = append(parts, piece{dst, t.From + 2*lo + row*t.Strides[0] + plane*t.Strides[1], 2 * n})
		}
	}
	return parts
}

// moveBox moves what a tensor copy brings.
func (f *flight) moveBox() {
	clear(f.dst.data[f.dstOff : f.dstOff+f.n])
	f.dst.setValid(f.dstOff, f.n)
	for _, p := range f.parts {
		f.moveBytes(f.dstOff+p.dst, p.src, p.n)
	}
}
