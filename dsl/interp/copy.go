package interp

import "github.com/mkgen/mkgen/dsl/ir"

// flight is a bulk copy between issue and completion.
type flight struct {
	cta      *cta
	w        *warp
	in       *inst
	lane     uint8
	bar      *mbar
	comp     int32
	phase    uint32 // the mbarrier's phase at issue
	dst, src *region
	dstOff   int64
	srcOff   int64
	n        int64
	parts    []piece // of a tensor copy; a bulk copy is one piece
	rec      record
	came     *sub    // how far the lanes of the mbarrier's CTA have come that the issuing lane knows of
	proc     int     // of an exploration
	priority float64 // of PolicyPCT; 0: not drawn yet
}

// stepBulk issues cp.async.bulk from global to shared memory. The copy is an
// agent of its own in the async proxy: ordered after what happens before its
// issue and is fenced, and before what waits for the mbarrier phase it completes
// in. Its bytes move at completion, some time later.
func stepBulk(m *machine, w *warp, in *inst) {
	bytes := m.in(w, in.a[0])
	for l := range 32 {
		if w.mask>>l&1 != 0 && !m.issue(w, in, l, int64(bytes[l])) {
			return
		}
	}
	if m.o.races() {
		m.tick(w) // what lanes do behind the copy is not before it
	}
}

func (m *machine) issue(w *warp, in *inst, l int, n int64) bool {
	b, comp := m.mbarAt(w, in, &in.mem[2], l)
	if b == nil || !m.ready(w, in, b, l, true) {
		return false
	}
	if n <= 0 || n%16 != 0 || n > maxCount {
		m.fail(w, in, l, CopyRules, "bulk copy of %d bytes, want a positive multiple of 16 below 2²⁰", n)
		return false
	}
	dst, dstOff, ok := m.copySide(w, in, &in.mem[0], l, n)
	if !ok {
		return false
	}
	src, srcOff, ok := m.copySide(w, in, &in.mem[1], l, n)
	if !ok {
		return false
	}
	f := &flight{cta: w.cta, w: w, in: in, lane: uint8(l), bar: b, comp: comp, phase: b.phase,
		dst: dst, src: src, dstOff: dstOff, srcOff: srcOff, n: n}
	f.rec = pack(w.cta.id*m.comps+comp, b.phase+1, anyLane, in.pc)
	if m.o.races() {
		f.came = m.cameBy(w, uint8(l), w.cta)
		a := accessor{w: w, in: in, lane: uint8(l), async: true, rec: f.rec}
		if src.shadow != nil && !m.touch(src, srcOff, n, &a) {
			return false
		}
		if a.write = true; !m.touch(dst, dstOff, n, &a) {
			return false
		}
	}
	if dst.locs != nil {
		m.weakWrite(dst, dstOff, n)
	}
	m.flight = append(m.flight, f)
	if m.o.Watch != nil && src.cta < 0 {
		err := m.o.Watch.Copied(accessOf(w, in, l, src, srcOff, n), dst.info.buf.Name, dstOff)
		return !m.unexpected(w, in, l, src, srcOff, err)
	}
	return true
}

// copySide checks one address of a copy: 16-byte aligned and inside its buffer.
func (m *machine) copySide(w *warp, in *inst, r *memRef, l int, n int64) (*region, int64, bool) {
	rg := m.region(w, r)
	i := m.index(w, r, l)
	length := r.length
	if length == 0 {
		length = (int64(len(rg.data)) - r.base) / r.elem
	}
	if i < 0 || i > length || i*r.elem+n > length*r.elem {
		m.fail(w, in, l, OutOfBounds, "bulk copy of %d bytes at element %s of %s, which has %d elements of %d bytes", n,
			m.shownIndex(w, r, l), r.buf, length, r.elem).at(r.buf, i)
		return nil, 0, false
	}
	off := r.base + i*r.elem
	abs := off
	if r.shared {
		abs += int64(rg.info.buf.Offset)
	}
	if abs%16 != 0 {
		m.fail(w, in, l, Misaligned, "bulk copy at element %d of %s, byte %d, want a multiple of 16", i, r.buf, abs).at(r.buf,
			i)
		return nil, 0, false
	}
	return rg, off, true
}

