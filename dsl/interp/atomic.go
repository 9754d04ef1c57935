package interp

import (
	"math"

	"github.com/mkgen/mkgen/dsl/ir"
)

// atomics is a read-modify-write that stores f(old, v1); integers wrap.
func atomics(f func(old, a, b uint64) uint64) binder {
	return fixedStep(func(m *machine, w *warp, in *inst) {
		a := m.in(w, in.a[0])
		m.rmw(w, in, func(l int, old uint64) uint64 { return f(old, a[l], 0) })
	})
}

// reduceAdd adds integers, which wrap, or floats, rounded to nearest.
func reduceAdd(s *ir.Instr) (stepFn, error) {
	if s.T != ir.F32 {
		return atomics(func(old, a, _ uint64) uint64 { return old + a })(s)
	}
	return atomics(func(old, a, _ uint64) uint64 {
		return uint64(math.Float32bits(math.Float32frombits(uint32(old)) + math.Float32frombits(uint32(a))))
	})(s)
}

func atomicMinMax(sign int) binder {
	choose := func(cmp func(a, b uint64) int) stepFn {
		return func(m *machine, w *warp, in *inst) {
			a := m.in(w, in.a[0])
			m.rmw(w, in, func(l int, old uint64) uint64 {
				if cmp(a[l], old) == sign {
					return a[l]
				}
				return old
			})
		}
	}
	return func(s *ir.Instr) (stepFn, error) {
		return pick(map[ir.Type]stepFn{ir.I32: choose(cmpI32), ir.U32: choose(cmpU), ir.U64: choose(cmpU)}, s.T)
	}
}

func stepCAS(m *machine, w *warp, in *inst) {
	want, v := m.in(w, in.a[0]), m.in(w, in.a[1])
	m.rmw(w, in, func(l int, old uint64) uint64 {
		if old == want[l] {
			return v[l]
		}
		return old
	})
}

// rmw applies f to a location for every active lane, one lane after another in
// an order drawn from the seed.
func (m *machine) rmw(w *warp, in *inst, f func(l int, old uint64) uint64) {
	r := &in.mem[0]
	rg := m.region(w, r)
	a := accessorFor(w, in, true)
	mask := uint64(w64)
	if in.size == 4 {
		mask = w32
	}
	rot := 0
	if w.mask&(w.mask-1) != 0 && m.ex == nil {
		rot = m.rng.IntN(32)
	}
	for i := range 32 {
		l := (i + rot) & 31
		if w.mask>>l&1 == 0 {
			continue
		}
		off, ok := m.locate(w, in, r, rg, l, 1)
		if !ok || !m.readable(w, in, r, rg, l, off, r.elem) {
			return
		}
		if a.by(l); rg.shadow != nil && !m.touch(rg, off, r.elem, &a) {
			return
		}
		old := m.strongRead(rg, off, &a, true).lo
		if len(in.r) > 0 {
			w.regs[in.r[0]][l] = old
		}
		m.strongWrite(rg, off, value{lo: f(l, old) & mask}, &a)
	}
}
