package interp

import (
	"fmt"
	"math"

	"github.com/mkgen/mkgen/dsl/ir"
)

type conv struct{ from, to ir.Type }

// conversion is cvt: to nearest even into floats, toward zero and clamped into
// integers (NaN becomes 0), sign-extended from i32 to u64, cut off otherwise.
func conversion(s *ir.Instr) (stepFn, error) {
	fns := map[conv]func(uint64) uint64{
		{ir.F32, ir.BF16}: func(a uint64) uint64 { return bf16(f32(a)) },
		{ir.F32, ir.F16}:  func(a uint64) uint64 { return f16(f32(a)) },
		{ir.BF16, ir.F32}: func(a uint64) uint64 { return uint64(math.Float32bits(fromBF16(a))) },
		{ir.F16, ir.F32}:  func(a uint64) uint64 { return uint64(math.Float32bits(fromF16(a))) },
		{ir.E4M3x2, ir.F16x2}: func(a uint64) uint64 {
			return f16(fromE4M3(a&0xff)) | f16(fromE4M3(a>>8))<<16
		},
		{ir.I32, ir.F32}: func(a uint64) uint64 { return fromF32(float32(int32(a))) },
		{ir.U32, ir.F32}: func(a uint64) uint64 { return fromF32(float32(uint32(a))) },
		{ir.F32, ir.I32}: func(a uint64) uint64 { return uint64(uint32(clampInt(f32(a), math.MinInt32, math.MaxInt32))) },
		{ir.F32, ir.U32}: func(a uint64) uint64 { return uint64(clampInt(f32(a), 0, math.MaxUint32)) },
		{ir.I32, ir.U64}: func(a uint64) uint64 { return uint64(int64(int32(a))) },
		{ir.U32, ir.U64}: keep,
		{ir.U16, ir.U32}: keep,
		{ir.I32, ir.U32}: keep,
		{ir.U32, ir.I32}: keep,
		{ir.U64, ir.U32}: func(a uint64) uint64 { return a & w32 },
		{ir.U64, ir.I32}: func(a uint64) uint64 { return a & w32 },
		{ir.U32, ir.U16}: func(a uint64) uint64 { return a & 0xffff },
	}
	f, ok := fns[conv{s.Args[0].Type, s.T}]
	if !ok {
		return nil, fmt.Errorf("has no meaning from %s to %s", s.Args[0].Type, s.T)
	}
	return int1(w64, f), nil
}

func keep(a uint64) uint64 { return a }

func clampInt(x float32, lo, hi float64) int64 {
	y := math.Trunc(float64(x))
	switch {
	case y != y:
		return 0
	case y < lo:
		return int64(lo)
	case y > hi:
		return int64(hi)
	}
	return int64(y)
}

func stepCopy(m *machine, w *warp, in *inst) {
	w.regs[in.r[0]] = *m.in(w, in.a[0])
}

func packing(s *ir.Instr) (stepFn, error) {
	round, bits := bf16, 16
	switch s.T {
	case ir.F16x2:
		round = f16
	case ir.E4M3x2:
		round, bits = e4m3, 8
	}
	return int2(w32, func(a, b uint64) uint64 { return round(f32(a)) | round(f32(b))<<bits }), nil
}

func unpacking(s *ir.Instr) (stepFn, error) {
	if s.Args[0].Type == ir.U32 {
		return func(m *machine, w *warp, in *inst) {
			a, lo, hi := m.in(w, in.a[0]), &w.regs[in.r[0]], &w.regs[in.r[1]]
			for l := range a {
				lo[l], hi[l] = a[l]&0xffff, a[l]>>16
			}
		}, nil
	}
	if s.Args[0].Type == ir.BF16x2 {
		return func(m *machine, w *warp, in *inst) {
			a, lo, hi := m.in(w, in.a[0]), &w.regs[in.r[0]], &w.regs[in.r[1]]
			for l := range a {
				lo[l], hi[l] = a[l]<<16&w32, a[l]&0xffff0000
			}
		}, nil
	}
	return func(m *machine, w *warp, in *inst) {
		a, lo, hi := m.in(w, in.a[0]), &w.regs[in.r[0]], &w.regs[in.r[1]]
		for l := range a {
			lo[l] = uint64(math.Float32bits(fromF16(a[l] & 0xffff)))
			hi[l] = uint64(math.Float32bits(fromF16(a[l] >> 16)))
		}
	}, nil
}

func stepSplit(m *machine, w *warp, in *inst) {
	lo, hi := m.in(w, in.a[0]), m.in2(w, in.a[0])
	for l := range lo {
		w.regs[in.r[0]][l], w.regs[in.r[1]][l] = lo[l]&w32, lo[l]>>32
		w.regs[in.r[2]][l], w.regs[in.r[3]][l] = hi[l]&w32, hi[l]>>32
	}
}