// complete finishes copy i of those in flight: it moves the bytes, tells which
// are initialised, and completes the transaction on the mbarrier.
func (m *machine) complete(i int) {
	f := m.flight[i]
	last := len(m.flight) - 1
	m.flight[i] = m.flight[last]
	m.flight = m.flight[:last]
	if f.in.op == ir.OpTensorG2S {
		f.moveBox()
	} else {
		f.moveBytes(f.dstOff, f.srcOff, f.n)
	}
	b := f.bar
	m.usesMBar(f.cta, f.comp, useAdd, b.phase)
	f.cta.copies++
	f.cta.bytes += f.n
	b.total += f.n
	b.copied = b.phase + 1
	b.acc.came = joinSub(b.acc.came, f.came)
	if b.tx -= f.n; b.tx < -maxCount {
		m.fail(f.w, f.in, int(f.lane), TxOverflow, "mbarrier %d of %s has %d transaction bytes, at least %d are possible",
			b.index, b.buf, b.tx, -maxCount).at(b.buf, int64(b.index))
		return
	}
	m.advance(f.cta, b, f.comp)
}

// moveBytes moves n bytes and tells which are initialised.
func (f *flight) moveBytes(dst, src, n int64) { f.dst.moveFrom(f.src, dst, src, n) }

// moveFrom moves n bytes of another region here and tells which are initialised.
func (rg *region) moveFrom(from *region, dst, src, n int64) {
	copy(rg.data[dst:dst+n], from.data[src:])
	if from.valid == nil {
		rg.setValid(dst, n)
		return
	}
	for n > 0 { // as many bytes at a time as lie in one word of both
		k := min(n, 64-src&63, 64-dst&63)
		mask := ^uint64(0) >> (64 - k)
		valid := &rg.valid[dst>>6]
		*valid = *valid&^(mask<<(dst&63)) | from.valid[src>>6]>>(src&63)&mask<<(dst&63)
		dst, src, n = dst+k, src+k, n-k
	}
}

// inFlight is the copy that is writing byte off of rg, if any.
func (m *machine) inFlight(rg *region, off int64) *flight {
	for _, f := range m.flight {
		if f.dst == rg && off >= f.dstOff && off < f.dstOff+f.n {
			return f
		}
	}
	return nil
}

// checkExit looks at what a CTA leaves behind when its last warp has left.
func (m *machine) checkExit(w *warp, in *inst) {
	for _, f := range m.flight {
		if f.cta == w.cta {
			m.fail(f.w, f.in, int(f.lane), ExitPending, "the CTA ends while this copy of %d bytes into %s is in flight", f.n,
				f.dst.info.buf).at(f.dst.info.buf, f.dstOff/int64(f.dst.info.buf.Elem.Size()))
			return
		}
	}
	if m.void {
		return
	}
	for id := range w.cta.bars {
		if b := &w.cta.bars[id]; b.arrived != 0 {
			m.fail(b.opener, b.first, 0, ExitPending, "the CTA ends with %d of %d threads arrived at barrier %d", b.arrived,
				b.threads, id)
			return
		}
	}
	for i := range w.cta.mbars {
		b := &w.cta.mbars[i]
		if b.count == 0 {
			continue
		}
		fail := func(format string, args ...any) {
			m.fail(w, in, 0, ExitPending, "the CTA ends with mbarrier %d of %s "+format,
				append([]any{b.index, b.buf}, args...)...).
				at(b.buf, int64(b.index)).side("latest arrival", b.lastW, 0, b.lastIn)
		}
		switch {
		case b.tx != 0:
			fail("in phase %d with %d transaction bytes outstanding", b.phase, b.tx)
		case b.copied > b.waited:
			fail("never waited for in phase %d, in which bulk copies completed", b.copied-1)
		case b.pending != b.count:
			fail("in the middle of phase %d, after %d of %d arrivals", b.phase, b.count-b.pending, b.count)
		}
		if m.fault != nil {
			return
		}
	}
}
