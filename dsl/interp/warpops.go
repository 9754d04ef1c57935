package interp

import (
	"math"

	"github.com/mkgen/mkgen/dsl/ir"
)

// converged checks that a warp collective has all its lanes, which wait for each other there.
func (m *machine) converged(w *warp, in *inst) bool {
	if !m.whole(w, in) {
		return false
	}
	m.together(w)
	return true
}

// whole checks that all lanes of a warp come to a collective.
func (m *machine) whole(w *warp, in *inst) bool {
	if w.mask == fullMask {
		return true
	}
	kind := InactiveLanes
	if in.op.Info().Scope == ir.CTA || in.op == ir.OpBarSync || in.op == ir.OpBarArrive {
		kind = DivergentBarrier
	}
	m.fail(w, in, firstLane(w.mask), kind, "%s needs all 32 lanes of the warp, active are %s", in.op, laneList(w.mask))
	return false
}

// shuffle moves 32-bit values between lanes; from names the source lane, out of
// range means the lane itself.
func shuffle(from func(l int, x uint32) int) binder {
	return fixedStep(func(m *machine, w *warp, in *inst) {
		if !m.converged(w, in) {
			return
		}
		a, x, d := m.in(w, in.a[0]), m.in(w, in.a[1]), &w.regs[in.r[0]]
		for l := range d {
			s := from(l, uint32(x[l]))
			if s < 0 || s > 31 {
				s = l
			}
			d[l] = a[s]
		}
	})
}

func vote(f func(ballot uint32) uint64) binder {
	return fixedStep(func(m *machine, w *warp, in *inst) {
		if !m.converged(w, in) {
			return
		}
		a, d := m.in(w, in.a[0]), &w.regs[in.r[0]]
		var b uint32
		for l := range a {
			b |= uint32(a[l]&1) << l
		}
		v := f(b)
		for l := range d {
			d[l] = v
		}
	})
}

func stepAssert(m *machine, w *warp, in *inst) {
	a := m.in(w, in.a[0])
	for l := range 32 {
		if w.mask>>l&1 != 0 && a[l]&1 == 0 {
			m.fail(w, in, l, AssertFailed, "%s", in.text)
			return
		}
	}
}

// matrixProduct is m16n8k16: D = A·B + C. Products of bf16 and of f16 are exact in float32; each
// element's sum starts from C and adds the 16 products in order of k, rounding
// to float32 each time. (The GPU adds in another order; results agree within
// tolerance only.) With g = lane / 4 and t = lane % 4 a lane holds, as PTX lays
// the fragments out,
//
//	A  v0: row g, columns 2t and 2t+1     v1: row g+8
//	   v2: row g, columns 2t+8 and 2t+9   v3: row g+8
//	B  v4: rows 2t and 2t+1, column g     v5: rows 2t+8 and 2t+9
//	C  v6, v7: row g, columns 2t, 2t+1    v8, v9: row g+8; D the same
func matrixProduct(s *ir.Instr) (stepFn, error) {
	half := s.Args[0].Type == ir.F16x2
	return func(m *machine, w *warp, in *inst) {
		if m.converged(w, in) {
			multiply(m, w, in, half)
		}
	}, nil
}

// multiply computes matrixProduct's D, of f16 where half, else of bf16.
func multiply(m *machine, w *warp, in *inst, half bool) {
	var a [16][16]float32
	var bt [8][16]float32
	for i := range 4 {
		src := m.in(w, in.a[i])
		for l := range 32 {
			r, c := l/4+8*(i&1), l%4*2+8*(i>>1)
			a[r][c], a[r][c+1] = wide2(src[l], half)
		}
	}
	for i := range 2 {
		src := m.in(w, in.a[4+i])
		for l := range 32 {
			k := l%4*2 + 8*i
			bt[l/4][k], bt[l/4][k+1] = wide2(src[l], half)
		}
	}
	c, d := [4]*row{}, [4]*row{}
	for i := range 4 {
		c[i], d[i] = m.in(w, in.a[6+i]), &w.regs[in.r[i]]
	}
	for l := range 32 {
		a0, a8 := &a[l/4], &a[l/4+8]
		b0, b1 := &bt[l%4*2], &bt[l%4*2+1]
		d0, d1, d2, d3 := f32(c[0][l]), f32(c[1][l]), f32(c[2][l]), f32(c[3][l])
		for k := range 16 {
			d0 += float32(a0[k] * b0[k])
			d1 += float32(a0[k] * b1[k])
			d2 += float32(a8[k] * b0[k])
			d3 += float32(a8[k] * b1[k])
		}
		d[0][l], d[1][l], d[2][l], d[3][l] = fromF32(d0), fromF32(d1), fromF32(d2), fromF32(d3)
	}
}

// wide2 widens two f16 where half, else two bf16.
func wide2(x uint64, half bool) (lo, hi float32) {
	if half {
		return fromF16(x & 0xffff), fromF16(x >> 16)
	}
	return math.Float32frombits(uint32(x) << 16), math.Float32frombits(uint32(x) & 0xffff0000)
}
