package interp

import (
	"math"

	"github.com/mkgen/mkgen/dsl/ir"
)

// Pure operations compute all 32 lanes whatever the mask: a lane that is not
// active never reads what it gets here.

func arithmeticRows() map[ir.Op]binder {
	return map[ir.Op]binder{
		ir.OpAdd: byType(map[ir.Type]stepFn{ir.I32: add32, ir.U32: add32,
			ir.U64: int2(w64, func(a, b uint64) uint64 { return a + b }), ir.F32: addF32}),
		ir.OpSub: byType(ints2(func(a, b uint64) uint64 { return a - b },
			float2(func(a, b float32) float32 { return a - b }))),
		ir.OpMul: byType(map[ir.Type]stepFn{ir.I32: mul32, ir.U32: mul32,
			ir.U64: int2(w64, func(a, b uint64) uint64 { return a * b }), ir.F32: mulF32}),
		ir.OpMulHi: fixedStep(int2(w32, func(a, b uint64) uint64 { return a * b >> 32 })),
		ir.OpDiv:   division,
		ir.OpRem:   remainder,
		ir.OpMin:   byType(minMax(-1)),
		ir.OpMax:   byType(minMax(1)),
		ir.OpNeg: byType(map[ir.Type]stepFn{ir.I32: int1(w32, func(a uint64) uint64 { return -a }),
			ir.F32: float1(func(a float32) float32 { return -a })}),
		ir.OpAbs: byType(map[ir.Type]stepFn{ir.I32: int1(w32, absI32),
			ir.F32: int1(w32, func(a uint64) uint64 { return a &^ (1 << 31) })}),
		ir.OpFma: fixedStep(fmaF32),
		ir.OpAnd: fixedStep(and64),
		ir.OpOr:  fixedStep(int2(w64, func(a, b uint64) uint64 { return a | b })),
		ir.OpXor: fixedStep(int2(w64, func(a, b uint64) uint64 { return a ^ b })),
		ir.OpNot: byType(map[ir.Type]stepFn{ir.I32: int1(w32, not), ir.U32: int1(w32, not), ir.U64: int1(w64, not),
			ir.Pred: int1(1, not)}),
		ir.OpShl:   byType(ints2(func(a, b uint64) uint64 { return a << uint32(b) }, nil)),
		ir.OpShr:   byType(map[ir.Type]stepFn{ir.U32: int2(w64, shr), ir.U64: int2(w64, shr), ir.I32: int2(w32, sar)}),
		ir.OpExp2:  approx(math.Exp2),
		ir.OpLog2:  approx(math.Log2),
		ir.OpRcp:   approx(func(x float64) float64 { return 1 / x }),
		ir.OpRsqrt: approx(func(x float64) float64 { return 1 / math.Sqrt(x) }),
		ir.OpSqrt:  approx(math.Sqrt), // one rounding: 53 ≥ 2·24 + 2
		ir.OpSin:   fixedStep(circular(math.Sin)),
		ir.OpCos:   fixedStep(circular(math.Cos)),
		ir.OpTanh:  approx(math.Tanh),
		ir.OpRint:  approx(math.RoundToEven),
		ir.OpFloor: approx(math.Floor),

		ir.OpOpaque: fixedStep(int1(w32, func(a uint64) uint64 { return a })),
	}
}

const (
	w32 = uint64(math.MaxUint32)
	w64 = uint64(math.MaxUint64)
)

func not(a uint64) uint64    { return ^a }
func shr(a, b uint64) uint64 { return a >> uint32(b) }
func sar(a, b uint64) uint64 { return uint64(int32(a) >> uint32(b)) }

