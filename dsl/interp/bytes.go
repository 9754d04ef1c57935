package interp

import "github.com/mkgen/mkgen/dsl/ir"

// redux gives every lane the largest value of the lanes, or their sum modulo 2³².
func redux(s *ir.Instr) (stepFn, error) {
	signed, sum := s.T == ir.I32, s.Op == ir.OpReduxAdd
	return func(m *machine, w *warp, in *inst) {
		if !m.converged(w, in) {
			return
		}
		a, d := m.in(w, in.a[0]), &w.regs[in.r[0]]
		v := uint32(a[0])
		for _, x := range a[1:] {
			switch x := uint32(x); {
			case sum:
				v += x
			case signed:
				v = uint32(max(int32(v), int32(x)))
			default:
				v = max(v, x)
			}
		}
		for l := range d {
			d[l] = uint64(v)
		}
	}, nil
}

// byteProduct is m16n8k32 of integers of 8 bits: D = A·B + C modulo 2³². A word has four
// consecutive k, the lowest byte first. With g = lane / 4 and t = lane % 4 a lane holds, as PTX
// lays the fragments out,
//
//	A  v0: row g, columns 4t … 4t+3        v1: row g+8
//	   v2: row g, columns 4t+16 … 4t+19    v3: row g+8
//	B  v4: rows 4t … 4t+3, column g        v5: rows 4t+16 … 4t+19
//	C  v6, v7: row g, columns 2t, 2t+1     v8, v9: row g+8; D the same
func byteProduct(s *ir.Instr) (stepFn, error) {
	unsigned := s.Args[0].Type == ir.U32
	return func(m *machine, w *warp, in *inst) {
		if m.converged(w, in) {
			multiplyBytes(m, w, in, unsigned)
		}
	}, nil
}

// multiplyBytes multiplies two columns of B at a time: one in the low half of an int64, the other in the high half. A
// column's sum takes 21 bits, and what the low one borrows of the high one is given back.
func multiplyBytes(m *machine, w *warp, in *inst, unsigned bool) {
	var a [16][32]int64
	var pairs [4][32]int64
	for i := range 4 {
		src := m.in(w, in.a[i])
		for l := range 32 {
			to := a[l/4+8*(i&1)][l%4*4+16*(i>>1):][:4]
			for b := range to {
				if x := src[l] >> (8 * b); unsigned {
					to[b] = int64(uint8(x))
				} else {
					to[b] = int64(int8(x))
				}
			}
		}
	}
	for i := range 2 {
		src := m.in(w, in.a[4+i])
		for l := range 32 {
			to := pairs[l/8][l%4*4+16*i:][:4]
			for b := range to {
				to[b] += int64(int8(src[l]>>(8*b))) << (l / 4 % 2 * 32)
			}
		}
	}
	for half := range 2 {
		c0, c1 := m.in(w, in.a[6+2*half]), m.in(w, in.a[7+2*half])
		d0, d1 := &w.regs[in.r[2*half]], &w.regs[in.r[2*half+1]]
		for l := range 32 {
			row, two, sum := &a[l/4+8*half], &pairs[l%4], int64(0)
			for k := range row {
				sum += row[k] * two[k]
			}
			low := int32(sum)
			high := int32((sum - int64(low)) >> 32)
			d0[l], d1[l] = uint64(uint32(c0[l])+uint32(low)), uint64(uint32(c1[l])+uint32(high))
		}
	}
}
