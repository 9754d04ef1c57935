package interp

// stepLdMatrix is ldmatrix.x4 of b16: lane i gives the address of row i%8 of
// matrix i/8, 16 bytes. Lane l receives, of each matrix, elements 2·(l%4) and
// 2·(l%4)+1 of row l/4; with .trans the two elements of column l/4 in rows
// 2·(l%4) and 2·(l%4)+1. The rows count as read by the whole warp.
func stepLdMatrix(m *machine, w *warp, in *inst) {
	if !m.converged(w, in) {
		return
	}
	r := &in.mem[0]
	rg := m.region(w, r)
	a := accessorFor(w, in, false)
	var rows [32][8]uint16
	for l := range 32 {
		off, ok := m.matrixRow(w, in, r, rg, l)
		if !ok {
			return
		}
		a.by(anyLane)
		if rg.shadow != nil && !m.touch(rg, off, 16, &a) || !m.readable(w, in, r, rg, l, off, 16) {
			return
		}
		for i := range 8 {
			rows[l][i] = uint16(rg.load(off+int64(2*i), 2).lo)
		}
	}
	for i := range 4 {
		d, mat := &w.regs[in.r[i]], rows[8*i:8*i+8]
		for l := range 32 {
			g, t := l/4, l%4*2
			if in.attr.Imm == 1 {
				d[l] = uint64(mat[t][g]) | uint64(mat[t+1][g])<<16
			} else {
				d[l] = uint64(mat[g][t]) | uint64(mat[g][t+1])<<16
			}
		}
	}
}

// matrixRow is the byte offset of lane l's row.
func (m *machine) matrixRow(w *warp, in *inst, r *memRef, rg *region, l int) (int64, bool) {
	i := m.index(w, r, l)
	if i < 0 || i > r.length || i*r.elem+16 > r.length*r.elem {
		m.fail(w, in, l, OutOfBounds, "row of 16 bytes at element %s of %s, which has %d", m.shownIndex(w, r, l), r.buf,
			r.length).at(r.buf, i)
		return 0, false
	}
	off := r.base + i*r.elem
	if (off+int64(rg.info.buf.Offset))%16 != 0 {
		m.fail(w, in, l, Misaligned, "row at element %d of %s, byte %d, want a multiple of 16", i, r.buf,
			off+int64(rg.info.buf.Offset)).at(r.buf, i)
		return 0, false
	}
	return off, true
}