func absI32(a uint64) uint64 {
	if int32(a) < 0 {
		return -a
	}
	return a
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// int1 and int2 apply f to every lane and keep the bits of mask.
func int1(mask uint64, f func(a uint64) uint64) stepFn {
	return func(m *machine, w *warp, in *inst) {
		a, d := m.in(w, in.a[0]), &w.regs[in.r[0]]
		for l := range d {
			d[l] = f(a[l]) & mask
		}
	}
}

func int2(mask uint64, f func(a, b uint64) uint64) stepFn {
	return func(m *machine, w *warp, in *inst) {
		a, b, d := m.in(w, in.a[0]), m.in(w, in.a[1]), &w.regs[in.r[0]]
		for l := range d {
			d[l] = f(a[l], b[l]) & mask
		}
	}
}

// ints2 is f for every integer type, and float (if any) for f32.
func ints2(f func(a, b uint64) uint64, float stepFn) map[ir.Type]stepFn {
	fns := map[ir.Type]stepFn{ir.I32: int2(w32, f), ir.U32: int2(w32, f), ir.U64: int2(w64, f)}
	if float != nil {
		fns[ir.F32] = float
	}
	return fns
}

func add32(m *machine, w *warp, in *inst) {
	a, b, d := m.in(w, in.a[0]), m.in(w, in.a[1]), &w.regs[in.r[0]]
	for l := range d {
		d[l] = uint64(uint32(a[l] + b[l]))
	}
}

func and64(m *machine, w *warp, in *inst) {
	a, b, d := m.in(w, in.a[0]), m.in(w, in.a[1]), &w.regs[in.r[0]]
	for l := range d {
		d[l] = a[l] & b[l]
	}
}

func mul32(m *machine, w *warp, in *inst) {
	a, b, d := m.in(w, in.a[0]), m.in(w, in.a[1]), &w.regs[in.r[0]]
	for l := range d {
		d[l] = uint64(uint32(a[l] * b[l]))
	}
}

// division is / of every type: truncated for integers, IEEE for f32. The least
// i32 divided by −1 wraps.
func division(s *ir.Instr) (stepFn, error) {
	return pick(map[ir.Type]stepFn{
		ir.I32: divide(func(a, b uint64) uint64 { return uint64(uint32(int32(a) / int32(b))) }),
		ir.U32: divide(func(a, b uint64) uint64 { return uint64(uint32(a) / uint32(b)) }),
		ir.U64: divide(func(a, b uint64) uint64 { return a / b }),
		ir.F32: float2(func(a, b float32) float32 { return a / b }),
	}, s.Args[0].Type)
}

func remainder(s *ir.Instr) (stepFn, error) {
	return pick(map[ir.Type]stepFn{
		ir.I32: divide(func(a, b uint64) uint64 { return uint64(uint32(int32(a) % int32(b))) }),
		ir.U32: divide(func(a, b uint64) uint64 { return uint64(uint32(a) % uint32(b)) }),
		ir.U64: divide(func(a, b uint64) uint64 { return a % b }),
	}, s.Args[0].Type)
}

func divide(f func(a, b uint64) uint64) stepFn {
	return func(m *machine, w *warp, in *inst) {
		a, b, d := m.in(w, in.a[0]), m.in(w, in.a[1]), &w.regs[in.r[0]]
		for l := range d {
			if w.mask>>l&1 == 0 {
				continue
			}
			if b[l] == 0 {
				m.fail(w, in, l, DivisionByZero, "divides %d by 0", a[l])
				return
			}
			d[l] = f(a[l], b[l])
		}
	}
}

// minMax is min (sign −1) or max (sign 1) of every type.
func minMax(sign int) map[ir.Type]stepFn {
	choose := func(cmp func(a, b uint64) int) stepFn {
		return int2(w64, func(a, b uint64) uint64 {
			if cmp(a, b) == sign {
				return a
			}
			return b
		})
	}
	return map[ir.Type]stepFn{ir.I32: choose(cmpI32), ir.U32: choose(cmpU), ir.U64: choose(cmpU),
		ir.F32: int2(w32, func(a, b uint64) uint64 { return uint64(minMaxF32(sign, uint32(a), uint32(b))) })}
}

// minMaxF32 follows PTX min.f32 and max.f32: the other operand if one is NaN,
// canonical NaN if both are, and −0 below +0.
func minMaxF32(sign int, a, b uint32) uint32 {
	x, y := math.Float32frombits(a), math.Float32frombits(b)
	switch {
	case x != x && y != y:
		return nanF32
	case x != x:
		return b
	case y != y:
		return a
	case x == y: // ±0 in either order, or the same
		if sign < 0 {
			return a | b
		}
		return a & b
	case (x < y) == (sign < 0):
		return a
	}
	return b
}

func cmpI32(a, b uint64) int {
	switch {
	case int32(a) < int32(b):
		return -1
	case int32(a) > int32(b):
		return 1
	}
	return 0
}

func cmpU(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// cmpF32 is −1, 0 or 1, and 2 when either operand is NaN.
func cmpF32(a, b uint64) int {
	x, y := math.Float32frombits(uint32(a)), math.Float32frombits(uint32(b))
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	case x == y:
		return 0
	}
	return 2
}

// compare is a predicate of what cmpI32, cmpU and cmpF32 return. Each type has a loop of its own: kernels do little as
// often.
func compare(holds func(c int) bool) binder {
	var is [4]uint64 // by that plus one
	for i := range is {
		is[i] = bit(holds(i - 1))
	}
	signed := func(m *machine, w *warp, in *inst) {
		a, b, d := m.in(w, in.a[0]), m.in(w, in.a[1]), &w.regs[in.r[0]]
		for l := range d {
			x, y := int32(a[l]), int32(b[l])
			d[l] = bit(x < y)&is[0] | bit(x == y)&is[1] | bit(x > y)&is[2]
		}
	}
	unsigned := func(m *machine, w *warp, in *inst) {
		a, b, d := m.in(w, in.a[0]), m.in(w, in.a[1]), &w.regs[in.r[0]]
		for l := range d {
			d[l] = bit(a[l] < b[l])&is[0] | bit(a[l] == b[l])&is[1] | bit(a[l] > b[l])&is[2]
		}
	}
	float := func(m *machine, w *warp, in *inst) {
		a, b, d := m.in(w, in.a[0]), m.in(w, in.a[1]), &w.regs[in.r[0]]
		for l := range d {
			d[l] = is[(1+cmpF32(a[l], b[l]))&3]
		}
	}
	return byType(map[ir.Type]stepFn{ir.I32: signed, ir.U32: unsigned, ir.U64: unsigned, ir.F32: float})
}