func stepJoin(m *machine, w *warp, in *inst) {
	a, b, c, d := m.in(w, in.a[0]), m.in(w, in.a[1]), m.in(w, in.a[2]), m.in(w, in.a[3])
	lo, hi := &w.regs[in.r[0]], &w.regs[in.r[0]+1]
	for l := range lo {
		lo[l], hi[l] = a[l]|b[l]<<32, c[l]|d[l]<<32
	}
}

// permuted are four bytes of the eight in (a, b): each selector nibble names
// one, and its top bit asks for that byte's sign in all eight bits instead.
func permuted(a, b, sel uint64) (out uint64) {
	src := a&w32 | b<<32
	for i := range 4 {
		n := sel >> (4 * i) & 15
		v := src >> (8 * (n & 7)) & 0xff
		if n&8 != 0 {
			v = 0xff * (v >> 7)
		}
		out |= v << (8 * i)
	}
	return out
}

func stepPrmt(m *machine, w *warp, in *inst) {
	a, b, d := m.in(w, in.a[0]), m.in(w, in.a[1]), &w.regs[in.r[0]]
	for l := range d {
		d[l] = permuted(a[l], b[l], uint64(in.attr.Imm))
	}
}

func stepPrmtBy(m *machine, w *warp, in *inst) {
	a, b, sel, d := m.in(w, in.a[0]), m.in(w, in.a[1]), m.in(w, in.a[2]), &w.regs[in.r[0]]
	for l := range d {
		d[l] = permuted(a[l], b[l], sel[l])
	}
}

func stepLop3(m *machine, w *warp, in *inst) {
	a, b, c, d := m.in(w, in.a[0]), m.in(w, in.a[1]), m.in(w, in.a[2]), &w.regs[in.r[0]]
	for l := range d {
		d[l] = 0
		for i := range 8 { // the bits where a, b and c are those of i
			if in.attr.Imm>>i&1 != 0 {
				d[l] |= uint64(uint32(same(a[l], i>>2) & same(b[l], i>>1) & same(c[l], i)))
			}
		}
	}
}

func stepDot2(m *machine, w *warp, in *inst) {
	a, b, c, d := m.in(w, in.a[0]), m.in(w, in.a[1]), m.in(w, in.a[2]), &w.regs[in.r[0]]
	for l := range d {
		sum := int64(uint16(a[l]))*int64(int8(b[l])) + int64(uint16(a[l]>>16))*int64(int8(b[l]>>8)) + int64(c[l])
		d[l] = uint64(sum) & w32
	}
}

// same has the bits of v that are bit 0 of which.
func same(v uint64, which int) uint64 {
	if which&1 != 0 {
		return v
	}
	return ^v
}

func selection(s *ir.Instr) (stepFn, error) {
	wide := s.Args[1].Type == ir.B128
	return func(m *machine, w *warp, in *inst) {
		c := m.in(w, in.a[0])
		a, b, d := m.in(w, in.a[1]), m.in(w, in.a[2]), &w.regs[in.r[0]]
		choose(c, a, b, d)
		if wide {
			choose(c, m.in2(w, in.a[1]), m.in2(w, in.a[2]), &w.regs[in.r[0]+1])
		}
	}, nil
}

func choose(c, a, b, d *row) {
	for l := range d {
		if c[l]&1 != 0 {
			d[l] = a[l]
		} else {
			d[l] = b[l]
		}
	}
}

// perLane is an op without arguments.
func perLane(f func(m *machine, w *warp, l int) uint64) binder {
	return fixedStep(func(m *machine, w *warp, in *inst) {
		d := &w.regs[in.r[0]]
		for l := range d {
			d[l] = f(m, w, l)
		}
	})
}

func stepParam(m *machine, w *warp, in *inst) {
	v, d := m.params[in.attr.Param], &w.regs[in.r[0]]
	for l := range d {
		d[l] = v
	}
}

// getting reads a Var, setting writes it in the active lanes only.
func getting(s *ir.Instr) (stepFn, error) {
	wide := s.Attr.Var.Type == ir.B128
	return func(m *machine, w *warp, in *inst) {
		w.regs[in.r[0]] = w.regs[in.slot]
		if wide {
			w.regs[in.r[0]+1] = w.regs[in.slot+1]
		}
	}, nil
}

func setting(s *ir.Instr) (stepFn, error) {
	wide := s.Attr.Var.Type == ir.B128
	return func(m *machine, w *warp, in *inst) {
		assign(w.mask, &w.regs[in.slot], m.in(w, in.a[0]))
		if wide {
			assign(w.mask, &w.regs[in.slot+1], m.in2(w, in.a[0]))
		}
	}, nil
}

func assign(mask uint32, d, a *row) {
	if mask == fullMask {
		*d = *a
		return
	}
	for l := range d {
		if mask>>l&1 != 0 {
			d[l] = a[l]
		}
	}
}
