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
	wide := func(x uint64) int32 { return int32(int8(x)) }
	wideA := wide
	if s.Args[0].Type == ir.U32 {
		wideA = func(x uint64) int32 { return int32(uint8(x)) }
	}
	return func(m *machine, w *warp, in *inst) {
		if m.converged(w, in) {
			multiplyBytes(m, w, in, wideA, wide)
		}
	}, nil
}

func multiplyBytes(m *machine, w *warp, in *inst, wideA, wideB func(uint64) int32) {
	var a [16][32]int32
	var bt [8][32]int32
	for i := range 4 {
		src := m.in(w, in.a[i])
		for l := range 32 {
			for b := range 4 {
				a[l/4+8*(i&1)][l%4*4+16*(i>>1)+b] = wideA(src[l] >> (8 * b))
			}
		}
	}
	for i := range 2 {
		src := m.in(w, in.a[4+i])
		for l := range 32 {
			for b := range 4 {
				bt[l/4][l%4*4+16*i+b] = wideB(src[l] >> (8 * b))
			}
		}
	}
	for i := range 4 {
		c, d := m.in(w, in.a[6+i]), &w.regs[in.r[i]]
		for l := range 32 {
			row, col, sum := &a[l/4+8*(i>>1)], &bt[l%4*2+i&1], int32(uint32(c[l]))
			for k := range row {
				sum += row[k] * col[k]
			}
			d[l] = uint64(uint32(sum))
		}
	}
}
